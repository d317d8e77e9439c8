"""Experiments: what is run for each table and figure, tuning, and what the records say."""
