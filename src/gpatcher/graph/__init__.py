"""Graph and Split, their checks, conversion and storage, and nodes that arrive after training."""
