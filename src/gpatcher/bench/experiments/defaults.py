"""Beyond the paper: its plain reading, the default, and what each choice that the paper leaves open does."""

from gpatcher.bench.plan import Experiment, Row

PRESET = Experiment(
    title="Plain reading, default, and the choices between them",
    about="No row is tuned to a data set; the records hold validation accuracy beside the test's, so that the defaults "
    "of σ (inside the sum of the filter) and of the skip connections can be judged by it.",
    datasets=("texas", "cornell", "wisconsin", "chameleon", "squirrel", "actor", "cora", "citeseer"),
    rows={
        "paper's plain reading": Row("gpatcher", base="paper"),
        "default": Row("gpatcher", base="default"),
        "σ = tanh": Row("gpatcher", {"sigma": "tanh"}, base="default"),
        "σ = relu": Row("gpatcher", {"sigma": "relu"}, base="default"),
        "skip connections": Row("gpatcher", {"skip": True}, base="default"),
        "fast default": Row("fast", base="default"),
    },
)
