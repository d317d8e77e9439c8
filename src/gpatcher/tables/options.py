"""How tables are read: which columns mean what, and what to do with rows that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpatcher.errors import InputError

DEFAULT_LABEL = "label"


_CHOICES = {
    "on_unknown_id": ("error", "drop", "add"),
    "on_duplicate_id": ("error", "first"),
    "on_missing_id": ("error", "drop"),
    "on_rare_class": ("error", "keep", "unlabel"),
}


@dataclass(frozen=True)
class TableOptions:
    """Which columns mean what, and what to do with rows that cannot be used as they are.

    Parameters
    ----------
    id : column of the nodes with integers, text or what else, each value once; kept in ``node_ids``
    label : column of the nodes with the class, empty where unknown; None for no labels
    source, target : columns of the edges with the ids of the two ends
    weight : column of the edges with positive numbers; by default every edge counts as 1
    features : columns of the nodes that become features; by default all others
    columns : kind of a column where it is not to be found by its type; see `gpatcher.tables.columns.KINDS`
    delimiter : what separates the fields of a text file; by default found in its first line
    directed : keep the direction of the edges; by default each row is an edge in both directions
    on_unknown_id : edge to an id that is not in the nodes: ``error``, ``drop`` the edge or ``add`` the node
    on_duplicate_id : id in several rows: ``error`` or keep the ``first`` row
    on_missing_id : row without an id, edge without an end: ``error`` or ``drop`` it
    on_rare_class : class with one labelled node, where a split is to be made: ``error``, ``keep`` or ``unlabel``
    split_column : column of the nodes with train, validation or test
    time : column of the nodes by which train comes before validation and validation before test
    group : column of the nodes whose values are never in two parts
    folds : make so many splits, each labelled node being in the test part of one
    name : what to call the graph; by default the name of the edges' file
    """

    id: str = "id"
    label: str | None = DEFAULT_LABEL
    source: str = "source"
    target: str = "target"
    weight: str | None = None
    features: Sequence[str] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    directed: bool = False
    on_unknown_id: str = "error"
    on_duplicate_id: str = "error"
    on_missing_id: str = "error"
    on_rare_class: str = "error"
    split_column: str | None = None
    time: str | None = None
    group: str | None = None
    folds: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for option, known in _CHOICES.items():
            if getattr(self, option) not in known:
                raise InputError(f"{option} must be one of {', '.join(known)}, got {getattr(self, option)!r}")
        if self.source == self.target:
            raise InputError(f"source and target are both column {self.source!r}; name the columns of the two ends")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise InputError(f"delimiter must be one character such as , or ; got {self.delimiter!r}")
        ways = [name for name in ("split_column", "time", "folds") if getattr(self, name) is not None]
        ways += ["group"] if self.group is not None and ways != ["folds"] else []
        if len(ways) > 1:
            raise InputError(f"{' and '.join(ways)} are different ways to split; choose one (group goes with folds)")

    @property
    def roles(self) -> dict[str, str]:
        """Columns of the nodes that say how to split, by their option."""
        given = {name: getattr(self, name) for name in ("split_column", "time", "group")}
        return {option: column for option, column in given.items() if column is not None}


@dataclass(frozen=True)
class Counts:
    """What became of every row.

    nodes = node_rows - doubled - nameless + added; edges = edge_rows - endless - unknown - repeated.
    """

    node_rows: int
    doubled: int
    nameless: int
    added: int
    edge_rows: int
    endless: int
    unknown: int
    repeated: int
