"""Run time of the mixer."""

from gpatcher.bench.plan import Experiment, Row

NODES = (10, 100, 1_000, 10_000, 100_000)
SIZES = (8, 16, 32, 64)

EXPERIMENT = Experiment(
    title="Run time of the patch mixer",
    description="Seconds of one pass over the patches of all nodes, on one thread.",
    datasets=tuple(f"n={n}" for n in NODES),
    rows={f"p={p}": Row("mixer", {"patches.size": p}) for p in SIZES},
    task="runtime",
    view="runtime",
)
