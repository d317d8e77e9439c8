"""Beyond the paper: accuracy from heterophily to homophily on block models."""

from gpatcher.bench.plan import TITLES, Experiment, Row

PHI = (-0.9, -0.7, -0.5, -0.25, 0.0, 0.25, 0.5, 0.7, 0.9)

EXPERIMENT = Experiment(
    title="Contextual block models, from heterophily to homophily",
    description="Graphs of 1,000 nodes. Neighbours disagree at φ < 0 and agree at φ > 0; at 0 only features are "
    "informative. Each split is another graph.",
    datasets=tuple(f"csbm:phi={phi},n=1000,features=100,degree=8" for phi in PHI),
    rows={name: Row(name) for name in TITLES},
    splits="0,1,2",
    view="sweep",
)
