"""A cut in time: training sees what lies before it, and nodes that came later are unseen nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import BoolArray, FloatArray
from gpatcher.errors import InputError
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.result import Cut
from gpatcher.tables.typed import ONLY, edge_options, is_typed, name_tables
from gpatcher.tables.values import is_number, to_floats, to_seconds


@dataclass(frozen=True, eq=False)
class _Table:
    """A table that was read whole, with the time of each row."""

    source: TableSource
    content: pa.Table
    times: FloatArray | None
    is_date: bool

    @classmethod
    def read(cls, source: TableSource, column: str | None, written: list[str]) -> _Table:
        """Read a table; a time that is missing is an error."""
        columns = source.read(source.columns, written=[name for name in written if name in source.columns])
        content = pa.table(columns)
        if column is None:
            return cls(source, content, None, False)
        source.require({"time": column})
        values = columns[column]
        number = is_number(values.type)
        times = to_floats(values) if number else to_seconds(column, values, source.reject)
        fix = "fill them in: without a time, a row is neither before nor after the cut"
        source.reject(column, np.isnan(times), values, "are missing", fix)
        return cls(source, content, times, not number)

    def after(self, cut: float) -> BoolArray:
        """Return a mask of the rows after the cut."""
        return np.zeros(self.content.num_rows, bool) if self.times is None else self.times > cut

    def take(self, mask: BoolArray) -> TableSource:
        """Return some of the rows as a table."""
        return self.source.only(self.content, np.flatnonzero(mask))


def cut_tables(nodes: Any, edges: Any, options: TableOptions) -> tuple[Any, Any, Cut]:
    """Return the tables of nodes and edges before the cut, and what lies after it."""
    typed = is_typed(nodes, edges)
    node_tables, edge_tables = name_tables(nodes, edges) if typed else ({ONLY: nodes}, {"edges": edges})
    if nodes is None:
        raise InputError("cut needs a table of nodes; pass nodes (--nodes)")
    with options.reading() as reader:

        def opened(tables: Mapping[str, Any]) -> dict[str, TableSource]:
            return {name: TableSource.open(table, options.delimiter, name, reader) for name, table in tables.items()}

        node_sources, edge_sources = opened(node_tables), opened(edge_tables)
        node_times = _time_columns("time", options.time, node_sources)
        edge_times = _time_columns("edge_time", options.edge_time, edge_sources)
        own = {name: options.of_table(name) if isinstance(nodes, Mapping) else options for name in node_sources}
        parts = {
            name: _Table.read(source, node_times[name], [own[name].id, own[name].label or own[name].id])
            for name, source in node_sources.items()
        }
        ends_of = {name: edge_options(options, name, edge_sources) if typed else options for name in edge_sources}
        rows = {
            name: _Table.read(source, edge_times[name], ends_of[name].endpoints)
            for name, source in edge_sources.items()
        }
    for name, source in (*node_sources.items(), *edge_sources.items()):
        source.require({"id": own[name].id} if name in own else ends_of[name].edge_columns)
    at, shown = _moment(options.cut, list(parts.values()), list(rows.values()))
    later = {name: part.after(at) for name, part in parts.items()}
    later_ids = {name: _text(part.content.column(own[name].id)).filter(later[name]) for name, part in parts.items()}
    before, beyond, count = {}, {}, 0
    for name, table in rows.items():
        ends = options.ends.get(name) or ([*parts] * 2 if len(parts) == 1 else None)
        if ends is None:
            raise InputError(
                f"a cut needs to know which types the edges join; pass ends={{{name!r}: (..., ...)}} (--ends)"
            )
        joins_later = np.zeros(table.content.num_rows, bool)
        for column, end in zip(ends_of[name].endpoints, ends, strict=False):
            values = _text(table.content.column(column))
            joins_later |= pc.is_in(values, value_set=later_ids[end].combine_chunks()).to_numpy()
        left_out = table.after(at) | joins_later
        count += int(left_out.sum())
        before[name] = table.take(~left_out)
        if joins_later.any():
            beyond[name] = table.take(joins_later)
    for name, part in parts.items():
        if later[name].all():
            raise InputError(f"{part.source.path}: no row lies before the cut at {shown}; choose a later one (--cut)")
    newcomers = {name: part.take(later[name]) for name, part in parts.items() if later[name].any()}
    past = {name: part.take(~later[name]) for name, part in parts.items()}
    cut = Cut(
        shown,
        sum(len(mask) for mask in later.values()),
        int(sum(mask.sum() for mask in later.values())),
        sum(table.content.num_rows for table in rows.values()),
        count,
        (newcomers, beyond) if newcomers and beyond else None,
        next(((one.id, one.label) for n, one in own.items() if one.label in node_sources[n].columns), None),
    )
    named = isinstance(nodes, Mapping), isinstance(edges, Mapping)
    plain = (past if named[0] else past[ONLY]), (before if named[1] else before["edges"])
    return *plain, _unnamed(cut, *named)


def _unnamed(cut: Cut, nodes_named: bool, edges_named: bool) -> Cut:
    """Return the cut with later tables named as the tables are."""
    if cut.later is None:
        return cut
    nodes, edges = cut.later
    later = nodes if nodes_named else nodes[ONLY], edges if edges_named else edges["edges"]
    return replace(cut, later=later)


def _time_columns(option: str, value: Any, tables: Mapping[str, TableSource]) -> dict[str, str | None]:
    """Return the column with times of each table; one name for all is that of the tables that have it."""
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in tables]
        if unknown:
            raise InputError(f"{option} names the table {unknown[0]!r}; the tables are {', '.join(tables)}")
        return {name: value.get(name) for name in tables}
    if value is not None and not any(value in table.columns for table in tables.values()):
        next(iter(tables.values())).require({option: value})
    return {name: value if value in table.columns else None for name, table in tables.items()}


def _moment(cut: Any, nodes: list[_Table], edges: list[_Table]) -> tuple[float, str]:
    """Return the time of the cut, in the unit of the times, and as text."""
    timed = [table for table in (*nodes, *edges) if table.times is not None]
    if len({table.is_date for table in timed}) > 1:
        raise InputError("some times are dates and some are numbers; a cut needs all in one unit")
    dates = timed[0].is_date
    try:
        number = float(cut)
    except ValueError:
        number = np.nan
    if 0 < number < 1:
        first = [table.times for table in nodes if table.times is not None]
        of = first or [table.times for table in edges if table.times is not None]
        value = float(np.quantile(np.concatenate(of), number, method="lower"))
    elif not dates and np.isfinite(number):
        value = number
    elif dates:
        try:
            value = float(np.datetime64(str(cut), "us").astype(np.int64)) / 1e6
        except ValueError:
            raise InputError(f"cut must be a date such as 2024-06-30 or a fraction in (0, 1), got {cut!r}") from None
    else:
        raise InputError(f"cut must be a number, as the times are, or a fraction in (0, 1), got {cut!r}")
    if not np.isfinite(value):
        raise InputError(f"cut must be a date such as 2024-06-30 or a fraction in (0, 1), got {cut!r}")
    return value, str(np.datetime64(int(value), "s")).removesuffix("T00:00:00") if dates else f"{value:g}"


def _text(values: Any) -> Any:
    return values.cast(pa.large_string())
