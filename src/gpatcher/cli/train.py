"""Commands that train and use a model: `fit` and `predict`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpatcher.cli.common import Root, console, load_origin, load_origin_tables, takes_graph

if TYPE_CHECKING:
    from gpatcher.data.tables import Tables


@takes_graph
def fit(
    origin: dict[str, Any],
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
    stop: Annotated[
        str | None,
        typer.Option(help="Watched on validation: loss, accuracy, macro_f1, balanced_accuracy, roc_auc or pr_auc."),
    ] = None,
    splits: Annotated[
        str | None,
        typer.Option(
            help="'all' (every split, or ten seeds where there is one), or numbers like 0,1. Default: 0, or all folds."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first run; each further run takes the next.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    memory: Annotated[
        float | None, typer.Option(help="GiB that eigenvectors may take. Default: half of the free.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip finished runs and go on with an interrupted one.")
    ] = False,
    split_column: Annotated[
        str | None, typer.Option(help="Column of --nodes with train, validation or test. Default: a split is made.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of --nodes with a time: train before validation before test.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Column of --nodes whose values are never in two parts.")] = None,
    folds: Annotated[
        int | None, typer.Option(help="Cross-validation on --nodes: so many splits, all run by default.")
    ] = None,
    on_rare_class: Annotated[
        str, typer.Option(help="Classes with one labelled node: error, keep (for training) or unlabel.")
    ] = "error",
    root: Root = None,
) -> None:
    """Train, score and save: records.jsonl, a model and a page with the learned filter."""
    from gpatcher.experiment import run_splits
    from gpatcher.graph import InputError
    from gpatcher.presets import parameters
    from gpatcher.tabular import keep_tables

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
        "stop": stop,
        "memory": None if memory is None else int(memory * 2**30),
    }
    chosen = parameters(model, origin.get("name", ""), preset) | {k: v for k, v in given.items() if v is not None}
    screen = console()
    ways: dict[str, Any] = {"split_column": split_column, "time": time, "group": group, "folds": folds}
    if "name" in origin:
        asked = [f"--{way.replace('_', '-')}" for way, value in ways.items() if value is not None]
        if asked:
            raise InputError(f"{', '.join(asked)} split the nodes of a table; {origin['name']!r} has its own splits")
        graph = load_origin(origin, root)
    else:
        origin |= ways | {"on_rare_class": on_rare_class}
        tables = load_origin_tables(origin, seed)
        graph = tables.graph
        if graph.x is None and not structure:
            from gpatcher.features import with_structure

            graph = with_structure(graph)
        keep_tables(replace(tables, graph=graph), out)
        for line in _about_tables(tables):
            screen.print(line, soft_wrap=True)

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("extracting patches", total=None, figures="")

        def show(number: int, count: int, epoch: int, most: int, figures: dict[str, float]) -> None:
            text = f"validation loss {figures['val_loss']:.3f}, accuracy {figures['val_accuracy']:.1%}"
            bar.update(task, description=f"run {number} of {count}", total=most, completed=epoch, figures=text)

        done = run_splits(
            graph,
            model,
            chosen,
            out,
            splits=splits or ("all" if folds else "0"),
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
    screen.print(table)
    scored = [record["test_accuracy"] for record in done if record["test_accuracy"] is not None]
    if scored:
        screen.print(f"Test accuracy: {summarise(scored)}", style="bold")
    screen.print(f"Records, model and the page of the filter: {out}/records.jsonl, model.safetensors, filter.html")
    if graph.node_ids is not None:
        screen.print(f"A class and probabilities for each of {graph.n:,} nodes: {out}/predictions.parquet")


def _about_tables(tables: Tables) -> Iterator[str]:
    """Say what was read and how it is used."""
    from collections import Counter

    graph, encoder = tables.graph, tables.encoder
    yield f"Read {graph.n:,} nodes and {tables.counts.edge_rows:,} edges; {(graph.labels() >= 0).sum():,} have a label."
    if encoder is None:
        yield "No columns to learn from: features of the structure serve instead."
    else:
        kinds = Counter(encoder.columns.values())
        yield f"Columns: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}; {encoder.width:,} features."
    sizes = " / ".join(f"{size:,}" for size in graph.splits[0].sizes)
    several = f"{len(graph.splits)} splits, the first: " if len(graph.splits) > 1 else ""
    yield f"Split: {several}{sizes} nodes for train / validation / test, kept in split.parquet."


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
    from gpatcher.tabular import open_tables

    about = read_about(folder)
    if not about.get("source"):
        raise InputError(f"{folder} does not say which graph it belongs to; predict from Python with the graph at hand")
    # a graph from tables is kept with the model: the tables may be gone
    kept = open_tables(folder)
    graph = load_origin(about["source"], root) if kept is None else kept[0]
    classifier = GPatcherClassifier.load(folder, graph)
    columns = prediction_columns(classifier, graph)
    write_table(columns, out)
    console().print(f"{graph.n:,} rows in {out}")
