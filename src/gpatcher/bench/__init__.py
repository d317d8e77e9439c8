"""Models to compare with, under the one contract: ``model(x, nodes)`` gives logits, `gpatcher.training.loop.fit` trains."""
