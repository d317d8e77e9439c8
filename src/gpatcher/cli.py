"""The `gpatcher` command: arguments in, calls out; nothing else prints.

Heavy modules are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from gpatcher.graph import Graph

app = typer.Typer(
    name="gpatcher",
    help="Node classification on graphs, whether neighbours agree or not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SOURCE_HELP = (
    "A data set ('gpatcher datasets' lists them) or a generator: csbm:phi=-0.5,n=5000, board, colouring, "
    "rmat:n=300000,m=3000000,seed=3."
)
Root = Annotated[
    Path | None, typer.Option(help="Folder of the data sets. Default: $GPATCHER_DATA, else a cache folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def main() -> None:
    """Run the command line; a user's mistake ends with one line and exit code 2, never with a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)
    except ValueError as error:
        # gpatcher.graph is loaded by then if the error is one of its own; anything else is ours to show in full
        module = sys.modules.get("gpatcher.graph")
        if module is None or not isinstance(error, module.InputError):
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
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


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _version(value: bool) -> None:
    if value:
        from gpatcher import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def datasets(root: Root = None, as_json: AsJson = False) -> None:
    """List the data sets that have a name: what is in them, and whether their files are here."""
    from gpatcher.data.named import NAMED, dataset_root, is_present, load_dataset
    from gpatcher.diagnosis import diagnose

    rows = []
    for key, named in NAMED.items():
        row: dict[str, object] = {"name": named.name, "splits": named.protocol, "present": is_present(key, root)}
        if row["present"]:
            found = diagnose(load_dataset(key, root), spectral=False)
            row |= {"nodes": found.nodes, "edges": found.edges, "classes": found.classes, "features": found.features}
            row["heterophily"] = found.node_heterophily
        rows.append(row)
    if as_json:
        typer.echo(json.dumps(rows))
        return

    from rich.table import Table

    columns = ("nodes", "edges", "classes", "features", "heterophily")
    table = Table("data set", *columns, "splits", "files", header_style="bold")
    for name in columns:
        table.columns[[c.header for c in table.columns].index(name)].justify = "right"
    for row in rows:
        shown = [row.get(name) for name in columns]
        cells = [f"{v:.3f}" if isinstance(v, float) else f"{v:,}" if v is not None else "" for v in shown]
        table.add_row(str(row["name"]), *cells, str(row["splits"]), "here" if row["present"] else "on first use")
    console = _console()
    console.print(table)
    console.print(f"Folder: {dataset_root(root)}. Sets not there are downloaded on first use.", style="dim")


@app.command()
def diagnose(
    source: Annotated[str | None, typer.Argument(help=SOURCE_HELP)] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Table of nodes, CSV or Parquet: an id, a label, features.")
    ] = None,
    edges: Annotated[Path | None, typer.Option(help="Table of edges, CSV or Parquet: a source, a target.")] = None,
    id_column: Annotated[str, typer.Option("--id", help="Column of --nodes with the id.")] = "id",
    label: Annotated[str, typer.Option(help="Column of --nodes with the class, empty where unknown.")] = "label",
    source_column: Annotated[str, typer.Option("--source", help="Column of --edges with one end.")] = "source",
    target_column: Annotated[str, typer.Option("--target", help="Column of --edges with the other end.")] = "target",
    weight: Annotated[str | None, typer.Option(help="Column of --edges with a positive weight.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write a page with the plots, e.g. report.html.")] = None,
    as_json: AsJson = False,
    spectral: Annotated[
        bool, typer.Option(help="Measure the frequencies too; without them the cost is O(n + m).")
    ] = True,
    root: Root = None,
) -> None:
    """Tell how heterophilous a graph is, where its labels live, what is wrong with it and what to try."""
    from gpatcher.diagnosis import diagnose as measure

    with _warnings_as_notes():
        graph = _load(source, nodes, edges, id_column, label, source_column, target_column, weight, root)
    found = measure(graph, spectral=spectral)
    if out is not None:
        from gpatcher.report.diagnosis import write_diagnosis

        write_diagnosis(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return

    from rich.table import Table

    from gpatcher.report.diagnosis import measure_rows

    console = _console()
    table = Table("measure", "value", "meaning", title=found.name, title_justify="left", header_style="bold")
    for row in measure_rows(found):
        table.add_row(*row)
    console.print(table)
    for title, lines in (("To know about the data", found.problems), ("To try", found.advice)):
        if lines:
            console.print(f"\n{title}", style="bold")
            for line in lines:
                console.print(f"  - {line}", soft_wrap=True)
    if out is not None:
        console.print(f"\nThe page is in {out}")


def _load(
    source: str | None,
    nodes: Path | None,
    edges: Path | None,
    id_column: str,
    label: str,
    source_column: str,
    target_column: str,
    weight: str | None,
    root: Path | None,
) -> Graph:
    from gpatcher.graph import InputError

    if source is not None and (nodes is not None or edges is not None):
        raise InputError(f"give either the source {source!r} or tables with --nodes and --edges, not both")
    if source is not None:
        from gpatcher.data import load_graph

        return load_graph(source, root)
    if edges is None:
        raise InputError("give a source, e.g. 'gpatcher diagnose texas', or tables with --nodes and --edges")
    from gpatcher.data import read_tables

    return read_tables(
        nodes, edges, id=id_column, label=label, source=source_column, target=target_column, weight=weight
    )
