"""The page of `gpatcher compare`, and its tables as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from gpatcher.arrays import IntArray
from gpatcher.errors import counted
from gpatcher.report.page import Figure, Notes, Part, Table, write_page
from gpatcher.runs.compare import ComparedRun, RunComparison
from gpatcher.runs.paired import mean_interval, wilson
from gpatcher.trust.palette import GREY, class_colour

_LISTED = 50  # nodes on which the runs do not agree
_LISTED_NUMBERS = 20  # nearly all differ


def comparison_columns(comparison: RunComparison) -> tuple[str, ...]:
    """Return the names of the columns of `comparison_rows`."""
    if comparison.classes:
        return ("run", "model", "accuracy (95 %)", "against the first (95 %)", "calibration error")
    return ("run", "model", "MAE (95 %)", "against the first (95 %)", "RMSE", "R²")


def comparison_rows(comparison: RunComparison) -> list[tuple[str, ...]]:
    """Return the `comparison_columns` of each run as text, of classes in points."""
    rows: list[tuple[str, ...]] = []
    for run in comparison.runs:
        found, (first, *others) = run.difference, run.figures.values()
        if comparison.classes:
            own = _interval("{:.1f}", 100, first, *run.interval)
            difference = "" if found is None else _interval("{:+.1f}", 100, found.gain, found.low, found.high)
            rest = [f"{100 * others[0]:.1f}"]
        else:  # a gain is a smaller error
            own = _interval("{:.4g}", 1, first, *run.interval)
            difference = "" if found is None else _interval("{:+.4g}", -1, found.gain, found.high, found.low)
            rest = [f"{others[0]:.4g}", f"{others[1]:.3f}"]
        rows.append((run.name, run.model, own, difference, *rest))
    return rows


def _interval(form: str, factor: float, value: float, low: float, high: float) -> str:
    """Return a figure and its interval."""
    shown = [form.format(factor * figure) for figure in (value, low, high)]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def comparison_lines(comparison: RunComparison) -> list[str]:
    """Return the result in sentences: which nodes, and how each run differs from the first."""
    first = comparison.runs[0]
    n = len(comparison.y)
    sizes = {run.test for run in comparison.runs}
    share = (
        ""
        if sizes == {n}
        else f" The runs have {', '.join(f'{size:,}' for size in sorted(sizes))} test nodes of their own."
    )
    lines = [f"Compared on the {counted(n, 'test node')} that all runs have in common.{share}"]
    for run in comparison.runs:
        found = run.difference
        if found is None:  # the first itself
            continue
        counts = f"{found.better:,}", f"{found.worse:,}"
        if comparison.classes:
            what = f"{100 * found.gain:+.1f} points, 95 % interval {100 * found.low:+.1f} to {100 * found.high:+.1f}"
            alone = f"alone right on {counts[0]}, alone wrong on {counts[1]}, exact p {found.p_value:.2g}"
        else:
            interval = f"95 % interval {-found.high:+.4g} to {-found.low:+.4g}"
            what = f"{-found.gain:+.4g} in the mean absolute error, {interval}"
            alone = f"closer on {counts[0]}, further off on {counts[1]} nodes, p {found.p_value:.2g}"
        if found.low > 0 or found.high < 0:
            words = f"{'better' if found.low > 0 else 'worse'} than {first.name}"
        else:
            words = f"not surely different from {first.name}"
        lines.append(f"{run.name} is {words}: {what} ({alone}).")
    compared = len(comparison.runs) - 1
    if compared > 1:
        lines.append(f"{counted(compared, 'comparison')}: the more there are, the likelier one differs by chance.")
    return lines


def write_comparison(comparison: RunComparison, path: str | Path) -> Path:
    """Write the page of a comparison, and return its path."""
    parts: list[Part] = [Notes("In short", comparison_lines(comparison), wide=True)]
    caption = (
        "All figures are on the same test nodes, in percent. The difference is paired: it counts the nodes on which "
        "only one of two runs is right (interval by Bonett and Price)."
    )
    what = "each run's class and its probability"
    if not comparison.classes:
        caption = (
            "All figures are on the same test nodes, in the unit of the label but R². The difference is paired: the "
            "mean, over the nodes, of the difference of the absolute errors; below 0, the run is better than the first."
        )
        what = "largest difference first: each run's number and its error"
    parts.append(Table("The runs", caption, comparison_columns(comparison), comparison_rows(comparison)))
    parts.append(_by_group(comparison))
    disputed = comparison.disputed()
    if disputed.size:
        listed = disputed[: _LISTED if comparison.classes else _LISTED_NUMBERS]
        caption = f"The first {len(listed)} of {len(disputed):,} nodes, {what}."
        columns = ("node", "label", *(run.name for run in comparison.runs))
        parts.append(
            Table("Where they disagree", caption, columns, [_disputed_row(comparison, int(at)) for at in listed])
        )
    title = f"{counted(len(comparison.runs), 'run')} compared"
    return write_page(path, title, ", ".join(run.name for run in comparison.runs), parts)


def _disputed_row(comparison: RunComparison, at: int) -> tuple[str, ...]:
    cells, y = [], comparison.y[at]
    for run in comparison.runs:
        if run.probability is None:
            cells.append(f"{run.predicted[at]:.4g} ({run.predicted[at] - y:+.4g})")
            continue
        c = int(run.predicted[at])
        cells.append(f"{comparison.classes[c]} {run.probability[at, c]:.0%}{'' if c == y else ' (wrong)'}")
    return (str(comparison.ids[at]), comparison.classes[y] if comparison.classes else f"{y:.6g}", *cells)


def _by_group(comparison: RunComparison) -> Figure:
    """Draw accuracy by class, or the mean absolute error by quantile of the label."""
    names, group = comparison.groups()
    nodes = [np.flatnonzero(group == k) for k in range(len(names))]
    shown = [(f"{name}<br>{counted(len(at), 'node')}", at) for name, at in zip(names, nodes, strict=True) if at.size]
    plot = go.Figure()
    for position, run in enumerate(comparison.runs):
        values, ends = zip(*(_measured(comparison, run, at) for _, at in shown), strict=True)
        whiskers = {
            "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
            "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
            "thickness": 1,
            "width": 3,
            "color": GREY,
        }
        bars = {"x": [name for name, _ in shown], "y": values, "name": run.name}
        form = "%{y:.1%}" if comparison.classes else "%{y:.4g}"
        plot.add_bar(
            **bars,
            error_y={"type": "data", **whiskers},
            marker_color=class_colour(position),
            hovertemplate=form,
        )
    plot.update_layout(barmode="group", hovermode="x unified")
    if comparison.classes:
        plot.update_xaxes(type="category", title="true class")
        plot.update_yaxes(title="accuracy", tickformat=".0%", range=[0, 1.02])
        caption = "Accuracy on the nodes of each class. Whiskers: 95 % intervals by Wilson's formula."
        return Figure("Each class", caption, plot, wide=True)
    plot.update_xaxes(type="category", title="true number")
    plot.update_yaxes(title="mean absolute error", rangemode="tozero")
    caption = "Mean absolute error on the nodes of each fifth of the labels. Whiskers: 95 % intervals by Student's t."
    return Figure("Small and large numbers", caption, plot, wide=True)


def _measured(comparison: RunComparison, run: ComparedRun, at: IntArray) -> tuple[float, tuple[float, float]]:
    """Return the accuracy or mean absolute error of a run on some nodes, and its 95 % interval."""
    if comparison.classes:
        correct = int((run.predicted[at] == comparison.y[at]).sum())
        return correct / len(at), wilson(correct, len(at))
    errors = np.abs(run.predicted[at] - comparison.y[at])
    return float(errors.mean()), mean_interval(errors)
