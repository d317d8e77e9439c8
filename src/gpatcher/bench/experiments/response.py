"""Mean frequency response of the learned filter against heterophily."""

from gpatcher.bench.plan import PAPER_DATASETS, Experiment, Row

PRESET = Experiment(
    title="Mean frequency response against heterophily",
    about="The mean of g(λ) over the eigenvalues of the graph, g scaled to a largest size of 1 there, after training.",
    datasets=PAPER_DATASETS,
    rows={"gpatcher": Row("gpatcher")},
    splits="0,1,2",
    task="response",
    view="response",
)
