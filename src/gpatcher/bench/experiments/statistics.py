"""The statistics of the data sets."""

from gpatcher.bench.plan import PAPER_DATASETS, Experiment, Row

EXPERIMENT = Experiment(
    title="Statistics of the data sets",
    description="Measured on the files, edges undirected and without self-loops.",
    datasets=(*PAPER_DATASETS, "chameleon-filtered", "squirrel-filtered", "minesweeper", "tolokers"),
    rows={"measures": Row("measures")},
    task="statistics",
    view="statistics",
)
