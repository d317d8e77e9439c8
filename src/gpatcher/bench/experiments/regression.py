"""Beyond the paper: numbers in place of classes, on generated graphs and on columns of real ones."""

from gpatcher.bench.plan import Experiment, Row

_SETS = ("texas", "wisconsin", "chameleon-filtered", "actor")
EXPERIMENT = Experiment(
    title="Regression",
    description="R² × 100. In neighbour_sum the number depends on the neighbours' columns; each split is another "
    "graph. In component:NAME it is the leading principal component of every other column of a real data set, and the "
    "remaining columns are the features. No row is tuned.",
    datasets=("neighbour_sum:n=1000", *(f"component:{name}" for name in _SETS)),
    rows={name: Row(name, preset="default") for name in ("mlp", "gcn", "graphsage", "h2gcn", "fast", "gpatcher")}
    | {"auto": Row("auto")},
    splits="0,1,2",
)
