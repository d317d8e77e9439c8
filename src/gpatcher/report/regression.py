"""What the page of a regression has of its own: predicted against true numbers, and residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from gpatcher.arrays import FloatArray
from gpatcher.report.page import Figure, Part
from gpatcher.runs.results import RegressionEvaluation
from gpatcher.trust.palette import BLUE, GREY, ORANGE

_BINS = 8  # of the mean residual in a plot


def regression_parts(evaluation: RegressionEvaluation) -> list[Part]:
    """Return the figures that show how well numbers are predicted."""
    return [_predicted(evaluation), _residuals(evaluation), *_by_graph(evaluation)]


def regression_in_short(evaluation: RegressionEvaluation) -> list[str]:
    """Return the main results in a few sentences."""
    metrics = evaluation.metrics
    r2 = "not defined" if metrics["r2"] is None else f"{metrics['r2']:.3f}"
    lines = [
        f"On {evaluation.part} nodes: R² {r2}, RMSE {metrics['rmse']:.4g}, MAE {metrics['mae']:.4g}; on validation "
        f"nodes R² {evaluation.val_score:.3f}.",
    ]
    if evaluation.label_assortativity is not None:
        lines.append(
            f"Label assortativity {evaluation.label_assortativity:+.2f}: the correlation of the labels of two "
            "neighbours, 1 if they are equal, below 0 if large numbers link to small ones."
        )
    return lines


def _points(evaluation: RegressionEvaluation, x: npt.NDArray[Any], y: FloatArray, axes: tuple[str, str]) -> Any:
    plot = go.Figure()
    plot.add_scattergl(
        x=x,
        y=y,
        mode="markers",
        marker={"size": 5, "color": BLUE, "opacity": 0.8},
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
