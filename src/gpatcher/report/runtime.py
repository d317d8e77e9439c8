"""The figure of run times, from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from gpatcher.report.page import Figure


def runtime_figure(records: Sequence[dict[str, Any]]) -> Figure:
    """Draw seconds over nodes, a line per patch size, both axes logarithmic.

    Parameters
    ----------
    records : with nodes, patch_size and seconds
    """
    plot = go.Figure()
    for size in sorted({record["patch_size"] for record in records}):
        line = sorted((r["nodes"], r["seconds"]) for r in records if r["patch_size"] == size)
        nodes, seconds = zip(*line, strict=True)
        plot.add_scatter(x=nodes, y=seconds, name=f"p = {size}", mode="lines+markers")
    plot.update_xaxes(title="nodes", type="log", dtick=1, exponentformat="power")
    plot.update_yaxes(title="seconds", type="log", dtick=1, exponentformat="power")
    caption = (
        "Forward pass of the mixer over the patches of all nodes; a slope of 1 is time in proportion to the nodes."
    )
    return Figure("Run time of the mixer", caption, plot, wide=True)
