"""The leaderboard of a run and its verdict, as text for the terminal and the page."""

from __future__ import annotations

from gpatcher.runs.evaluation import Comparison, Evaluation, NumberRow, RegressionEvaluation, Row

LEADERBOARD_COLUMNS = ("model", "validation", "accuracy", "95 % interval", "seconds", "ms/node", "weight")


def leaderboard_columns(evaluation: Evaluation | RegressionEvaluation) -> tuple[str, ...]:
    """Return the names of the columns; the third is the part that is evaluated."""
    if isinstance(evaluation, RegressionEvaluation):
        figures = ("validation R²", f"{evaluation.part} R²", "95 % interval", "RMSE", "MAE")
        return ("model", *figures, *LEADERBOARD_COLUMNS[4:])
    return ("model", "validation", evaluation.part, *LEADERBOARD_COLUMNS[3:])


def leaderboard_cells(row: Row | NumberRow) -> tuple[str, ...]:
    """Return a row of the leaderboard as text."""
    if isinstance(row, NumberRow):
        return (
            row.name,
            "" if row.val_r2 is None else f"{row.val_r2:.3f}",
            f"{row.r2:.3f}",
            f"{row.low:.2f} to {row.high:.2f}",
            f"{row.rmse:.4g}",
            f"{row.mae:.4g}",
            "" if row.seconds is None else f"{row.seconds:.1f}",
            "" if row.ms_per_node is None else f"{row.ms_per_node:.2f}",
            "" if row.weight is None else f"{row.weight:.2f}",
        )
    return (
        row.name,
        "" if row.val_accuracy is None else f"{100 * row.val_accuracy:.1f}",
        f"{100 * row.accuracy:.1f}",
        f"{100 * row.low:.1f} to {100 * row.high:.1f}",
        "" if row.seconds is None else f"{row.seconds:.1f}",
        "" if row.ms_per_node is None else f"{row.ms_per_node:.2f}",
        "" if row.weight is None else f"{row.weight:.2f}",
    )


def verdict(evaluation: Evaluation | RegressionEvaluation) -> str:
    """Return in a sentence or two whether the model is worth using, and what to try if it is not."""
    if isinstance(evaluation, RegressionEvaluation):
        return _verdict_of_numbers(evaluation)
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


def _verdict_of_numbers(evaluation: RegressionEvaluation) -> str:
    mean, *others = evaluation.comparisons
    r2 = evaluation.metrics["r2"]
    if r2 is None:
        return f"All {evaluation.part} nodes have the same label, so R² is not defined."
    start = f"R² is {r2:.3f} on {evaluation.part} nodes, an error (RMSE) of {evaluation.metrics['rmse']:.4g}"
    if not mean.low > 0:
        return (
            f"{start}, which is not surely better than predicting the mean ({_r2_gain(mean)}): do not use it. More "
            "labels, other columns or other edges may help."
        )
    columns = max((c for c in others if "columns" in c.name), key=lambda c: -c.gain, default=None)
    if columns is None:
        return f"{start}: better than the mean ({_r2_gain(mean)})."
    if not columns.low > 0:
        return (
            f"{start}: better than the mean ({_r2_gain(mean)}), but not surely better than the columns alone "
            f"({columns.name}, {_r2_gain(columns)}): the edges add little here, the simpler model may do."
        )
    return (
        f"{start}: better than the mean ({_r2_gain(mean)}) and than the columns alone "
        f"({columns.name}, {_r2_gain(columns)}): worth using."
    )


def _r2_gain(comparison: Comparison) -> str:
    return f"{comparison.gain:+.3f} in R², 95 % interval {comparison.low:+.3f} to {comparison.high:+.3f}"


def _gain(comparison: Comparison) -> str:
    low, high = 100 * comparison.low, 100 * comparison.high
    return f"{100 * comparison.gain:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}"
