"""A self-contained HTML page of plotly figures and tables that needs no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
import plotly.io
from plotly.offline import get_plotlyjs

from gpatcher.errors import InputError
from gpatcher.io import write_text
from gpatcher.trust.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, class_colour

_LAYOUT: dict[str, Any] = {
    "template": "none",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 50, "r": 16, "t": 20, "b": 40},
    "height": 320,
    # the script of the page sets the colours of text and grid, for light and for dark
    "paper_bgcolor": "rgba(0, 0, 0, 0)",
    "plot_bgcolor": "rgba(0, 0, 0, 0)",
    "colorway": [BLUE, ORANGE, GREEN, PURPLE, GREY],
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
}
# by default plotly offers a button that uploads the figure to its cloud
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["sendDataToCloud", "sendChartToCloud"],
}
_STACKED_COLUMNS = 8  # a table of up to so many columns becomes a list of rows on a narrow screen


@dataclass(frozen=True)
class Figure:
    """A plot with a title and a sentence on how to read it; the page sets its fonts, margins and colours."""

    title: str
    caption: str
    plot: go.Figure
    wide: bool = False  # spans both columns of the page

    def html(self, name: str) -> str:
        """Return the plot as an HTML fragment with this id, without the library."""
        height = self.plot.layout.height or _LAYOUT["height"]
        self.plot.update_layout(**_LAYOUT | {"height": height})
        self.plot.update_xaxes(automargin=True)
        self.plot.update_yaxes(automargin=True, title_standoff=8)  # without a distance a title may cover the ticks
        # by default the id is random, and two pages of the same data would differ
        return str(plotly.io.to_html(self.plot, full_html=False, include_plotlyjs=False, config=_CONFIG, div_id=name))


@dataclass(frozen=True)
class Table:
    """A table with a title; its cells are formatted text, the first of a row names it."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def style(self) -> str:
        """How it is laid out: rows become lists on a narrow screen, or many columns stand close together."""
        return "stacked" if len(self.columns) <= _STACKED_COLUMNS else "dense" if len(self.columns) > 10 else ""


@dataclass(frozen=True)
class Notes:
    """A list of sentences with a title."""

    title: str
    lines: Sequence[str]
    wide: bool = False


@dataclass(frozen=True)
class Heading:
    """The heading of a group of parts."""

    title: str
    caption: str = ""


@dataclass(frozen=True)
class Explorer:
    """A list of nodes; a script draws the patch of the selected one."""

    title: str
    caption: str
    nodes: Sequence[dict[str, Any]]  # of `Explanation.to_dict`; each member also has coordinates x and y
    classes: Sequence[str]  # of the graph, in their order, which gives their colours; none in a regression

    def json(self) -> str:
        """Return nodes and colours as JSON in which no text can close the script element.

        Colours are those of the classes, or of contributions that raise and lower a number.
        """
        names = self.classes or ("raises", "lowers")
        content = {
            "nodes": self.nodes,
            "numbers": not self.classes,
            "colours": {name: class_colour(position) for position, name in enumerate(names)},
        }
        return json.dumps(content, allow_nan=False).replace("<", "\\u003c")


Part = Figure | Table | Notes | Heading | Explorer


def write_page(path: str | Path, title: str, subtitle: str, parts: Sequence[Part]) -> Path:
    """Write a page whole or not at all, and return its path; equal parts give equal bytes."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; create it or choose another folder for {path.name}")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpatcher.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.get_template("page.html").render(
        title=title,
        subtitle=subtitle,
        parts=[(type(p).__name__, p) for p in _fill_rows(parts)],
        plotly=get_plotlyjs(),
    )
    write_text(path, text)
    return path


def _fill_rows(parts: Sequence[Part]) -> list[Part]:
    """Widen each figure that would be alone in a row of the two columns."""

    def is_wide(part: Part | None) -> bool:
        return part is None or getattr(part, "wide", True)

    filled: list[Part] = []
    column = 0
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        if isinstance(part, Figure) and column == 0 and is_wide(following):
            part = replace(part, wide=True)
        column = 0 if is_wide(part) else 1 - column
        filled.append(part)
    return filled
