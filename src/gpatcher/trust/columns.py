"""The columns of a node in their original values, decoded from the features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gpatcher.arrays import FloatArray
from gpatcher.tables.columns import (
    BooleanColumn,
    CategoryColumn,
    Column,
    DateColumn,
    DenseColumn,
    NumberColumn,
    TextColumn,
)
from gpatcher.tables.typed_encoder import Encoder, TypedEncoder

_DAY = 86_400
_WORDS = 5  # of a text, the most frequent ones of the vocabulary first


@dataclass(frozen=True)
class ColumnGroup:
    """Features that were encoded from one column."""

    name: str
    width: int
    show: Callable[[FloatArray], str]  # their value as text


def column_groups(encoder: Encoder | None, own: int, features: int) -> list[ColumnGroup]:
    """Return the groups of a model's features, in order.

    The first ``own`` features are those of the graph: encoded from columns, else a group each. The others are computed
    from the edges or from the whole row.
    """
    if encoder is None:
        groups = [ColumnGroup(f"feature {j}", 1, lambda values: f"{values[0]:.4g}") for j in range(own)]
    elif isinstance(encoder, TypedEncoder):
        blocks = [(name, group) for name, e in encoder.blocks.items() for group in column_groups(e, e.width, e.width)]
        groups = [replace(group, name=f"{name}.{group.name}") for name, group in blocks]
        kinds = list(encoder.blocks)
        groups.append(ColumnGroup("type", len(kinds), lambda values: kinds[int(values.argmax())]))
    else:
        # dense columns come first, then categories, then text
        order = sorted(encoder.encoders, key=lambda c: 0 if isinstance(c, DenseColumn) else 1 + (c.kind == "text"))
        of_edges = {name: kind for plan in encoder.edges for name, kind in plan.node_kinds().items()}
        names = [f"{c.column} (length)" if c.kind == "length" else c.column for c in order]
        shown = [partial(show_value, c, of_edges.get(c.column, "")) for c in order]
        groups = [ColumnGroup(name, c.width, show) for name, c, show in zip(names, order, shown, strict=True)]
    rest = features - sum(group.width for group in groups)
    return [*groups, *([ColumnGroup("made of its edges", rest, lambda _: "")] if rest else [])]


def show_value(column: Column, edge_kind: str, features: FloatArray) -> str:
    """Return the original value of a column as text: of a text the words that have a feature, of its length nothing.

    ``edge_kind`` is the kind of the edge column that was aggregated to this one; the mean of dates is shown as a date.
    """
    if isinstance(column, CategoryColumn):
        names = [*column.values, *["a rare value"] * bool(column.rare), *["missing"] * column.indicator]
        at = np.flatnonzero(features)
        return names[at[0]] if at.size else "not seen in training"
    if isinstance(column, TextColumn):
        words = [column.words[i] for i in np.flatnonzero(features)]
        return " ".join([*words[:_WORDS], *["…"] * (len(words) > _WORDS)])
    if not isinstance(column, DenseColumn) or column.kind == "length":
        return ""
    value: Any = float(features[0])
    if column.indicator and features[-1] == 1:
        return "missing"
    if isinstance(column, BooleanColumn):
        return {0.0: "false", 1.0: "true"}.get(value, "missing")
    if isinstance(column, DateColumn):
        unit = 60 if column.hours else _DAY  # single precision resolves minutes over a span of some years
        return _date(column.low + value * (column.high - column.low), unit)
    if isinstance(column, NumberColumn):
        value = column.original(value)
        if edge_kind == "date":
            return _date(value, 60 if column.high - column.low < 7 * _DAY else _DAY)
    return f"{value:.6g}"


def _date(seconds: float, unit: int) -> str:
    """Return seconds since 1970 as a date, with the time of day if the unit is shorter than a day."""
    rounded = np.datetime64(round(seconds / unit) * unit, "s")
    return str(rounded.astype("datetime64[D]" if unit == _DAY else "datetime64[m]"))
