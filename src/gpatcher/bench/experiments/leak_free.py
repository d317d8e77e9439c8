"""Beyond the paper: data sets without duplicates between train and test, every model tuned alike."""

from gpatcher.bench.plan import TITLES, Experiment, Row

EXPERIMENT = Experiment(
    title="Data sets without leaks",
    description="Chameleon and Squirrel without their duplicate nodes (accuracy), Minesweeper and Tolokers (ROC-AUC), "
    "with settings from 'gpatcher tune leak_free'. Numbers of trials: results/README.md.",
    datasets=("chameleon-filtered", "squirrel-filtered", "minesweeper", "tolokers"),
    rows={name: Row(name) for name in TITLES},
)
