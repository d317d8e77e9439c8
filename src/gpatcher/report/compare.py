"""The page of `gpatcher compare`, and its tables as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from gpatcher.errors import counted
from gpatcher.report.page import Figure, Notes, Part, Table, write_page
from gpatcher.runs.compare import RunComparison
from gpatcher.runs.paired import wilson
from gpatcher.trust.palette import GREY, class_colour

COLUMNS = ("run", "model", "accuracy (95 %)", "against the first (95 %)", "calibration error")
_LISTED = 50  # nodes on which the runs do not agree


def comparison_rows(comparison: RunComparison) -> list[tuple[str, ...]]:
    """Return the `COLUMNS` of each run as text, in points."""
    rows: list[tuple[str, ...]] = []
    for run in comparison.runs:
        own, found = _interval("{:.1f}", run.accuracy, *run.interval), run.difference
        difference = "" if found is None else _interval("{:+.1f}", found.gain, found.low, found.high)
        rows.append((run.name, run.model, own, difference, f"{100 * run.calibration_error:.1f}"))
    return rows


def _interval(form: str, value: float, low: float, high: float) -> str:
    """Return a figure and its interval in percent."""
    shown = [form.format(100 * figure) for figure in (value, low, high)]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def comparison_lines(comparison: RunComparison) -> list[str]:
    """Return the result in sentences: which nodes, and how each run differs from the first."""
    first, *others = comparison.runs
    n = len(comparison.y)
    sizes = {run.test for run in comparison.runs}
    share = (
        ""
        if sizes == {n}
        else f" The runs have {', '.join(f'{size:,}' for size in sorted(sizes))} test nodes of their own."
    )
    lines = [f"Compared on the {counted(n, 'test node')} that all runs have in common.{share}"]
    for run in others:
        found = run.difference
        assert found is not None
        what = f"{100 * found.gain:+.1f} points, 95 % interval {100 * found.low:+.1f} to {100 * found.high:+.1f}"
        if found.low > 0 or found.high < 0:
            words = f"{'better' if found.low > 0 else 'worse'} than {first.name}"
        else:
            words = f"not surely different from {first.name}"
        alone = f"alone right on {found.better:,}, alone wrong on {found.worse:,}, exact p {found.p_value:.2g}"
        lines.append(f"{run.name} is {words}: {what} ({alone}).")
    if len(others) > 1:
        lines.append(f"{counted(len(others), 'comparison')}: the more there are, the likelier one differs by chance.")
    return lines


def write_comparison(comparison: RunComparison, path: str | Path) -> Path:
    """Write the page of a comparison, and return its path."""
    parts: list[Part] = [Notes("In short", comparison_lines(comparison), wide=True)]
    caption = (
        "All figures are on the same test nodes, in percent. The difference is paired: it counts the nodes on which "
        "only one of two runs is right (interval by Bonett and Price)."
    )
    parts.append(Table("The runs", caption, COLUMNS, comparison_rows(comparison)))
    parts.append(_by_class(comparison))
    disputed = comparison.disputed()
    if disputed.size:
        listed = disputed[:_LISTED]
        caption = f"The first {len(listed)} of {len(disputed):,} nodes, each run's class and its probability."
        columns = ("node", "label", *(run.name for run in comparison.runs))
        parts.append(
            Table("Where they disagree", caption, columns, [_disputed_row(comparison, int(at)) for at in listed])
        )
    title = f"{counted(len(comparison.runs), 'run')} compared"
    return write_page(path, title, ", ".join(run.name for run in comparison.runs), parts)


def _disputed_row(comparison: RunComparison, at: int) -> tuple[str, ...]:
    cells = []
    for run in comparison.runs:
        c = int(run.predicted[at])
        mark = "" if c == comparison.y[at] else " (wrong)"
        cells.append(f"{comparison.classes[c]} {run.probability[at, c]:.0%}{mark}")
    return (str(comparison.ids[at]), comparison.classes[comparison.y[at]], *cells)


def _by_class(comparison: RunComparison) -> Figure:
    count, accuracy = comparison.by_class()
    present = np.flatnonzero(count)
    names = [f"{comparison.classes[c]}<br>{counted(int(count[c]), 'node')}" for c in present]
    plot = go.Figure()
    for position, run in enumerate(comparison.runs):
        values = accuracy[position, present]
        ends = np.array([wilson(round(v * k), k) for v, k in zip(values, count[present].tolist(), strict=True)])
        whiskers = {
            "array": ends[:, 1] - values,
            "arrayminus": values - ends[:, 0],
            "thickness": 1,
            "width": 3,
            "color": GREY,
        }
        bars = {"x": names, "y": values, "name": run.name, "error_y": {"type": "data", **whiskers}}
        plot.add_bar(**bars, marker_color=class_colour(position), hovertemplate="%{y:.1%}")
    plot.update_layout(barmode="group", hovermode="x unified")
    plot.update_xaxes(type="category", title="true class")
    plot.update_yaxes(title="accuracy", tickformat=".0%", range=[0, 1.02])
    return Figure(
        "Each class",
        "Accuracy on the nodes of each class. Whiskers: 95 % intervals by Wilson's formula.",
        plot,
        wide=True,
    )
