"""Beyond the paper: every model, with edges as filed where the data set has directions."""

from gpatcher.bench.plan import TITLES, Experiment, Row

EXPERIMENT = Experiment(
    title="All models, edges as filed",
    description="Deep-GPatcher, GPatcher (auto), Dir-GNN, FSGNN and LINKX may read the direction of edges. Chameleon "
    "and Squirrel, also without their duplicate nodes, the WebKB graphs and Actor are directed; the others are not.",
    datasets=(
        *("texas", "wisconsin", "cornell", "chameleon", "squirrel", "actor", "cora", "citeseer"),
        *("chameleon-filtered-directed", "squirrel-filtered-directed", "minesweeper", "tolokers"),
    ),
    rows={name: Row(name) for name in TITLES},
)
