"""The training loop of all models, checkpoints and metrics."""
