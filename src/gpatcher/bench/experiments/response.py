"""Mean frequency response of the learned filter against heterophily."""

from gpatcher.bench.plan import PAPER_DATASETS, Experiment, Row

EXPERIMENT = Experiment(
    title="Mean frequency response against heterophily",
    description="The mean of g(λ) over the eigenvalues of the graph after training, scaled to a maximum of 1.",
    datasets=PAPER_DATASETS,
    rows={"gpatcher": Row("gpatcher")},
    splits="0,1,2",
    task="response",
    view="response",
)
