"""Classifiers behind scikit-learn's conventions."""
