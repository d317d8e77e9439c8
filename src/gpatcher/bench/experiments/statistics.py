"""The statistics of the data sets."""

from gpatcher.bench.plan import PAPER_DATASETS, Experiment, Row

PRESET = Experiment(
    title="Statistics of the data sets",
    about="Measured on the files, edges undirected and without self-loops.",
    datasets=(*PAPER_DATASETS, "chameleon-filtered", "squirrel-filtered", "minesweeper", "tolokers"),
    rows={"measures": Row("measures")},
    task="statistics",
    view="statistics",
)
