"""Commands that train and use a model: `fit` and `predict`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpatcher.cli.common import (
    Root,
    RunFolder,
    console,
    load_origin,
    load_origin_tables,
    load_run,
    read_newcomers,
    run_graph,
    stoppable,
    takes_graph,
    warnings_as_notes,
)

if TYPE_CHECKING:
    from gpatcher.scale.executors import RayEngine
    from gpatcher.tables.load import Tables


@takes_graph
def fit(
    origin: dict[str, Any],
    out: Annotated[Path, typer.Option(help="Folder for the records, the model and the page.")] = Path("run"),
    model: Annotated[str, typer.Option(help="gpatcher (learned filter) or fast (personalised PageRank).")] = "gpatcher",
    preset: Annotated[
        str | None, typer.Option(help="paper, default or a data set's name. Default: that of SOURCE, if there is one.")
    ] = None,
    extractor: Annotated[
        str | None,
        typer.Option(
            help="heterophily-aware, polynomial, shared, heat, bandpass, ppr, or auto: by size and validation."
        ),
    ] = None,
    patch_size: Annotated[int | None, typer.Option(help="Nodes in a patch, the node itself included.")] = None,
    filters: Annotated[int | None, typer.Option(help="Powers of the filter, K.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Hidden features.")] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of the mixer.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs.")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Nodes in a step. Default: all; with --patches or --memory 4096, or as many as --memory allows."
        ),
    ] = None,
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
        float | None,
        typer.Option(
            help="GiB that a run of the extractor ppr may take, from which follows the batch size; for others, GiB "
            "that eigenvectors may take. Pages of files on disk do not count."
        ),
    ] = None,
    patches: Annotated[
        Path | None, typer.Option(help="The table that 'gpatcher patches' wrote, to train from.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local, or ray to train on a cluster from --patches.")] = "local",
    ray_address: Annotated[
        str | None, typer.Option(help="host:port of a running Ray cluster, or auto. Default: one of its own.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes on the cluster. Default: one per CPU, up to 8.", min=1)
    ] = None,
    compare: Annotated[bool, typer.Option(help="Train MLP and GCN on the same split, for the page.")] = True,
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
    """Train, score and save: records.jsonl, a model and a page that shows how far to trust it."""
    from gpatcher.errors import InputError
    from gpatcher.estimator.tables import keep_tables
    from gpatcher.runs.run import run_splits
    from gpatcher.runs.settings import parameters

    cluster = _cluster(engine, ray_address, workers, patches)
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
    given = {k: v for k, v in given.items() if v is not None}
    chosen = parameters(model, origin.get("name", ""), preset) | given
    if patches is not None:
        from gpatcher.estimator.classifier import table_parameters
        from gpatcher.patches.store import PatchTable

        made = table_parameters(PatchTable.open(patches))
        for name, value in made.items():
            if given.get(name, value) != value or (name == "extractor" and chosen[name] != value):
                option = "--model fast" if name == "extractor" else f"--{name.replace('_', '-')} {value}"
                raise InputError(
                    f"the table in {patches} has {name}={value}, asked for is {chosen[name]}; pass {option}"
                )
        chosen |= made
    screen = console()
    keep: Callable[[], None] | None = None
    ways: dict[str, Any] = {"split_column": split_column, "time": time, "group": group, "folds": folds}
    if "name" in origin:
        asked = [f"--{way.replace('_', '-')}" for way, value in ways.items() if value is not None]
        asked += ["--on-rare-class"] if on_rare_class != "error" else []
        if asked:
            raise InputError(f"{', '.join(asked)} split the nodes of a table; {origin['name']!r} has its own splits")
        graph = load_origin(origin, root)
    else:
        origin |= ways | {"on_rare_class": on_rare_class}
        tables = load_origin_tables(origin, seed)
        graph = tables.graph
        if graph.x is None and not structure:
            from gpatcher.model.inputs import with_structure

            graph = with_structure(graph)
        keep = partial(keep_tables, replace(tables, graph=graph), out)
        for line in _about_tables(tables):
            screen.print(line, soft_wrap=True)

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    going_on = stoppable("the same command with --resume goes on")
    with warnings_as_notes(), going_on, Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("extracting patches", total=None, figures="")

        def extracting(steps: int, most: int) -> None:
            bar.update(task, total=most, completed=steps)

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
            keep=keep,
            patches=patches,
            engine=cluster,
            workers=workers,
            resume=resume,
            compare=compare,
            progress=show,
            extracting=extracting,
            stage=lambda words: bar.update(task, description=words, total=None, figures=""),
        )

    from rich.table import Table

    from gpatcher.errors import counted
    from gpatcher.runs.records import summarise

    table = Table("split", "seed", "validation", "test", "epochs", "seconds", title=f"{model} on {graph.name}")
    for record in done:
        test = "no labels" if record["test_accuracy"] is None else f"{100 * record['test_accuracy']:.1f}"
        figures = (f"{100 * record['val_accuracy']:.1f}", test, str(record["epochs"]), f"{record['seconds']:.1f}")
        table.add_row(str(record["split"]), str(record["seed"]), *figures)
    screen.print(table)
    scored = [record["test_accuracy"] for record in done if record["test_accuracy"] is not None]
    if scored:
        screen.print(f"Test accuracy: {summarise(scored)}", style="bold")
    peak = max(record["peak_rss_mb"] for record in done)
    steps = {record.get("batch_size") for record in done}
    batches = "" if steps == {None} else f" with batches of {', '.join(counted(b, 'node') for b in steps if b)}"
    screen.print(f"Peak memory: {peak / 1024:.2f} GiB{batches}", soft_wrap=True)
    screen.print(f"Records, model and the page to look at: {out}/records.jsonl, model.safetensors, report.html")
    if graph.node_ids is not None:
        screen.print(f"A class and probabilities for each of {graph.n:,} nodes: {out}/predictions.parquet")


def _about_tables(tables: Tables) -> Iterator[str]:
    """Say what was read and how it is used."""
    from collections import Counter

    from gpatcher.errors import counted

    graph, encoder = tables.graph, tables.encoder
    known = int((graph.labels() >= 0).sum())
    read = f"{counted(graph.n, 'node')} and {counted(tables.counts.edge_rows, 'edge')}"
    yield f"Read {read}; {known:,} {'has' if known == 1 else 'have'} a label."
    if encoder is None:
        yield "No columns to learn from: features of the structure serve instead."
    else:
        kinds = Counter(encoder.columns.values())
        yield (
            f"Columns: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}; "
            f"{counted(encoder.width, 'feature')}."
        )
    sizes = " / ".join(f"{size:,}" for size in graph.splits[0].sizes)
    several = f"{len(graph.splits)} splits, the first: " if len(graph.splits) > 1 else ""
    yield f"Split: {several}{sizes} nodes for train / validation / test, kept in split.parquet."


def _cluster(engine: str, address: str | None, workers: int | None, patches: Path | None) -> RayEngine | None:
    """Return the cluster to train on, None for this machine; what makes no sense together is refused."""
    from gpatcher.errors import InputError
    from gpatcher.scale.executors import RayEngine, make_engine

    chosen = make_engine(engine, None, address)
    if not isinstance(chosen, RayEngine):
        if workers is not None:
            raise InputError(f"--workers {workers} is for a cluster; pass --engine ray too")
        return None
    if patches is None:
        raise InputError(
            "--engine ray trains from a patch table; make one with 'gpatcher patches' and pass it with --patches"
        )
    return chosen


def predict(
    folder: RunFolder,
    out: Annotated[Path, typer.Option(help="Where to write, .parquet or .csv.")] = Path("predictions.parquet"),
    patches: Annotated[
        Path | None, typer.Option(help="The patch table of the model, where it is not where it was.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Table of nodes that came after training: predict these alone.")
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="Table of their edges, among themselves and to nodes of the graph.")
    ] = None,
    conformal: Annotated[
        float | None, typer.Option(help="Also a column 'set': classes that hold the true one so often, e.g. 0.9.")
    ] = None,
    root: Root = None,
) -> None:
    """Write a class and calibrated probabilities for every node of a trained model's graph, or for new nodes."""
    from gpatcher.errors import InputError, counted
    from gpatcher.estimator.classifier import GPatcherClassifier
    from gpatcher.runs.predict import conformal_coverage, new_prediction_columns, write_predictions
    from gpatcher.tables.write import write_table

    if (nodes is None) != (edges is None):
        raise InputError("new nodes need both tables: --nodes with the nodes, --edges with their edges")
    if nodes is not None and patches is not None:
        raise InputError(
            "--patches is the table of the graph; patches of new nodes are made from --edges, leave it out"
        )
    screen = console()
    if nodes is not None and edges is not None:
        graph, source = run_graph(folder, root)
        with warnings_as_notes():
            newcomers = read_newcomers(graph, nodes, edges, folder, source)
        write_table(new_prediction_columns(GPatcherClassifier.load(folder), newcomers, conformal), out)
        screen.print(f"{counted(newcomers.count, 'row')} in {out}")
        return
    classifier, graph = load_run(folder, root, patches)

    from rich.progress import Progress

    with warnings_as_notes(), Progress(console=screen, transient=True) as bar:
        task = bar.add_task("predicting", total=graph.n)
        write_predictions(classifier, graph, out, lambda done, _: bar.update(task, completed=done), conformal)
    screen.print(f"{counted(graph.n, 'row')} in {out}")
    measured = None if conformal is None else conformal_coverage(classifier, graph, conformal)
    if measured is not None:
        share, size, count = measured
        screen.print(
            f"Sets at level {conformal}: {size:.2f} classes on average; they hold the label of {share:.1%} of "
            f"{counted(count, 'test node')}",
            soft_wrap=True,
        )
