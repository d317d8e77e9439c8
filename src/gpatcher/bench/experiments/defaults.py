"""Beyond the paper: its plain reading, the default, and the choices that the paper leaves open."""

from gpatcher.bench.plan import Experiment, Row

EXPERIMENT = Experiment(
    title="Plain reading, default, and the choices between them",
    description="No row is tuned to a data set. The records hold validation accuracy beside test accuracy, so that the "
    "defaults of σ (inside the sum of the filter) and of the skip connections can be judged by it.",
    datasets=("texas", "cornell", "wisconsin", "chameleon", "squirrel", "actor", "cora", "citeseer"),
    rows={
        "paper's plain reading": Row("gpatcher", preset="paper"),
        "default": Row("gpatcher", preset="default"),
        "σ = tanh": Row("gpatcher", {"patches.sigma": "tanh"}, preset="default"),
        "σ = relu": Row("gpatcher", {"patches.sigma": "relu"}, preset="default"),
        "skip connections": Row("gpatcher", {"model.skip": True}, preset="default"),
        "fast default": Row("fast", preset="default"),
    },
)
