"""What the commands share: options, where a graph comes from, how to print."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from gpatcher.estimator import GPatcherClassifier
    from gpatcher.graph import Graph
    from gpatcher.newcomers import Newcomers

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
Nodes = Annotated[Path | None, typer.Option(help="Table of nodes, CSV or Parquet: an id, a label, features.")]
Edges = Annotated[Path | None, typer.Option(help="Table of edges, CSV or Parquet: a source, a target.")]
IdColumn = Annotated[str, typer.Option("--id", help="Column of --nodes with the id.")]
Label = Annotated[str, typer.Option(help="Column of --nodes with the class, empty where unknown.")]
SourceColumn = Annotated[str, typer.Option("--source", help="Column of --edges with one end.")]
TargetColumn = Annotated[str, typer.Option("--target", help="Column of --edges with the other end.")]
Weight = Annotated[str | None, typer.Option(help="Column of --edges with a positive weight.")]


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show the warnings about the input as plain lines on stderr."""
    from gpatcher.graph import InputWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        try:
            yield
        finally:
            for warning in caught:
                if issubclass(warning.category, InputWarning):
                    typer.echo(f"note: {warning.message}", err=True)


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    return Console(highlight=False)


def graph_origin(
    source: str | None,
    nodes: Path | None,
    edges: Path | None,
    id_column: str,
    label: str,
    source_column: str,
    target_column: str,
    weight: str | None,
) -> dict[str, str | None]:
    """Say where a graph comes from, in a form that a saved model can keep."""
    from gpatcher.graph import InputError

    if source is not None and (nodes is not None or edges is not None):
        raise InputError(f"give either the source {source!r} or tables with --nodes and --edges, not both")
    if source is not None:
        # a folder is found again from anywhere; one that is called like a data set is not meant
        stored = (Path(source) / "graph.json").is_file() and not _is_name(source)
        return {"name": str(Path(source).absolute()) if stored else source}
    if edges is None:
        raise InputError("give a source, e.g. 'texas', or tables with --nodes and --edges")
    columns = {"id": id_column, "label": label, "source": source_column, "target": target_column, "weight": weight}
    return {"nodes": None if nodes is None else str(nodes.absolute()), "edges": str(edges.absolute()), **columns}


def _is_name(source: str) -> bool:
    from gpatcher.data.named import NAMED, canonical_key

    return canonical_key(source) in NAMED


def load_origin(origin: dict[str, str | None], root: Path | None) -> Graph:
    """Load the graph; what is to be known about the input becomes notes."""
    from gpatcher.data import load_graph, read_tables

    with warnings_as_notes():
        if origin.get("name") is not None:
            return load_graph(str(origin["name"]), root)
        tables = dict(origin)
        return read_tables(tables.pop("nodes"), str(tables.pop("edges")), **tables)  # type: ignore[arg-type]


def read_newcomers(graph: Graph, nodes: Path, edges: Path, origin: dict[str, str | None]) -> Newcomers:
    """Read tables of new nodes and their edges, in the columns that the graph was read from."""
    from gpatcher.data.tables import read_new_tables
    from gpatcher.newcomers import Newcomers

    roles = {key: origin[key] for key in ("id", "label", "source", "target", "weight") if key in origin}
    like = origin.get("nodes")
    if like is not None and not Path(like).is_file():
        like = None
    ids, x, ends, weights = read_new_tables(graph, nodes, edges, like=like, **roles)  # type: ignore[arg-type]
    return Newcomers.join(graph, ends, x, len(ids), weights=weights, node_ids=ids)


def run_graph(folder: Path, root: Path | None) -> tuple[Graph, dict[str, str | None]]:
    """Load the graph that a saved model was trained on; return it and where it came from."""
    from gpatcher.estimator import read_about
    from gpatcher.graph import InputError

    about = read_about(folder)
    if not about.get("source"):
        raise InputError(f"{folder} does not say which graph it belongs to; use it from Python with the graph at hand")
    return load_origin(about["source"], root), about["source"]


def load_run(folder: Path, root: Path | None, patches: Path | None = None) -> tuple[GPatcherClassifier, Graph]:
    """Load the model that `gpatcher fit` left in a folder, and the graph it was trained on."""
    from gpatcher.estimator import GPatcherClassifier

    graph, _ = run_graph(folder, root)
    return GPatcherClassifier.load(folder, graph, patches), graph
