"""The leaderboard of a run and its verdict, as text for the terminal and the page."""

from __future__ import annotations

from gpatcher.runs.results import Comparison, Evaluation, RegressionEvaluation, Results, Row


def leaderboard_columns(evaluation: Results, short: bool = False) -> tuple[str, ...]:
    """Return the names of the columns, ``short`` for a terminal; the third is the score on the evaluated part."""
    numbers = isinstance(evaluation, RegressionEvaluation)
    part = evaluation.part
    if short:
        unit, part = "R²" if numbers else "%", part.replace("validation", "val.")
        scores = (f"val. {unit}", f"{part} {unit}")
    else:
        scores = ("validation R²", f"{part} R²") if numbers else ("validation", f"{part} accuracy")
    errors = ("RMSE", "MAE") if numbers else ()
    return ("model", *scores, "95 % interval", *errors, "seconds", "ms/node", "weight")


def leaderboard_cells(row: Row) -> tuple[str, ...]:
    """Return a row of the leaderboard as text; accuracies in percent."""

    def text(form: str, value: float | None, factor: float = 1.0) -> str:
        return "" if value is None else form.format(factor * value)

    if row.rmse is None:
        scores = [text("{:.1f}", value, 100) for value in (row.val, row.score, row.low, row.high)]
    else:
        scores = [text("{:z.3f}", row.val), f"{row.score:z.3f}", f"{row.low:z.2f}", f"{row.high:z.2f}"]
    errors = [text("{:#.4g}", value) for value in (row.rmse, row.mae) if value is not None]
    spent = (text("{:.1f}", row.seconds), text("{:.2f}", row.ms_per_node), text("{:.2f}", row.weight))
    return (row.name, *scores[:2], f"{scores[2]} to {scores[3]}", *errors, *spent)


def verdict(evaluation: Evaluation | RegressionEvaluation) -> str:
    """Return in a sentence or two whether the model is worth using, and what to try if it is not."""
    if isinstance(evaluation, RegressionEvaluation):
        return _verdict_of_numbers(evaluation)
    comparisons = {comparison.name: comparison for comparison in evaluation.comparisons}
    majority = comparisons.pop("Majority class")
    count = evaluation.evaluated
    start = f"{evaluation.accuracy:.1%} of {count:,} {evaluation.part} nodes are classified correctly"
    if majority.low <= 0:
        how, advice = ("not surely better", "rely on it yet") if majority.gain > 0 else ("not better", "use it")
        return (
            f"{start}, which is {how} than always predicting the most frequent class ({_gain(majority)}): do not "
            f"{advice}. More labels, other columns or other edges may help; see 'gpatcher diagnose'."
        )
    columns = comparisons.get("Logistic regression") or comparisons.get("MLP")
    if columns is None:
        return f"{start}: better than the most frequent class ({_gain(majority)})."
    if columns.low <= 0:
        return (
            f"{start}: better than the most frequent class ({_gain(majority)}), but not surely better than the columns "
            f"alone ({columns.name}, {_gain(columns)}): these nodes do not show that "
            "the edges help, the simpler model may do."
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
            f"({columns.name}, {_r2_gain(columns)}): these nodes do not show that "
            "the edges help, the simpler model may do."
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
