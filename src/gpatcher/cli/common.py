"""What the commands share: options, where a graph comes from, how to print."""

from __future__ import annotations

import csv
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from gpatcher.estimator.classifier import GPatcherClassifier
    from gpatcher.graph.graph import Graph
    from gpatcher.graph.unseen import UnseenNodes
    from gpatcher.tables.load import Tables

SOURCE_HELP = (
    "A data set ('gpatcher datasets' lists them), a generator: csbm:phi=-0.5,n=5000, board, colouring, "
    "rmat:n=300000,m=3000000,seed=3, or a folder that 'gpatcher store' wrote."
)
RunFolder = Annotated[Path, typer.Argument(help="The folder that 'gpatcher fit' wrote.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder of the data sets. Default: $GPATCHER_DATA, else a cache folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
SourceArgument = Annotated[str | None, typer.Argument(help=SOURCE_HELP)]
Nodes = Annotated[
    Path | None,
    typer.Option(help="Table of nodes: CSV, Parquet or a folder of Parquet files; an id, a label, features."),
]
Edges = Annotated[Path | None, typer.Option(help="Table of edges, likewise: a source, a target.")]
IdColumn = Annotated[str, typer.Option("--id", help="Column of --nodes with the id.")]
Label = Annotated[str, typer.Option(help="Column of --nodes with the class, empty where unknown.")]
SourceColumn = Annotated[str, typer.Option("--source", help="Column of --edges with one end.")]
TargetColumn = Annotated[str, typer.Option("--target", help="Column of --edges with the other end.")]
Weight = Annotated[str | None, typer.Option(help="Column of --edges with a positive weight.")]
Features = Annotated[str | None, typer.Option(help="Columns of --nodes to learn from: a,b,c. Default: all others.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Kind of a column, e.g. age=number,zip=category; number, raw, boolean, category, date, text or ignore. "
        "Default: by its type.",
    ),
]
Delimiter = Annotated[
    str | None, typer.Option(help="What separates the fields of a CSV file. Default: found in its first line.")
]
OnUnknownId = Annotated[
    str, typer.Option(help="Edges to an id that is not in --nodes: error, drop the edge or add the node.")
]
OnDuplicateId = Annotated[str, typer.Option(help="Ids in several rows: error, or the first row counts.")]
OnMissingId = Annotated[str, typer.Option(help="Rows without an id or edges without an end: error or drop.")]


def takes_graph(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument SOURCE and all options of tables; it gets them as its first argument, ``origin``."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = list(inspect.signature(graph_origin, eval_str=True).parameters.values())

    def run(**given: Any) -> None:
        origin = graph_origin(**{p.name: given.pop(p.name) for p in shared})
        command(origin, **given)

    # the argument and the command's own options first, as they are read
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (shared[0], *own, *shared[1:])]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show the warnings about the input as plain lines on stderr, each once."""
    from gpatcher.errors import InputWarning

    told: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        plain = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, InputWarning):
                plain(message, category, *where)
            elif str(message) not in told:
                told.add(str(message))
                typer.echo(f"note: {message}", err=True)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def stoppable(words: str) -> Iterator[None]:
    """Let Ctrl-C end a command with a line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped: {words}", err=True)
        raise typer.Exit(130) from None


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    return Console(highlight=False)


def graph_origin(
    source: SourceArgument = None,
    nodes: Nodes = None,
    edges: Edges = None,
    id_column: IdColumn = "id",
    label: Label = "label",
    source_column: SourceColumn = "source",
    target_column: TargetColumn = "target",
    weight: Weight = None,
    features: Features = None,
    kinds: Kinds = None,
    delimiter: Delimiter = None,
    on_unknown_id: OnUnknownId = "error",
    on_duplicate_id: OnDuplicateId = "error",
    on_missing_id: OnMissingId = "error",
) -> dict[str, Any]:
    """Say where a graph comes from, in a form that a saved model can keep."""
    from gpatcher.errors import InputError

    if source is not None and (nodes is not None or edges is not None):
        raise InputError(f"give either the source {source!r} or tables with --nodes and --edges, not both")
    if source is not None:
        beside = {
            "--id": id_column != "id",
            "--label": label != "label",
            "--source": source_column != "source",
            "--target": target_column != "target",
            "--weight": weight is not None,
            "--features": features is not None,
            "--column": bool(kinds),
            "--delimiter": delimiter is not None,
            "--on-unknown-id": on_unknown_id != "error",
            "--on-duplicate-id": on_duplicate_id != "error",
            "--on-missing-id": on_missing_id != "error",
        }
        if any(beside.values()):
            asked = ", ".join(option for option, given in beside.items() if given)
            raise InputError(f"{asked} tell how to read tables; {source!r} is none: leave them out, or pass --edges")
        # a folder is found again from anywhere; one that is called like a data set is not meant
        stored = (Path(source) / "graph.json").is_file() and not _is_name(source)
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
        "features": None if features is None else _listed(features),
        "columns": dict(_pair(part) for part in _listed(",".join(kinds or ()))),
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        "on_unknown_id": on_unknown_id,
        "on_duplicate_id": on_duplicate_id,
        "on_missing_id": on_missing_id,
    }


def _listed(text: str) -> list[str]:
    return next(csv.reader([text]), [])


def _pair(text: str) -> tuple[str, str]:
    from gpatcher.errors import InputError

    column, equals, kind = text.rpartition("=")
    if not equals:
        raise InputError(f"--column takes COLUMN=KIND, e.g. age=number, got {text!r}")
    return column, kind.strip()


def _is_name(source: str) -> bool:
    from gpatcher.datasets.registry import NAMED, canonical_key

    return canonical_key(source) in NAMED


def load_origin(origin: dict[str, Any], root: Path | None) -> Graph:
    """Load the graph; what is to be known about the input becomes notes."""
    from gpatcher.datasets.load import load_graph

    with warnings_as_notes():
        if origin.get("name") is not None:
            return load_graph(str(origin["name"]), root)
    return load_origin_tables(origin).graph


def load_origin_tables(origin: dict[str, Any], seed: int | None = None) -> Tables:
    """Load the tables; with a seed, the labelled nodes are split too."""
    from gpatcher.tables.load import load_tables

    with warnings_as_notes():
        tables = load_tables(**origin)
        return tables if seed is None else tables.with_split(seed=seed)


def read_newcomers(graph: Graph, nodes: Path, edges: Path, folder: Path, origin: dict[str, Any]) -> UnseenNodes:
    """Read tables of new nodes and their edges, in the columns that the graph was read from."""
    from gpatcher.estimator.tables import open_tables
    from gpatcher.graph.unseen import UnseenNodes
    from gpatcher.tables.unseen import read_new_tables

    kept = open_tables(folder)
    ids, x, ends, weights = read_new_tables(graph, nodes, edges, None if kept is None else kept[1], origin)
    return UnseenNodes.join(graph, ends, x, len(ids), weights=weights, node_ids=ids)


def run_graph(folder: Path, root: Path | None) -> tuple[Graph, dict[str, Any]]:
    """Load the graph that a saved model was trained on; return it and where it came from."""
    from gpatcher.errors import InputError
    from gpatcher.estimator.persistence import read_about
    from gpatcher.estimator.tables import open_tables

    about = read_about(folder)
    if not about.get("source"):
        raise InputError(f"{folder} does not say which graph it belongs to; use it from Python with the graph at hand")
    # a graph from tables is kept with the model: the tables may be gone
    kept = open_tables(folder)
    return load_origin(about["source"], root) if kept is None else kept[0], about["source"]


def load_run(folder: Path, root: Path | None, patches: Path | None = None) -> tuple[GPatcherClassifier, Graph]:
    """Load the model that `gpatcher fit` left in a folder, and the graph it was trained on."""
    from gpatcher.estimator.classifier import GPatcherClassifier

    graph, _ = run_graph(folder, root)
    return GPatcherClassifier.load(folder, graph, patches), graph
