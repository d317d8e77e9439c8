"""The one training loop, checkpoints and metrics."""
