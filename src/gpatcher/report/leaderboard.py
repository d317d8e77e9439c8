"""The leaderboard of a run and its verdict, as text for the terminal and the page."""

from __future__ import annotations

from gpatcher.runs.evaluation import Comparison, Evaluation, Row

LEADERBOARD_COLUMNS = ("model", "validation", "accuracy", "95 % interval", "seconds", "ms/node", "weight")


def leaderboard_cells(row: Row) -> tuple[str, ...]:
    """Return a row of the leaderboard as text."""
    return (
        row.name,
        "" if row.val_accuracy is None else f"{100 * row.val_accuracy:.1f}",
        f"{100 * row.accuracy:.1f}",
        f"{100 * row.low:.1f} to {100 * row.high:.1f}",
        "" if row.seconds is None else f"{row.seconds:.1f}",
        "" if row.ms_per_node is None else f"{row.ms_per_node:.2f}",
        "" if row.weight is None else f"{row.weight:.2f}",
    )


def verdict(evaluation: Evaluation) -> str:
    """Return in a sentence or two whether the model is worth using, and what to try if it is not."""
    comparisons = {comparison.name: comparison for comparison in evaluation.comparisons}
    majority = comparisons.pop("Majority class")
    count = int(evaluation.per_class.support.sum())
    start = f"{evaluation.accuracy:.1%} of {count:,} {evaluation.part} nodes are classified correctly"
    if majority.low <= 0:
        return (
            f"{start}, which is not better than always predicting the most frequent class ({_gain(majority)}): do not "
            "use it. More labels, other columns or other edges may help; see 'gpatcher diagnose'."
        )
    columns = comparisons.get("Logistic regression") or comparisons.get("MLP")
    if columns is None:
        return f"{start}: better than the most frequent class ({_gain(majority)})."
    if columns.low <= 0:
        return (
            f"{start}: better than the most frequent class ({_gain(majority)}), but not surely better than the columns "
            f"alone ({columns.name}, {_gain(columns)}): the edges add little here, the simpler model may do."
        )
    return (
        f"{start}: better than the most frequent class ({_gain(majority)}) and than the columns alone "
        f"({columns.name}, {_gain(columns)}): worth using."
    )


def _gain(comparison: Comparison) -> str:
    low, high = 100 * comparison.low, 100 * comparison.high
    return f"{100 * comparison.gain:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"
