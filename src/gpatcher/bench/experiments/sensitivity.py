"""Patch size against number of filters."""

from gpatcher.bench.plan import Experiment, Row

SIZES = (8, 16, 32, 64)
FILTERS = (10, 50, 100, 200)

EXPERIMENT = Experiment(
    title="Sensitivity: patch size and number of filters",
    description="GPatcher with its settings for the data set, but for p and K.",
    datasets=("texas", "cora"),
    rows={f"p={p} k={k}": Row("gpatcher", {"patches.size": p, "patches.K": k}) for p in SIZES for k in FILTERS},
    view="grid",
)
