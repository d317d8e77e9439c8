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


SourceArgument = Annotated[str | None, typer.Argument(help=SOURCE_HELP)]
Nodes = Annotated[Path | None, typer.Option(help="Table of nodes, CSV or Parquet: an id, a label, features.")]
Edges = Annotated[Path | None, typer.Option(help="Table of edges, CSV or Parquet: a source, a target.")]
IdColumn = Annotated[str, typer.Option("--id", help="Column of --nodes with the id.")]
Label = Annotated[str, typer.Option(help="Column of --nodes with the class, empty where unknown.")]
SourceColumn = Annotated[str, typer.Option("--source", help="Column of --edges with one end.")]
TargetColumn = Annotated[str, typer.Option("--target", help="Column of --edges with the other end.")]
Weight = Annotated[str | None, typer.Option(help="Column of --edges with a positive weight.")]


@app.command()
def diagnose(
    source: SourceArgument = None,
    nodes: Nodes = None,
    edges: Edges = None,
    id_column: IdColumn = "id",
    label: Label = "label",
    source_column: SourceColumn = "source",
    target_column: TargetColumn = "target",
    weight: Weight = None,
    out: Annotated[Path | None, typer.Option(help="Also write a page with the plots, e.g. report.html.")] = None,
    as_json: AsJson = False,
    spectral: Annotated[
        bool, typer.Option(help="Measure the frequencies too; without them the cost is O(n + m).")
    ] = True,
    root: Root = None,
) -> None:
    """Tell how heterophilous a graph is, where its labels live, what is wrong with it and what to try."""
    from gpatcher.diagnosis import diagnose as measure

    origin = _origin(source, nodes, edges, id_column, label, source_column, target_column, weight)
    graph = _load(origin, root)
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


def _origin(
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
        return {"name": source}
    if edges is None:
        raise InputError("give a source, e.g. 'texas', or tables with --nodes and --edges")
    columns = {"id": id_column, "label": label, "source": source_column, "target": target_column, "weight": weight}
    return {"nodes": None if nodes is None else str(nodes.absolute()), "edges": str(edges.absolute()), **columns}


def _load(origin: dict[str, str | None], root: Path | None) -> Graph:
    from gpatcher.data import load_graph, read_tables

    with _warnings_as_notes():
        if origin.get("name") is not None:
            return load_graph(str(origin["name"]), root)
        tables = dict(origin)
        return read_tables(tables.pop("nodes"), str(tables.pop("edges")), **tables)  # type: ignore[arg-type]


@app.command()
def fit(
    source: SourceArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the records, the model and the page.")] = Path("run"),
    model: Annotated[str, typer.Option(help="gpatcher (learned filter) or fast (personalised PageRank).")] = "gpatcher",
    preset: Annotated[
        str | None, typer.Option(help="paper, default or a data set's name. Default: that of SOURCE, if there is one.")
    ] = None,
    extractor: Annotated[
        str | None, typer.Option(help="heterophily-aware, polynomial, shared, heat, bandpass or ppr.")
    ] = None,
    patch_size: Annotated[int | None, typer.Option(help="Nodes in a patch, the node itself included.")] = None,
    filters: Annotated[int | None, typer.Option(help="Powers of the filter, K.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Hidden features.")] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of the mixer.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Nodes in a step; all at once by default.")] = None,
    structure: Annotated[bool | None, typer.Option(help="Rows of the adjacency as features too.")] = None,
    class_weights: Annotated[bool | None, typer.Option(help="Weigh classes by the inverse of their size.")] = None,
    splits: Annotated[
        str, typer.Option(help="'all' (every split, or ten seeds where there is one), or numbers such as 0,1.")
    ] = "0",
    seed: Annotated[int, typer.Option(help="Seed of the first run; each further run takes the next.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    memory: Annotated[
        float | None, typer.Option(help="GiB that eigenvectors may take. Default: half of the free.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip finished runs and go on with an interrupted one.")
    ] = False,
    nodes: Nodes = None,
    edges: Edges = None,
    id_column: IdColumn = "id",
    label: Label = "label",
    source_column: SourceColumn = "source",
    target_column: TargetColumn = "target",
    weight: Weight = None,
    root: Root = None,
) -> None:
    """Train, score and save: records.jsonl, a model and a page with the learned filter."""
    from gpatcher.experiment import run_splits
    from gpatcher.presets import parameters

    origin = _origin(source, nodes, edges, id_column, label, source_column, target_column, weight)
    given = {
        "extractor": extractor,
        "patch_size": patch_size,
        "filters": filters,
        "hidden": hidden,
        "layers": layers,
        "lr": lr,
        "weight_decay": weight_decay,
        "dropout": dropout,
        "epochs": epochs,
        "batch_size": batch_size,
        "structure": structure,
        "class_weights": class_weights,
        "memory": None if memory is None else int(memory * 2**30),
    }
    chosen = parameters(model, source or "", preset) | {k: v for k, v in given.items() if v is not None}
    graph = _load(origin, root)

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = _console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("extracting patches", total=None, figures="")

        def show(number: int, count: int, epoch: int, most: int, figures: dict[str, float]) -> None:
            text = f"validation loss {figures['val_loss']:.3f}, accuracy {figures['val_accuracy']:.1%}"
            bar.update(task, description=f"run {number} of {count}", total=most, completed=epoch, figures=text)

        done = run_splits(
            graph,
            model,
            chosen,
            out,
            splits=splits,
            seed=seed,
            device=device,
            origin=origin,
            resume=resume,
            progress=show,
        )

    from rich.table import Table

    from gpatcher.records import summarise

    table = Table("split", "seed", "validation", "test", "epochs", "seconds", title=f"{model} on {graph.name}")
    for record in done:
        test = "no labels" if record["test_accuracy"] is None else f"{100 * record['test_accuracy']:.1f}"
        figures = (f"{100 * record['val_accuracy']:.1f}", test, str(record["epochs"]), f"{record['seconds']:.1f}")
        table.add_row(str(record["split"]), str(record["seed"]), *figures)
    console.print(table)
    scored = [record["test_accuracy"] for record in done if record["test_accuracy"] is not None]
    if scored:
        console.print(f"Test accuracy: {summarise(scored)}", style="bold")
    console.print(f"Records, model and the page of the filter: {out}/records.jsonl, model.safetensors, filter.html")


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="The folder that 'gpatcher fit' wrote.")],
    out: Annotated[Path, typer.Option(help="Where to write, .parquet or .csv.")] = Path("predictions.parquet"),
    root: Root = None,
) -> None:
    """Write a class and probabilities for every node of the graph that a model was trained on."""
    from gpatcher.data.tables import write_table
    from gpatcher.estimator import GPatcherClassifier, read_about
    from gpatcher.experiment import prediction_columns
    from gpatcher.graph import InputError

    about = read_about(folder)
    if not about.get("source"):
        raise InputError(f"{folder} does not say which graph it belongs to; predict from Python with the graph at hand")
    graph = _load(about["source"], root)
    classifier = GPatcherClassifier.load(folder, graph)
    columns = prediction_columns(classifier, graph)
    write_table(columns, out)
    _console().print(f"{graph.n:,} rows in {out}")
