"""Options for reading tables, and counts of used, dropped and added rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from gpatcher.errors import InputError
from gpatcher.tables.database import Database, Reader

DEFAULT_LABEL = "label"
_CHOICES = {
    "on_unknown_id": ("error", "drop", "add"),
    "on_duplicate_id": ("error", "first"),
    "on_missing_id": ("error", "drop"),
    "on_rare_class": ("error", "keep", "unlabel"),
    "task": (None, "classification", "regression"),
}
_BY_TABLE = (
    "id",
    "label",
    "source",
    "target",
    "weight",
    "time",
    "edge_time",
)  # options with a column for each of several tables
_LISTS = ("features", "edge_features")
_TEXTS = ("delimiter", "split_column", "group", "name")
_MAPPINGS = ("columns", "ends")


@dataclass(frozen=True)
class TableOptions:
    """Which columns to read, and how to handle invalid rows.

    With several tables of nodes or edges, each with the name of a type, ``id``, ``label``, ``source``, ``target``,
    ``weight`` and ``time`` may be a mapping of these names to columns, and ``features``, ``edge_features`` and
    ``columns`` name a column as ``person.age``.

    Parameters
    ----------
    id : str
        Column of the nodes with unique ids: integers, text or another scalar dtype. Kept in ``Graph.node_ids``.
    label : str or None
        Column of the nodes with the class or the number to predict, empty where unknown; None for no labels.
    task : {"classification", "regression"}, optional
        What the labels are; by default numbers to predict if they are numbers with many values, see
        `gpatcher.tables.labels.read_labels`.
    source, target : str
        Columns of the edges with the ids of the two endpoints.
    weight : str, optional
        Column of the edges with positive weights; by default every edge has weight 1.
    features : sequence of str, optional
        Columns of the nodes that become features; by default all others.
    edge_features : sequence of str, optional
        Columns of the edges that become features of both end nodes; by default all others, if there is a table of
        nodes.
    columns : mapping of str to str
        Kind of a column, one of `gpatcher.tables.columns.KINDS`; by default inferred from its dtype and values.
    delimiter : str, optional
        Delimiter of text files; by default detected in the first line.
    directed : bool, optional
        Whether to keep the direction of the edges, or to make each row an edge in both directions. By default the
        direction is kept if it seems meaningful, see `gpatcher.tables.edges.points`.
    ends : mapping of str to pair of str, optional
        Node types of the sources and the targets of an edge type, ``{"uses": ("person", "device")}``; by default those
        whose ids match.
    on_unknown_id : {"error", "drop", "add"}
        For an edge to an id that is not in the nodes: raise an error, drop the edge or add the node.
    on_duplicate_id : {"error", "first"}
        For an id in several rows: raise an error or keep the first row.
    on_missing_id : {"error", "drop"}
        For a node without an id or an edge without an endpoint: raise an error or drop the row.
    on_rare_class : {"error", "keep", "unlabel"}
        For a class with one labelled node, if a random split is made: raise an error, keep the node for training, or
        treat it as unlabelled.
    split_column : str, optional
        Column of the nodes with train, validation or test.
    time : str, optional
        Column of the nodes with times: training nodes precede validation nodes, which precede test nodes.
    edge_time : str, optional
        Column of the edges with times, for ``cut``.
    cut : str or float, optional
        A date, or a fraction of the times: nodes and edges after it are not seen in training, and later nodes are
        predicted as unseen nodes. Needs ``time``, ``edge_time`` or both.
    group : str, optional
        Column of the nodes with groups: the nodes of a group are in the same part.
    folds : int, optional
        Number of splits for cross-validation; each labelled node is a test node in one of them.
    name : str, optional
        Name of the graph; by default that of the edge file.
    database : str, optional
        URL of a database, such as ``sqlite:///shop.db`` or ``postgresql://user@host/shop``, or path of an SQLite file.
        The tables are then names of database tables, or queries: ``"SELECT id, label FROM people"``.
    """

    id: Any = "id"
    label: Any = DEFAULT_LABEL
    task: str | None = None
    source: Any = "source"
    target: Any = "target"
    weight: Any = None
    features: Sequence[str] | None = None
    edge_features: Sequence[str] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    directed: bool | None = None
    ends: Mapping[str, Sequence[str]] = field(default_factory=dict)
    on_unknown_id: str = "error"
    on_duplicate_id: str = "error"
    on_missing_id: str = "error"
    on_rare_class: str = "error"
    split_column: str | None = None
    time: Any = None
    edge_time: Any = None
    cut: Any = None
    group: str | None = None
    folds: int | None = None
    name: str | None = None
    database: str | Database | None = None

    def __post_init__(self) -> None:
        if self.database is not None:
            object.__setattr__(self, "database", Database.parse(self.database))  # whose repr has no password
            if self.delimiter is not None:
                raise InputError(f"delimiter {self.delimiter!r} is of text files; leave it out with a database")
        for option, value in vars(self).items():
            if option in _TEXTS and not (value is None or isinstance(value, str)):
                raise InputError(f"{option} must be text, got {value!r}")
            if option in _MAPPINGS and not isinstance(value, Mapping):
                raise InputError(f"{option} must be a mapping of names, got {value!r}")
            if option in _BY_TABLE and not all(
                isinstance(name, str | None) for name in (value.values() if isinstance(value, Mapping) else [value])
            ):
                raise InputError(
                    f"{option} must be the name of a column, or a mapping of tables to such, got {value!r}"
                )
        for option, choices in _CHOICES.items():
            if getattr(self, option) not in choices:
                named = ", ".join(choice for choice in choices if choice is not None)
                raise InputError(f"{option} must be one of {named}, got {getattr(self, option)!r}")
        if self.source == self.target and isinstance(self.source, str):
            raise InputError(f"source and target are both column {self.source!r}; name the columns of both endpoints")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise InputError(f"delimiter must be one character such as , or ; got {self.delimiter!r}")
        ways = [name for name in ("split_column", "time", "folds") if getattr(self, name) is not None]
        ways += ["group"] if self.group is not None and ways != ["folds"] else []
        if len(ways) > 1:
            raise InputError(f"{' and '.join(ways)} are different ways to split; choose one (group goes with folds)")

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the options of a mapping; an unknown name raises an InputError with the closest ones."""
        names = [option.name for option in fields(cls)]
        for name in options:
            if name not in names:
                close = difflib.get_close_matches(name, names)
                hint = f"did you mean {' or '.join(close)}?" if close else f"the options are {', '.join(names)}"
                raise InputError(f"unknown option {name!r}; {hint}")
        made = cls(**options)
        # not checked for each of several tables, of which some have no times
        if made.cut is not None and made.time is None and made.edge_time is None:
            raise InputError(
                f"cut {made.cut!r} needs times; name the columns: time=... or edge_time=... (--time, --edge-time)"
            )
        if made.edge_time is not None and made.cut is None:
            raise InputError(f"edge_time {made.edge_time!r} is for a cut; say when with cut=... (--cut)")
        return made

    def of_table(self, name: str) -> Self:
        """Return the options of one of several tables."""
        changes: dict[str, Any] = {}
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in _BY_TABLE and isinstance(value, Mapping):
                default = None if option.name == "label" else option.default
                changes[option.name] = value.get(name, default)
            elif option.name in _LISTS and value is not None:
                changes[option.name] = [column.partition(".")[2] for column in value if column.startswith(f"{name}.")]
        changes["columns"] = {c.partition(".")[2]: k for c, k in self.columns.items() if c.startswith(f"{name}.")}
        return replace(self, **changes)

    def check_single(self) -> None:
        """Raise an InputError if an option is for several tables."""
        for option in (*_BY_TABLE, "ends"):
            value = getattr(self, option)
            if isinstance(value, Mapping) and (value or option != "ends"):
                raise InputError(
                    f"{option} is given by table ({', '.join(value)}), but there is one table of each kind; name the "
                    "tables: nodes={'person': ...}, edges={'knows': ...} (--nodes person=FILE)"
                )

    def check_tables(self, nodes: Sequence[str], edges: Sequence[str]) -> None:
        """Raise an InputError if an option names a table that does not exist; ``nodes`` is empty if it has no name."""
        places = dict.fromkeys(("id", "label", "time", "features", "columns"), nodes)
        places |= dict.fromkeys(("source", "target", "weight", "edge_time", "edge_features"), edges)
        for option, tables in places.items():
            value = getattr(self, option)
            named = list(value) if isinstance(value, Mapping) and option != "columns" else []
            if option in (*_LISTS, "columns") and tables:
                named = [column.partition(".")[0] for column in value or ()]
            for name in named:
                if name not in tables:
                    raise InputError(f"{option} names the table {name!r}; the tables are {', '.join(tables) or 'one'}")
        for name, ends in self.ends.items():
            if name not in edges or len(ends) != 2 or any(end not in nodes for end in ends):
                raise InputError(
                    f"ends are two tables of nodes for a table of edges, such as --ends {edges[0]}="
                    f"{','.join([*nodes, *nodes][:2])}; got {name}={','.join(ends)}"
                )

    @contextmanager
    def reading(self) -> Iterator[Reader | None]:
        """Yield the reader of the database, None without one."""
        if isinstance(self.database, Database):
            with self.database.reading() as reader:
                yield reader
        else:
            yield None

    @property
    def endpoints(self) -> list[str]:
        """The two id columns of a table of edges."""
        return [self.source, self.target]

    @property
    def edge_columns(self) -> dict[str, str]:
        """Columns of the edges that are read, by option: source, target and weight if there is one."""
        columns = {"source": self.source, "target": self.target}
        return columns if self.weight is None else {**columns, "weight": self.weight}

    @property
    def split_columns(self) -> dict[str, str]:
        """Columns of the nodes that define the split, by option."""
        columns = {name: getattr(self, name) for name in ("split_column", "time", "group")}
        return {option: column for option, column in columns.items() if column is not None}


@dataclass(frozen=True)
class Counts:
    """Numbers of rows that were used, dropped and added.

    nodes = node_rows - missing_ids - duplicate_ids + added; edges = edge_rows - missing_endpoints - unknown_ids -
    duplicate_edges.
    """

    node_rows: int = 0
    missing_ids: int = 0  # rows of nodes without an id
    duplicate_ids: int = 0  # rows of nodes with the id of an earlier one
    added: int = 0  # nodes that only occur in the edges
    edge_rows: int = 0
    missing_endpoints: int = 0  # rows of edges without an endpoint
    unknown_ids: int = 0  # rows of edges with an endpoint that is not a node
    duplicate_edges: int = 0  # rows of edges merged with an earlier one
