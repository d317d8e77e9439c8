"""Spectrum, filters, heterophily, the theory of the paper and the diagnosis of a graph."""
