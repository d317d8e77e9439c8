"""One self-contained HTML page: plotly figures and tables in a frame that needs no network."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
import plotly.io
from plotly.offline import get_plotlyjs

from gpatcher.errors import InputError

# one palette for every figure: blue for what agrees or is low, orange for what disagrees or is high
BLUE, ORANGE, GREY, GREEN, PURPLE = "#2f6fb0", "#e07b39", "#8a94a0", "#3c9d6b", "#8b6bb1"
_LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 60, "r": 20, "t": 20, "b": 50},
    "height": 320,
    "colorway": [BLUE, ORANGE, GREEN, PURPLE, GREY],
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
}


@dataclass(frozen=True)
class Figure:
    """A titled plot with one sentence on how to read it."""

    title: str
    caption: str
    plot: go.Figure
    wide: bool = False

    def html(self) -> str:
        """Return the plot as a fragment; the page brings the library once."""
        self.plot.update_layout(
            **{**_LAYOUT, **({"height": self.plot.layout.height} if self.plot.layout.height else {})}
        )
        options = {"displaylogo": False, "responsive": True}
        return str(plotly.io.to_html(self.plot, full_html=False, include_plotlyjs=False, config=options))


@dataclass(frozen=True)
class Table:
    """A titled table; numbers come ready for reading."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Notes:
    """A titled list of sentences."""

    title: str
    lines: Sequence[str]
    wide: bool = False


@dataclass(frozen=True)
class Heading:
    """The start of a group of parts."""

    title: str
    caption: str = ""


@dataclass(frozen=True)
class Explorer:
    """Nodes to pick from, each with its patch; a little script draws the one that was picked."""

    title: str
    caption: str
    nodes: Sequence[dict[str, Any]]

    def json(self) -> str:
        """Return the nodes as JSON that no text in them can break out of."""
        return json.dumps(self.nodes, allow_nan=False).replace("<", "\\u003c")


Part = Figure | Table | Notes | Heading | Explorer


def write_page(path: str | Path, title: str, subtitle: str, parts: Sequence[Part]) -> Path:
    """Write the page, whole or not at all."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; make it first or choose another place for {path.name}")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpatcher.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.get_template("page.html").render(
        title=title, subtitle=subtitle, parts=[(type(p).__name__, p) for p in parts], plotly=get_plotlyjs()
    )
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path
