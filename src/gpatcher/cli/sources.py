"""Where a command's graph comes from: a name, a generator, a stored folder, tables, or the folder of a run."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpatcher.cli.console import option, step, warnings_as_notes
from gpatcher.errors import InputError

if TYPE_CHECKING:
    from gpatcher.estimator.base import NodeClassifier
    from gpatcher.graph.graph import Graph
    from gpatcher.graph.unseen import UnseenNodes
    from gpatcher.tables.load import Tables

_data = partial(option, panel="Data")
SOURCE_HELP = (
    "A data set ('gpatcher datasets' lists them), a generator such as csbm:phi=-0.5,n=5000 or rmat:n=300000,m=3000000, "
    "or a folder that 'gpatcher store' wrote."
)
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that 'gpatcher fit' wrote.")]
Root = Annotated[Path | None, _data("FOLDER", "Folder of the data sets. Default: $GPATCHER_DATA, else a cache folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def graph_source(
    source: Annotated[str | None, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)] = None,
    nodes: Annotated[
        Path | None, _data("FILE", "Table of nodes: CSV, Parquet or a folder of Parquet files; id, label, features.")
    ] = None,
    edges: Annotated[Path | None, _data("FILE", "Table of edges: a source and a target.")] = None,
    id_column: Annotated[str, _data("COLUMN", "Column of --nodes with the id.", "--id")] = "id",
    label: Annotated[str, _data("COLUMN", "Column of --nodes with the class, empty where unknown.")] = "label",
    source_column: Annotated[str, _data("COLUMN", "Column of --edges with the source.", "--source")] = "source",
    target_column: Annotated[str, _data("COLUMN", "Column of --edges with the target.", "--target")] = "target",
    weight: Annotated[str | None, _data("COLUMN", "Column of --edges with a positive weight.")] = None,
    features: Annotated[
        str | None, _data("COLUMNS", "Columns of --nodes to learn from: a,b,c. Default: all others.")
    ] = None,
    edge_features: Annotated[
        str | None, _data("COLUMNS", "Columns of --edges that become features of both ends. Default: all others.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        _data(
            "COLUMN=KIND",
            "Kind of a column, e.g. age=number,zip=category; number, raw, boolean, category, code, date, text, length "
            "or ignore. Default: by its type and values.",
            "--column",
        ),
    ] = None,
    delimiter: Annotated[
        str | None, _data("CHARACTER", "Delimiter of CSV files. Default: from the first line.", hidden=True)
    ] = None,
    directed: Annotated[
        bool | None,
        _data(
            None,
            "Whether the direction of edges counts. Default: where some, but not all, are given in both.",
            "--directed/--undirected",
        ),
    ] = None,
    on_unknown_id: Annotated[
        str, _data("POLICY", "Edges to an id that is not in --nodes: error, drop or add.", hidden=True)
    ] = "error",
    on_duplicate_id: Annotated[str, _data("POLICY", "Ids in several rows: error, or first.", hidden=True)] = "error",
    on_missing_id: Annotated[
        str, _data("POLICY", "Rows without an id, edges without an endpoint: error or drop.", hidden=True)
    ] = "error",
) -> dict[str, Any]:
    """Describe where a graph comes from, in a form that a saved model can keep."""
    policies = {"on_unknown_id": on_unknown_id, "on_duplicate_id": on_duplicate_id, "on_missing_id": on_missing_id}
    if source is not None and (nodes is not None or edges is not None):
        raise InputError(f"give either the source {source!r} or tables with --nodes and --edges, not both")
    if source is not None:
        table_options = {
            "--id": id_column != "id",
            "--label": label != "label",
            "--source": source_column != "source",
            "--target": target_column != "target",
            "--weight": weight is not None,
            "--features": features is not None,
            "--edge-features": edge_features is not None,
            "--column": bool(columns),
            "--delimiter": delimiter is not None,
            "--directed": directed is not None,
            **{f"--{name.replace('_', '-')}": policy != "error" for name, policy in policies.items()},
        }
        if any(table_options.values()):
            names = ", ".join(name for name, passed in table_options.items() if passed)
            raise InputError(f"{names} describe tables; {source!r} is not a table: leave them out, or pass --edges")
        # a folder is recorded by its path; one with the name of a data set is not meant
        stored = (Path(source) / "graph.json").is_file() and not _is_dataset(source)
        return {"name": str(Path(source).absolute()) if stored else source}
    if edges is None:
        raise InputError("give a source, e.g. 'texas', or tables with --nodes and --edges")
    return {
        "nodes": None if nodes is None else str(nodes.absolute()),
        "edges": str(edges.absolute()),
        "id": id_column,
        "label": label,
        "source": source_column,
        "target": target_column,
        "weight": weight,
        "features": None if features is None else _split_list(features),
        "edge_features": None if edge_features is None else _split_list(edge_features),
        "columns": dict(_split_pair(part) for part in _split_list(",".join(columns or ()))),
        "directed": directed,
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        **policies,
    }


def takes_graph(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument SOURCE and the options of tables; it gets `graph_source` as its first argument."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = list(inspect.signature(graph_source, eval_str=True).parameters.values())

    def run(**values: Any) -> None:
        source = graph_source(**{p.name: values.pop(p.name) for p in shared})
        command(source, **values)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*shared, *own)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _split_list(text: str) -> list[str]:
    return next(csv.reader([text]), [])


def _split_pair(text: str) -> tuple[str, str]:
    column, equals, kind = text.rpartition("=")
    if not equals:
        raise InputError(f"--column takes COLUMN=KIND, e.g. age=number, got {text!r}")
    return column, kind.strip()


def _is_dataset(source: str) -> bool:
    from gpatcher.datasets.registry import NAMED, canonical_key

    return canonical_key(source) in NAMED


def load_source(source: dict[str, Any], root: Path | None) -> Graph:
    """Load the graph; warnings about the input become notes."""
    from gpatcher.datasets.load import load_graph

    with warnings_as_notes():
        if source.get("name") is not None:
            return load_graph(str(source["name"]), root)
    return load_source_tables(source).graph


def load_source_tables(source: dict[str, Any], seed: int | None = None) -> Tables:
    """Load the tables; with a seed, the labelled nodes are split too."""
    from gpatcher.tables.load import load_tables

    with warnings_as_notes():
        tables = load_tables(**source)
        return tables if seed is None else tables.with_split(seed=seed)


def read_unseen(graph: Graph, nodes: Path, edges: Path, folder: Path, source: dict[str, Any]) -> UnseenNodes:
    """Read tables of unseen nodes and their edges, in the columns that the graph was read from."""
    from gpatcher.estimator.folder import open_tables
    from gpatcher.graph.unseen import UnseenNodes
    from gpatcher.tables.unseen import read_new_tables

    kept = open_tables(folder)
    ids, x, edge_index, weights = read_new_tables(graph, nodes, edges, None if kept is None else kept[1], source)
    return UnseenNodes.join(graph, edge_index, x, len(ids), weights=weights, node_ids=ids)


def load_run_graph(folder: Path, root: Path | None) -> tuple[Graph, dict[str, Any]]:
    """Load the graph that a saved model was trained on; return it and where it came from."""
    from gpatcher.estimator.folder import load_run_graph

    with warnings_as_notes():
        return load_run_graph(folder, root)


def load_run_model(folder: Path, graph: Graph, patches: Path | None = None) -> NodeClassifier:
    """Load the model that `gpatcher fit` wrote into a folder; ``graph`` is the one it was trained on."""
    with step("loading the model"):
        from gpatcher.estimator.ensemble import load_model

        return load_model(folder, graph, patches)
