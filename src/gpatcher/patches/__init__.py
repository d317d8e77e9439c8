"""Extractors: for each node, itself and the nodes most relevant to it."""
