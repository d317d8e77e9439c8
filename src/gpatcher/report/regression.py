"""The page of a regression: predicted against true numbers, residuals, conformal intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from gpatcher.arrays import FloatArray
from gpatcher.report.leaderboard import leaderboard_cells, leaderboard_columns, verdict
from gpatcher.report.page import Figure, Heading, Notes, Part, Table, write_page
from gpatcher.runs.evaluation import RegressionEvaluation
from gpatcher.trust.palette import BLUE, GREY, ORANGE

_BINS = 8  # of the mean residual in a plot


def write_regression_page(evaluation: RegressionEvaluation, path: str | Path) -> Path:
    """Write the page of a regression, and return its path; it needs neither the model nor the graph."""
    train, val, test = evaluation.split_sizes
    subtitle = (
        f"{evaluation.model} of {evaluation.extractor}, {evaluation.parameters:,} parameters; {train:,} training, "
        f"{val:,} validation and {test:,} test nodes"
    )
    parts: list[Part] = [Notes("In short", _in_short(evaluation), wide=True)]
    parts.append(Heading("How well it did", f"On the {evaluation.part} nodes, which it was not trained on."))
    caption = (
        "The same nodes for all; the interval of R² is a bootstrap over these nodes. RMSE and MAE are in the unit of "
        "the label. Baselines are not tuned for this graph."
    )
    rows = [leaderboard_cells(row) for row in evaluation.leaderboard]
    parts.append(Table("Leaderboard", caption, leaderboard_columns(evaluation), rows))
    parts += [_predicted(evaluation), _residuals(evaluation), *_by_graph(evaluation), _coverage(evaluation)]
    if evaluation.response is not None:
        caption = "Weight of each frequency in the scores that rank the members of a patch."
        parts.append(Heading("What it learned"))
        parts.append(Figure("Frequency response of the filter", caption, evaluation.response.plot()))
    if evaluation.history:
        parts.append(_learning_curve(evaluation))
    return write_page(path, f"{evaluation.name}: how far to trust this model", subtitle, parts)


def _in_short(evaluation: RegressionEvaluation) -> list[str]:
    metrics = evaluation.metrics
    r2 = "not defined" if metrics["r2"] is None else f"{metrics['r2']:.3f}"
    lines = [
        verdict(evaluation),
        f"On {evaluation.part} nodes: R² {r2}, RMSE {metrics['rmse']:.4g}, MAE {metrics['mae']:.4g}; on validation "
        f"nodes R² {evaluation.val_r2:.3f}.",
    ]
    if evaluation.part != "test":
        lines.append(
            "No test node has a label. These results are on the validation nodes, which early stopping used: expect "
            "worse ones on new nodes."
        )
    if evaluation.label_assortativity is not None:
        lines.append(
            f"Label assortativity {evaluation.label_assortativity:+.2f}: the correlation of the labels of two "
            "neighbours, 1 if they are equal, below 0 if large numbers link to small ones."
        )
    count = len(evaluation.true)
    for level, fraction, _ in evaluation.coverage:
        # below the level by more than chance: two standard errors
        if level - fraction > 2 * np.sqrt(level * (1 - level) / count):
            lines.append(
                f"Conformal intervals at {level:.0%} hold the label of {fraction:.1%} of the {evaluation.part} nodes "
                "only: these differ from the validation nodes, do not rely on the level."
            )
    lines.append("Single nodes are explained by 'gpatcher explain RUN ID', in the unit of the label.")
    return lines + evaluation.notes


def _points(evaluation: RegressionEvaluation, x: npt.NDArray[Any], y: FloatArray, axes: tuple[str, str]) -> Any:
    plot = go.Figure()
    plot.add_scattergl(
        x=x,
        y=y,
        mode="markers",
        marker={"size": 5, "color": BLUE, "opacity": 0.5},
        text=evaluation.ids,
        hovertemplate="%{text}: %{x:.4g}, %{y:.4g}<extra></extra>",
        name="nodes",
    )
    plot.update_xaxes(title=axes[0])
    plot.update_yaxes(title=axes[1])
    plot.update_layout(showlegend=False)
    return plot


def _predicted(evaluation: RegressionEvaluation) -> Figure:
    plot = _points(evaluation, evaluation.true, evaluation.predicted, ("true", "predicted"))
    ends = [float(min(evaluation.true.min(), evaluation.predicted.min()))]
    ends.append(float(max(evaluation.true.max(), evaluation.predicted.max())))
    plot.add_scatter(x=ends, y=ends, mode="lines", line={"dash": "dot", "color": GREY}, hoverinfo="skip")
    return Figure("Predicted against true", "Nodes on the dotted line are predicted exactly.", plot)


def _residuals(evaluation: RegressionEvaluation) -> Figure:
    plot = go.Figure()
    plot.add_histogram(x=evaluation.predicted - evaluation.true, marker_color=BLUE)
    plot.update_xaxes(title="residual: predicted minus true")
    plot.update_yaxes(title="nodes")
    return Figure("Residuals", "In the unit of the label.", plot)


def _by_graph(evaluation: RegressionEvaluation) -> list[Part]:
    residual = evaluation.predicted - evaluation.true
    parts: list[Part] = []
    if evaluation.degree.any():
        plot = _points(evaluation, evaluation.degree, residual, ("degree", "residual"))
        _add_means(plot, np.log1p(evaluation.degree), residual, np.expm1)
        plot.update_xaxes(type="log" if evaluation.degree.min() > 0 else "linear")
        caption = (
            "Residuals of nodes by their number of neighbours; orange: root mean square within groups of equal size."
        )
        parts.append(Figure("Residuals by degree", caption, plot))
    known = ~np.isnan(evaluation.assortativity)
    if known.any():
        x = evaluation.assortativity
        plot = _points(evaluation, x, residual, ("label × mean label of the neighbours, standardised", "residual"))
        _add_means(plot, x[known], residual[known], lambda values: values)
        caption = (
            "To the right a node's label is like those of its neighbours, to the left on the other side of the mean. "
            "From all labels; orange: root mean square within groups of equal size."
        )
        parts.append(Figure("Residuals by label assortativity", caption, plot))
    return parts


def _add_means(plot: Any, x: FloatArray, residual: FloatArray, back: Any) -> None:
    """Add the root mean square of the residuals within groups of equal size along x."""
    groups = np.array_split(np.argsort(x, kind="stable"), min(_BINS, len(x)))
    centre = [float(back(x[group].mean())) for group in groups]
    spread = [float(np.sqrt(np.square(residual[group]).mean())) for group in groups]
    plot.add_scatter(x=centre, y=spread, mode="lines+markers", line={"color": ORANGE}, name="root mean square")


def _coverage(evaluation: RegressionEvaluation) -> Table:
    rows = [(f"{level:.0%}", f"{fraction:.1%}", f"{width:.4g}") for level, fraction, width in evaluation.coverage]
    caption = (
        "Intervals that contain the true number with a chosen probability (gpatcher predict --conformal 0.9), from the "
        f"errors on {evaluation.intervals.nodes:,} validation nodes; the probability is an average over nodes "
        "exchangeable with those."
    )
    columns = ("level", f"coverage on {evaluation.part} nodes", "width")
    return Table("Conformal intervals", caption, columns, rows)


def _learning_curve(evaluation: RegressionEvaluation) -> Figure:
    plot = go.Figure()
    epochs = list(range(1, len(evaluation.history) + 1))
    for key, name in (("train_loss", "training loss, with dropout"), ("val_loss", "validation loss")):
        plot.add_scatter(x=epochs, y=[losses[key] for losses in evaluation.history], name=name)
    plot.add_vline(x=evaluation.best_epoch, line_dash="dot", line_color=GREY)
    plot.update_xaxes(title="epoch")
    plot.update_yaxes(title="mean squared error, standardised")
    return Figure("Learning curve", f"The weights of epoch {evaluation.best_epoch} (dotted) were kept.", plot)
