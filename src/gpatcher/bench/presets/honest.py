"""Beyond the paper: data sets without copies between train and test, every model tuned alike."""

from gpatcher.bench.plan import TITLES, Preset, Row

PRESET = Preset(
    title="Honest: no leaks, every model tuned with one budget",
    about="Chameleon and Squirrel without their duplicated nodes (accuracy), Minesweeper and Tolokers (ROC-AUC).",
    datasets=("chameleon-filtered", "squirrel-filtered", "minesweeper", "tolokers"),
    rows={name: Row(name) for name in TITLES},
)
