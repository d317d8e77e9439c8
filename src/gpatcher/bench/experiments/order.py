"""Patch order, ranked or shuffled."""

from gpatcher.bench.plan import Experiment, Row

EXPERIMENT = Experiment(
    title="Patch order: ranked or shuffled",
    description="The paper's plain reading, in which the mixer alone reaches the classifier, so that the order can "
    "matter. Shuffled: the positions after the node itself are permuted at random, once per node.",
    datasets=("cora", "citeseer", "squirrel", "chameleon"),
    rows={
        "ranked": Row("gpatcher", preset="paper"),
        "shuffled": Row("gpatcher", preset="paper", ablation={"shuffle_patches": True}),
    },
)
