"""The alternative patch functions."""

from gpatcher.bench.plan import Experiment, Row

_NAMES = ("heterophily-aware", "polynomial", "shared", "heat", "bandpass", "ppr")

PRESET = Experiment(
    title="Alternative extractors",
    about="GPatcher with its settings for the data set and another way to choose patches.",
    datasets=("cora", "chameleon"),
    rows={name: Row("gpatcher", {"extractor": name}) for name in _NAMES},
)
