"""Where graphs come from: benchmark sets by name and generators."""
