"""Beyond the paper: what each part of Deep-GPatcher, and the mixer, is worth, none of it tuned to a data set."""

from typing import Any

from gpatcher.bench.plan import Experiment, Row

_PLAIN = {"model.readout": ["ego", "mean"]}
_MIXER = {"model.readout": ["ego", "mean", "mixer"]}
_CHANGES: dict[str, dict[str, Any]] = {
    "default": {},
    "one round": {"model.rounds": 1},
    "eight rounds": {"model.rounds": 8},
    "mean in place of sum": {"model.aggregate": "mean"},
    "edges out and in apart": {"patches": "hop:size=512,direction=out + hop:size=512,direction=in"},
    "with labels": {"model.readout": ["ego", "mean", "labels"]},
    "rounds that replace their input": {"model.residual": False},
}
EXPERIMENT = Experiment(
    title="What each part is worth",
    description="Deep-GPatcher and Fast-GPatcher at their defaults, with one part changed at a time; the mixer in the "
    "second, whose patches are short. The records hold validation accuracy beside test accuracy, so that a part can be "
    "judged without the test nodes.",
    datasets=("texas", "wisconsin", "cornell", "chameleon-filtered-directed", "squirrel-filtered-directed"),
    rows={
        **{name: Row("deep", changes, preset="default") for name, changes in _CHANGES.items()},
        "fast, without the mixer": Row("fast", _PLAIN, preset="default"),
        "fast, with the mixer": Row("fast", _MIXER, preset="default"),
        "fast, with the mixer, members shuffled": Row(
            "fast", _MIXER, preset="default", ablation={"shuffle_patches": True}
        ),
    },
)
