"""Compiled loops on plain arrays; nothing here checks its input."""
