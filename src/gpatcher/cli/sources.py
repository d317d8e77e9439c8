"""Where a command's graph comes from: a name, a generator, a stored folder, tables, or the folder of a run."""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpatcher.cli.console import option, step, warnings_as_notes
from gpatcher.errors import InputError

if TYPE_CHECKING:
    from gpatcher.estimator.base import NodeModel
    from gpatcher.graph.graph import Graph
    from gpatcher.graph.unseen import UnseenNodes
    from gpatcher.tables.result import Tables
    from gpatcher.tables.typed_encoder import Encoder

_data = partial(option, panel="Data")
SOURCE_HELP = (
    "A data set ('gpatcher datasets' lists them), a generator such as csbm:phi=-0.5,n=5000 or rmat:n=300000,m=3000000, "
    "or a folder that 'gpatcher store' wrote."
)
LABEL_TYPE = "label_type"  # in the source that a model keeps: the dtype of labels that are not text
_NO_NAMES = ("edge", "edges", "links")  # of files, which are then called by their folder
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that 'gpatcher fit' wrote.")]
Root = Annotated[Path | None, _data("FOLDER", "Folder of the data sets. Default: $GPATCHER_DATA, else a cache folder.")]
DATABASE_HELP = (
    "Database of --nodes and --edges, which are then names of tables or SELECTs: sqlite:///file.db or "
    "postgresql://user@host/name. The password comes from PGPASSWORD or ~/.pgpass."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def graph_source(
    source: Annotated[str | None, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)] = None,
    nodes: Annotated[
        list[str] | None,
        _data(
            "TABLE",
            "Table of nodes: CSV, Parquet or a folder of Parquet files; id, label, features. Several, by type: "
            "person=people.csv, repeated.",
        ),
    ] = None,
    edges: Annotated[
        list[str] | None,
        _data("TABLE", "Table of edges: a source and a target. Several, by type: uses=uses.csv, repeated."),
    ] = None,
    database: Annotated[str | None, _data("URL", DATABASE_HELP)] = None,
    id_column: Annotated[str, _data("COLUMN", "Column of --nodes with the id.", "--id")] = "id",
    label: Annotated[
        str, _data("COLUMN", "Column of --nodes with the class or the number to predict, empty where unknown.")
    ] = "label",
    task: Annotated[
        str | None,
        _data("NAME", "classification or regression. Default: regression if the labels are many different numbers."),
    ] = None,
    source_column: Annotated[str, _data("COLUMN", "Column of --edges with the source.", "--source")] = "source",
    target_column: Annotated[str, _data("COLUMN", "Column of --edges with the target.", "--target")] = "target",
    weight: Annotated[str | None, _data("COLUMN", "Column of --edges with a positive weight.")] = None,
    features: Annotated[
        str | None, _data("COLUMNS", "Columns of --nodes to learn from: a,b,c. Default: all others.")
    ] = None,
    edge_features: Annotated[
        str | None, _data("COLUMNS", "Columns of --edges that become features of both endpoints. Default: all others.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        _data(
            "COLUMN=KIND",
            "Kinds of columns, e.g. age=number,zip=category: number, raw, boolean, category, code, date, text, length "
            "or ignore. Default: inferred from type and values.",
            "--column",
        ),
    ] = None,
    ends: Annotated[
        list[str] | None,
        _data(
            "EDGES=NODES,NODES",
            "Types that a table of edges joins, e.g. uses=person,device. Default: those whose ids match, printed.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None, _data("CHARACTER", "Delimiter of CSV files. Default: from the first line.", hidden=True)
    ] = None,
    directed: Annotated[
        bool | None,
        _data(
            None,
            "Whether the direction of edges counts. Default: inferred from the edges, and printed.",
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
    """Describe where a graph comes from; `kept_source` returns what a saved model can keep of it."""
    policies = {"on_unknown_id": on_unknown_id, "on_duplicate_id": on_duplicate_id, "on_missing_id": on_missing_id}
    if source is not None and (nodes or edges):
        raise InputError(f"give either the source {source!r} or tables with --nodes and --edges, not both")
    if source is not None:
        table_options = {
            "--database": database is not None,
            "--id": id_column != "id",
            "--label": label != "label",
            "--task": task is not None,
            "--source": source_column != "source",
            "--target": target_column != "target",
            "--weight": weight is not None,
            "--features": features is not None,
            "--edge-features": edge_features is not None,
            "--column": bool(columns),
            "--ends": bool(ends),
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
    if not edges:
        raise InputError("give a source, e.g. 'texas', or tables with --nodes and --edges")
    places = table_places(nodes, edges, database)
    of_nodes, of_edges = ([*places[kind]] if isinstance(places[kind], dict) else [] for kind in ("nodes", "edges"))
    return {
        **places,
        "id": by_table(id_column, of_nodes),
        "label": by_table(label, of_nodes),
        "task": task,
        "source": by_table(source_column, of_edges),
        "target": by_table(target_column, of_edges),
        "weight": None if weight is None else by_table(weight, of_edges),
        "ends": dict(_split_ends(text) for text in ends or ()),
        "features": None if features is None else _split_list(features),
        "edge_features": None if edge_features is None else _split_list(edge_features),
        "columns": dict(_split_pair(part) for part in _split_list(",".join(columns or ()))),
        "directed": directed,
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        **policies,
    }


def table_places(nodes: list[str] | None, edges: list[str] | None, database: str | None) -> dict[str, Any]:
    """Return where tables are: absolute paths of files, or names and queries with the database that has them.

    Tables that are given by type, NAME=TABLE, are a dict.
    """
    from gpatcher.tables.database import Database, is_query

    tables = {kind: _by_type(kind, texts or []) for kind, texts in (("nodes", nodes), ("edges", edges))}
    if database is not None:
        return {**tables, "database": Database.parse(database)}

    def path(kind: str, table: str) -> str:
        if is_query(table) and not Path(table).exists():
            raise InputError(f"--{kind} {table!r} is a query; say of which database with --database URL")
        return str(Path(table).absolute())

    return {
        kind: {name: path(kind, table) for name, table in places.items()}
        if isinstance(places, dict)
        else None
        if places is None
        else path(kind, places)
        for kind, places in tables.items()
    }


def _by_type(kind: str, texts: list[str]) -> Any:
    """Return the only table, or the tables by type, or None."""
    if not texts:
        return None
    named = [(m[1], m[2]) for text in texts if (m := re.match(r"([^\W\d][\w-]*)=(.+)", text, re.DOTALL))]
    if not named and len(texts) == 1:
        return texts[0]
    if len(named) < len(texts):
        raise InputError(
            f"--{kind}: several tables need a type each, such as --{kind} person=people.csv; got {texts!r}"
        )
    tables = dict(named)
    if len(tables) < len(texts):
        raise InputError(f"--{kind}: two tables have the same type in {texts!r}; give each its own")
    return tables


def by_table(text: str, tables: list[str]) -> Any:
    """Return the column of an option; with several tables, a dict from text such as person=pid,device=did."""
    pairs = [part.partition("=") for part in _split_list(text)]
    if tables and all(equals and name in tables for name, equals, _ in pairs):
        return {name: column for name, _, column in pairs}
    return text


def _split_ends(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, ends = text.partition("=")
    if len(ends.split(",")) != 2:
        raise InputError(f"--ends takes EDGES=NODES,NODES, e.g. uses=person,device, got {text!r}")
    return name, tuple(ends.split(","))


def kept_source(source: dict[str, Any]) -> dict[str, Any]:
    """Return where a graph came from as JSON values, the URL of a database without the password."""
    return source | ({"database": str(source["database"])} if "database" in source else {})


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
        tables = load_tables(**{name: value for name, value in source.items() if name != LABEL_TYPE})
        edges = Path(str(source["edges"]))
        if isinstance(source["edges"], dict):
            folders = {Path(table).parent.name for table in source["edges"].values()}
            if source.get("database") is None and len(folders) == 1 and folders != {""}:
                tables = replace(tables, graph=replace(tables.graph, name=folders.pop()))
        elif source.get("database") is None and edges.stem.lower() in _NO_NAMES and edges.parent.name:
            tables = replace(tables, graph=replace(tables.graph, name=edges.parent.name))
        return tables if seed is None else tables.with_split(seed=seed)


def read_unseen(graph: Graph, places: dict[str, Any], source: dict[str, Any], encoder: Encoder | None) -> UnseenNodes:
    """Read tables of unseen nodes and their edges, see `table_places`, in the columns that the graph was read from."""
    from gpatcher.graph.unseen import UnseenNodes
    from gpatcher.tables.unseen import read_new_tables

    options = {**source, "database": places.get("database")}
    ids, x, edge_index, weights = read_new_tables(graph, places["nodes"], places["edges"], encoder, options)
    return UnseenNodes.join(graph, edge_index, x, len(ids), weights=weights, node_ids=ids)


def load_run_graph(folder: Path, root: Path | None) -> tuple[Graph, dict[str, Any], Encoder | None]:
    """Load the graph of a run; see `gpatcher.estimator.folder.load_run_graph`."""
    from gpatcher.estimator.folder import load_run_graph

    with warnings_as_notes():
        return load_run_graph(folder, root)


def load_run_model(folder: Path, graph: Graph | None = None, patches: Path | None = None) -> NodeModel:
    """Load the model that `gpatcher fit` wrote into a folder, and prepare the graph that it was trained on."""
    with step("loading the model"):
        from gpatcher.estimator.ensemble import load_model

        return load_model(folder, graph, patches)
