"""Compiled loops on plain arrays, which they do not check."""
