"""The alternative patch functions."""

from gpatcher.bench.plan import Experiment, Row

_NAMES = ("heterophily-aware", "polynomial", "shared", "heat", "bandpass", "ppr")

EXPERIMENT = Experiment(
    title="Alternative extractors",
    description="GPatcher with its settings for the data set and another extractor.",
    datasets=("cora", "chameleon"),
    rows={name: Row("gpatcher", {"patches.name": name}) for name in _NAMES},
)
