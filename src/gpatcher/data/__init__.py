"""Where graphs come from: benchmark sets by name, generators, and tables of nodes and edges."""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpatcher.data.named import NAMED, canonical_key, load_dataset
from gpatcher.graph import Graph, InputError

if TYPE_CHECKING:
    from gpatcher.data.ondisk import open_graph, save_graph, store_tables
    from gpatcher.data.tables import read_tables

__all__ = ["load_dataset", "load_graph", "open_graph", "read_tables", "save_graph", "store_tables"]


def load_graph(source: str, root: str | Path | None = None) -> Graph:
    """Load a data set by its name, generate a graph from ``family:key=value,...``, or open a folder with a stored one.

    Parameters
    ----------
    source : the name of a data set such as ``Cora``, a generator with its arguments such as ``csbm:phi=-0.5,n=5000``,
        or the folder that `save_graph` wrote; where it is called like a data set, write ``./cora``
    root : the folder of the data sets; see `load_dataset`
    """
    from gpatcher.data.synthetic import GENERATORS, parse_source

    family = source.partition(":")[0].strip()
    if family in GENERATORS:
        return parse_source(source)
    if canonical_key(source) in NAMED:
        return load_dataset(source, root)
    if Path(source).is_dir():
        from gpatcher.data.ondisk import open_graph

        return open_graph(source)
    names = {key: known.name for key, known in NAMED.items()} | {family: family for family in GENERATORS}
    close = [names[match] for match in difflib.get_close_matches(canonical_key(family), names)]
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(
        f"{source!r} is neither a data set nor a generator nor a folder with a stored graph; {meant}"
        f"The data sets are: {', '.join(known.name for known in NAMED.values())}. "
        f"The generators, with arguments as in csbm:n=5000, are: {', '.join(GENERATORS)}"
    )


def __getattr__(name: str) -> Any:
    # pyarrow takes half a second to import, and few callers read tables
    if name == "read_tables":
        return import_module("gpatcher.data.tables").read_tables
    if name in ("open_graph", "save_graph", "store_tables"):
        return getattr(import_module("gpatcher.data.ondisk"), name)
    raise AttributeError(f"module 'gpatcher.data' has no attribute {name!r}")
