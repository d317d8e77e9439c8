"""Beyond the paper: data sets without copies between train and test, every model tuned alike."""

from gpatcher.bench.plan import TITLES, Experiment, Row

PRESET = Experiment(
    title="Honest: data sets without leaks",
    about="Chameleon and Squirrel without their duplicated nodes (accuracy), Minesweeper and Tolokers (ROC-AUC); "
    "meant for configurations from 'gpatcher tune honest', with which every model has the same number of trials.",
    datasets=("chameleon-filtered", "squirrel-filtered", "minesweeper", "tolokers"),
    rows={name: Row(name) for name in TITLES},
)
