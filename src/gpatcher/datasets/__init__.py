"""Benchmark graphs by name, and random graphs."""
