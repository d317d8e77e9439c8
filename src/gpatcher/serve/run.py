"""A run as the service holds it: loaded once, read-only, shared by all workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, InputWarning, counted, some
from gpatcher.estimator.base import NodeModel
from gpatcher.estimator.ensemble import load_model
from gpatcher.estimator.folder import load_run_graph
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.runs.predict import Columns, id_columns, logit_columns, node_parts, prediction_columns
from gpatcher.serve.known import KnownLogits
from gpatcher.tables.options import TableOptions
from gpatcher.tables.typed_encoder import Encoder, TypedEncoder
from gpatcher.tables.unseen import example_id, known_positions, read_new_tables
from gpatcher.tables.values import first_line
from gpatcher.trust.lookup import find_node
from gpatcher.trust.words import sentences

Row = Mapping[str, Any]
_COLUMNS = ("id", "source", "target", "weight", "ends")  # options of tables that name columns


class UnknownNodeError(InputError):
    """A node is asked for that the graph does not have."""


@dataclass(frozen=True, eq=False)
class ServedRun:
    """A run with all that a request needs; build it with `open`.

    Parameters
    ----------
    graph : Graph
        The graph of training; memory-mapped where it came from tables.
    source : dict
        Where the graph came from: the names of the columns, among others.
    encoder : TableEncoder or None
        Makes features of the columns of unseen nodes.
    classifier : NodeModel
    known : KnownLogits
        Logits of all nodes of the graph, memory-mapped.
    parts : int array, shape (n,)
        Part of the split that each node is in.
    refusal : str or None
        Why unseen nodes cannot be predicted, None where they can.
    """

    graph: Graph
    source: dict[str, Any]
    encoder: Encoder | None
    classifier: NodeModel
    known: KnownLogits
    parts: IntArray
    refusal: str | None = None

    @classmethod
    def open(cls, folder: Path, shared: Path, root: Path | None = None) -> ServedRun:
        """Load a run; its nodes are predicted once, as by ``gpatcher predict``, see `KnownLogits`.

        Parameters
        ----------
        folder : Path
            The run; nothing is written into it.
        shared : Path
            A folder for the logits, the same for all workers.
        root : Path, optional
            Folder of the data sets.
        """
        graph, source, encoder = load_run_graph(folder, root)
        classifier = load_model(folder)
        known = KnownLogits(classifier, graph, shared)
        parts = node_parts(classifier.split_, np.arange(graph.n))
        run = cls(graph, source, encoder, classifier, known, parts)
        return cls(**vars(run) | {"refusal": run._try_unseen()})

    @property
    def classes(self) -> list[str]:
        """Names of the classes; none if numbers are predicted."""
        return self.classifier.class_names_

    @property
    def has_numbers(self) -> bool:
        """Whether the ids of the graph are integers."""
        types = self.graph.node_types
        if types is not None:
            return types.labelled in types.integer_ids
        return self.graph.node_ids is None or self.graph.node_ids.dtype.kind in "iu"

    def predict_known(self, ids: Sequence[Any], conformal: float | None = None) -> list[dict[str, Any]]:
        """Return the answer for nodes of the graph, in the order of their ids."""
        positions = known_positions(self.graph, _column("ids", "id", ids))
        unknown = np.flatnonzero(positions < 0)
        if unknown.size:
            raise self._unknown([ids[i] for i in unknown.tolist()])
        y = np.full(len(positions), -1) if self.graph.y is None else self.graph.y[positions]
        known = (self.known[positions], id_columns(self.graph, positions), y, self.parts[positions])
        return self._answers(logit_columns(self.classifier, *known, conformal))

    def predict_unseen(
        self, nodes: Sequence[Row], edges: Sequence[Row], conformal: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the answer for unseen nodes; see `gpatcher.tables.unseen.read_new_tables`."""
        if self.refusal is not None:
            raise InputError(self.refusal)
        return self._answers(prediction_columns(self.classifier, self._join(nodes, edges), conformal=conformal))

    def explain(self, name: str) -> dict[str, Any]:
        """Return why the node with this id got its class, as ``gpatcher explain --json`` does, and in words."""
        explanation = self.classifier.explain(self._position(name), self.graph, self.encoder)
        return {**explanation.to_dict(), "words": sentences(explanation)}

    def _answers(self, columns: Columns) -> list[dict[str, Any]]:
        """Return a row per node; a number in it is exactly that of the table."""
        lists = {name: values.tolist() for name, values in columns.items()}
        if not self.classes:
            lists |= {name: [_finite(v) for v in lists[name]] for name in ("low", "high") if name in lists}
            return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        chances = [lists[f"probability_{name}"] for name in self.classes]
        rows = []
        for i, one in enumerate(zip(*chances, strict=True)):
            row: dict[str, Any] = {name: lists[name][i] for name in ("id", "type", "predicted") if name in lists}
            row["probability"] = dict(zip(self.classes, one, strict=True))
            rows.append(
                row | {name: lists[name][i] for name in ("confidence", "label", "part", "set") if name in lists}
            )
        return rows

    def _join(self, nodes: Sequence[Row], edges: Sequence[Row]) -> UnseenNodes:
        if self.graph.relations:
            tables: tuple[Any, Any] = (
                _by_type("nodes", nodes) if self.graph.node_types else _table("nodes", nodes, []),
                _by_type("edges", edges),
            )
        else:
            ends = [self.source.get(name) or name for name in ("source", "target")]
            tables = _table("nodes", nodes, [self.source.get("id") or "id"]), _table("edges", edges, ends)
        try:
            options = {**self.source, "database": None}  # that the graph came from; these tables do not
            ids, x, edge_index, weights = read_new_tables(self.graph, *tables, self.encoder, options)
        except pa.ArrowException as error:
            raise InputError(f"the values cannot be read as tables: {first_line(error)}") from None
        return UnseenNodes.join(self.graph, edge_index, x, len(ids), weights=weights, node_ids=ids)

    def _position(self, name: str) -> int:
        """Return the node whose id, as text, is ``name``; of several types, also type:id."""
        value: Any = name
        if self.graph.node_types is not None:
            try:
                return find_node(self.graph, name)
            except InputError:
                raise self._unknown([name]) from None
        if self.has_numbers:
            whole = name.removeprefix("-")
            value = int(name) if whole.isdecimal() and len(whole) < 19 and str(int(name)) == name else None
        dtype = np.int64 if self.has_numbers else object
        position = -1 if value is None else int(self.graph.positions(np.array([value], dtype))[0])
        if position < 0:
            raise self._unknown([name])
        return position

    def _unknown(self, names: list[Any]) -> UnknownNodeError:
        ids = self.graph.node_ids
        first = 0 if ids is None else ids[:1].tolist()[0]
        return UnknownNodeError(
            f"{self.graph.name} has no node with the {'id' if len(names) == 1 else 'ids'} {some(map(repr, names))}; "
            f"an id of its {counted(self.graph.n, 'node')} is {first!r}"
        )

    def _try_unseen(self) -> str | None:
        """Predict an empty unseen node, which compiles and caches all that is needed; return why it is refused."""
        known = {name: self.source[name] for name in _COLUMNS if self.source.get(name)}
        options, types, ids = TableOptions(**known, label=None), self.graph.node_types, self.graph.node_ids
        kind, encoder = "" if types is None else types.labelled, self.encoder
        if types is not None:
            ids = types.ids(np.asarray(ids)[types.nodes()])
        if isinstance(encoder, TypedEncoder):
            encoder = encoder.blocks[kind]
        new: Any = "unseen"
        if self.has_numbers:
            new = self.graph.n if ids is None else int(ids.max()) + 1
        node = {(options.of_table(kind) if kind else options).id: new}
        if encoder is not None:
            node |= dict.fromkeys(name for name in encoder.columns if name not in node)
        elif self.graph.x is not None:
            node |= {f"feature {j}": 0.0 for j in range(self.graph.num_features)}
        # an edge to itself, or to a node of another type
        ends = {name: options.ends.get(name, (kind, kind)) for name in self.graph.relations or ("",)}
        name = next((name for name in ends if kind in ends[name]), next(iter(ends)))
        own = options.of_table(name) if name else options
        plans = () if self.encoder is None else self.encoder.edges
        edge: dict[str, Any] = dict.fromkeys(c for plan in plans if plan.name == name for c in plan.edge_names)
        for column, end in zip(own.endpoints, ends[name], strict=True):
            edge[column] = new if end == kind else example_id(self.graph, end)[0].as_py()
        edge |= ({own.weight: 1.0} if own.weight else {}) | ({"type": name} if name else {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            try:
                self.predict_unseen([node | ({"type": kind} if kind else {})], [edge])
            except InputError as error:
                return str(error)
        return None


def with_notes(work: Callable[..., Any], *arguments: Any) -> tuple[Any, list[str]]:
    """Return a result and the warnings about the input, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        result = work(*arguments)
    notes = [str(warning.message) for warning in caught if issubclass(warning.category, InputWarning)]
    return result, list(dict.fromkeys(notes))


def _finite(value: float) -> float | None:
    """Return a number, or null for the end of an infinite interval."""
    return value if np.isfinite(value) else None


def _table(name: str, rows: Sequence[Row], columns: Sequence[str]) -> pa.Table:
    """Return objects of JSON as a table; a key that a row lacks is missing there, as is null."""
    names = dict.fromkeys(key for row in rows for key in row) if rows else dict.fromkeys(columns)
    return pa.table({key: _column(name, key, [row.get(key) for row in rows]) for key in names})


def _by_type(name: str, rows: Sequence[Row]) -> dict[str, pa.Table]:
    """Return a table for each type that the rows have under the key ``type``."""
    for row in rows:
        if not isinstance(row.get("type"), str):
            raise InputError(f"{name}: each row needs its type, such as {{'type': 'person'}}, got {dict(row)!r:.200}")
    return {
        kind: _table(kind, [{k: v for k, v in row.items() if k != "type"} for row in rows if row["type"] == kind], [])
        for kind in dict.fromkeys(row["type"] for row in rows)
    }


def _column(table: str, column: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise InputError(
            f"{table}: the values of column {column!r} cannot be read as one type ({first_line(error)}); write all of "
            "them as numbers, or all as text"
        ) from None
