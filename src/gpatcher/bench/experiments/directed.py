"""Beyond the paper: several patch sources and rounds, edges as filed where the data set has directions."""

from gpatcher.bench.plan import Experiment, Row

_MODELS = ("deep", "fast", "gpatcher", "dirgnn", "fsgnn", "linkx", "classic")
EXPERIMENT = Experiment(
    title="Directions and rounds",
    description="Models that read the direction of edges, or several hops, on the edges as filed. Chameleon and "
    "Squirrel, also without their duplicate nodes, the WebKB graphs and Actor are directed; the others are not.",
    datasets=(
        *("texas", "wisconsin", "cornell", "chameleon", "squirrel", "actor", "cora", "citeseer"),
        *("chameleon-filtered-directed", "squirrel-filtered-directed", "minesweeper", "tolokers"),
    ),
    rows={name: Row(name) for name in _MODELS},
)
