"""Scaling out: executors (threads, processes, Ray), process groups, external sorting."""
