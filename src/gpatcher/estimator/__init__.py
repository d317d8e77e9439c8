"""Classifiers with scikit-learn's conventions."""
