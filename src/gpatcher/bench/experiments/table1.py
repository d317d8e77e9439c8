"""Table 1: eleven baselines, GPatcher and Fast-GPatcher on nine data sets."""

from gpatcher.bench.plan import PAPER_DATASETS, PAPER_MODELS, Experiment, Row

EXPERIMENT = Experiment(
    title="Table 1: the models on the nine data sets",
    description="Test accuracy under the paper's protocol: the public split or the ten geom-gcn splits, early stopping "
    "on the validation loss.",
    datasets=PAPER_DATASETS,
    rows={name: Row(name) for name in PAPER_MODELS},
)
