"""Patch order, ranked or shuffled."""

from gpatcher.bench.plan import Experiment, Row

PRESET = Experiment(
    title="Patch order: ranked or shuffled",
    about="The paper's plain reading, in which the mixer alone reaches the classifier and so the order can count; "
    "shuffled: the places after the node itself are permuted once per node, at random.",
    datasets=("cora", "citeseer", "squirrel", "chameleon"),
    rows={
        "ranked": Row("gpatcher", base="paper"),
        "shuffled": Row("gpatcher", {"patch_order": "shuffled"}, base="paper"),
    },
)
