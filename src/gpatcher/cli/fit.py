"""The command `fit`: train, score and save."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpatcher.cli.console import check_seed, console, gibibytes, option, step, stoppable, table, warnings_as_notes
from gpatcher.cli.sources import LABEL_TYPE, Root, by_table, kept_source, load_source, load_source_tables, takes_graph
from gpatcher.errors import InputError, counted

if TYPE_CHECKING:
    from rich.console import Console

    from gpatcher.graph.graph import Graph
    from gpatcher.runs.fit import FitProgress
    from gpatcher.runs.later import LaterNodes
    from gpatcher.runs.records import Record
    from gpatcher.runs.results import Evaluation, RegressionEvaluation
    from gpatcher.scale.executors import RayEngine
    from gpatcher.tables.result import Tables

_model, _split, _output, _cluster = (
    partial(option, panel=panel) for panel in ("Model", "Split", "Output", "Size and cluster")
)


@takes_graph
def fit(
    source: dict[str, Any],
    model: Annotated[
        str | None,
        _model(
            "NAME",
            "auto (a portfolio, combined), gpatcher (learned filter), fast (personalised PageRank) or deep (rounds "
            "over neighbours). Default: auto; gpatcher with --set, --preset, --extractor or --patches.",
        ),
    ] = None,
    quality: Annotated[
        str | None, _model("NAME", "For auto: quick (one model), good or best (more models, cross-validated).")
    ] = None,
    budget: Annotated[str | None, _model("TIME", "Time limit for training with auto, e.g. 90s, 10m or 2h.")] = None,
    keep_best: Annotated[
        bool, _model(None, "For auto: keep only the best member, for cheap prediction.", "--keep-best", hidden=True)
    ] = False,
    preset: Annotated[
        str | None, _model("NAME", "paper, default or a data set. Default: that of SOURCE, if any.")
    ] = None,
    extractor: Annotated[
        str | None,
        _model(
            "NAME",
            "heterophily-aware, polynomial, shared, heat, bandpass, ppr, hop, overlap, auto (by size and validation).",
            hidden=True,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        _model(
            "NAME=VALUE",
            "Another setting, e.g. train.lr=0.01; may be repeated. 'gpatcher settings' lists them.",
            "--set",
        ),
    ] = None,
    splits: Annotated[
        str | None,
        _split(
            "SPLITS",
            "'all' (every split; ten seeds if there is only one) or numbers such as 0,1. Default: 0, or all folds.",
        ),
    ] = None,
    seed: Annotated[
        int, _split("N", "Seed of the first run; each further run takes the next.", callback=check_seed)
    ] = 0,
    split_column: Annotated[
        str | None, _split("COLUMN", "Column of --nodes with train, validation or test. Default: a stratified split.")
    ] = None,
    time: Annotated[
        str | None, _split("COLUMN", "Column of --nodes with a time: train before validation before test.")
    ] = None,
    edge_time: Annotated[str | None, _split("COLUMN", "Column of --edges with a time, for --cut.", hidden=True)] = None,
    cut: Annotated[
        str | None,
        _split("DATE", "Rows after this date, or fraction of the times, are not seen; later nodes are unseen nodes."),
    ] = None,
    group: Annotated[
        str | None, _split("COLUMN", "Column of --nodes whose values stay in one part.", hidden=True)
    ] = None,
    folds: Annotated[int | None, _split("N", "Cross-validation on --nodes with N folds.")] = None,
    on_rare_class: Annotated[
        str, _split("POLICY", "Classes with one labelled node: error, keep (for training) or unlabel.", hidden=True)
    ] = "error",
    out: Annotated[Path, _output("FOLDER", "Folder for the records, the model and the page.")] = Path("run"),
    resume: Annotated[bool, _output(None, "Skip finished runs and continue an interrupted one.", "--resume")] = False,
    overwrite: Annotated[bool, _output(None, "Replace the run in the folder.", "--overwrite")] = False,
    name: Annotated[str | None, _output("TEXT", "Name of the data on the page. Default: that of the source.")] = None,
    dry_run: Annotated[
        bool, _output(None, "Estimate time, memory and disk from a few epochs, and train nothing.", "--dry-run")
    ] = False,
    compare: Annotated[bool, _output(None, "Train baselines on the same split, for the page.", hidden=True)] = True,
    patches: Annotated[
        Path | None, _cluster("FOLDER", "Patch table to train from, written by 'gpatcher patches'.")
    ] = None,
    memory: Annotated[
        float | None,
        _cluster(
            "GIB",
            "Memory limit in GiB: of the run with fixed patches, which sets the batch size; of the eigenvectors with "
            "learned filters. The page cache does not count.",
        ),
    ] = None,
    device: Annotated[str, _cluster("DEVICE", "cpu, cuda, ...", hidden=True)] = "cpu",
    jobs: Annotated[
        int | None, _cluster("N", "Members of auto trained at a time. Default: one per core.", min=1, hidden=True)
    ] = None,
    engine: Annotated[
        str, _cluster("NAME", "local, or ray to train on a cluster: the members of auto, or a model from --patches.")
    ] = "local",
    ray_address: Annotated[
        str | None, _cluster("HOST:PORT", "A running Ray cluster, or auto. Default: a local one.", hidden=True)
    ] = None,
    workers: Annotated[
        int | None, _cluster("N", "Processes on the cluster. Default: one per CPU, up to 8.", min=1, hidden=True)
    ] = None,
    root: Root = None,
) -> None:
    """Train and evaluate a model; save it with its records and a page that shows how far to trust it.

    More options: --extractor, --group, --edge-time, --keep-best, --no-compare, --device, --jobs, --ray-address,
    --workers, --delimiter, --on-rare-class, --on-unknown-id, --on-duplicate-id, --on-missing-id.
    """
    auto = {"quality": quality, "budget": None if budget is None else parse_seconds(budget)}
    auto = {
        f"auto.{key}": value for key, value in {**auto, "keep_best": keep_best or None}.items() if value is not None
    }
    own = preset or extractor or patches or [text for text in changes or [] if not text.startswith("auto.")]
    if model is None:
        model = "gpatcher" if own else "auto"
    if auto and model != "auto":
        raise InputError(f"--quality, --budget and --keep-best are for --model auto, not {model}; leave them out")
    cluster = _ray_engine(engine, ray_address, workers, patches, model)
    settings = _settings(model, source, preset, extractor, changes or [], patches, auto)
    ways: dict[str, Any] = {"split_column": split_column, "time": time, "group": group, "folds": folds}
    if not dry_run:
        from gpatcher.runs.folder import check_folder

        check_folder(out, resume=resume, overwrite=overwrite)
    screen = console()
    times = {"edge_time": edge_time, "cut": cut}
    graph, later, before_saving = _load(source, ways, times, on_rare_class, seed, settings, root, screen)
    if name is not None:
        graph = replace(graph, name=name)

    from gpatcher.report.run import write_run_page
    from gpatcher.runs.fit import FitOptions, fit_splits
    from gpatcher.runs.results import read_evaluation

    options = FitOptions(
        splits=splits or ("all" if folds else "0"),
        seed=seed,
        device=device,
        memory=None if memory is None else gibibytes(memory, "--memory"),
        source=kept_source(source),
        command=_command(source),
        patch_table=patches,
        engine=cluster,
        workers=workers,
        resume=resume,
        overwrite=overwrite,
        compare=compare,
        refit=not graph.splits or ("name" not in source and split_column is None and folds is None),
        cross_validate=not graph.splits or ("name" not in source and not any(ways.values())),
        jobs=jobs,
        later=later,
    )

    if dry_run:
        with step("estimating"), warnings_as_notes():
            from gpatcher.runs.estimate import estimate_fit

            estimate = estimate_fit(graph, model, settings, options)
        screen.print(f"'gpatcher fit' would take {estimate}.", soft_wrap=True)
        return

    evaluations: list[Evaluation | RegressionEvaluation] = []

    def write_page(folder: Path) -> None:
        bar.stage("writing the page")
        evaluations.append(read_evaluation(folder))
        write_run_page(evaluations[0], folder / "report.html")

    with warnings_as_notes(), stoppable("the same command with --resume continues"), _progress_bar(screen) as bar:
        records = fit_splits(
            graph, model, settings, out, options, progress=bar, before_saving=before_saving, after=write_page
        )
    _print_summary(screen, model, graph, records, out)
    _print_leaderboard(screen, evaluations[0])


def _command(source: dict[str, Any]) -> str:
    """Return the command line, with the URL of a database as it may be shown."""
    shown, hide = [], False
    for argument in sys.argv[1:]:
        if hide or argument.startswith("--database="):
            argument = f"{'' if hide else '--database='}{source.get('database')}"
        hide = argument == "--database"
        shown.append(argument)
    return shlex.join(["gpatcher", *shown])


def parse_seconds(text: str) -> float:
    """Return the seconds of a time such as 90s, 10m or 2h; a bare number is in seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"--budget takes a time such as 90s, 10m or 2h, got {text!r}")
    return seconds


def _ray_engine(
    engine: str, address: str | None, workers: int | None, patches: Path | None, model: str
) -> RayEngine | None:
    """Return the cluster to train on, None for this machine; options that do not go together are refused."""
    if engine == "local" and address is None:
        if workers is not None:
            raise InputError(f"--workers {workers} is for a cluster; pass --engine ray too")
        return None
    from gpatcher.scale.executors import RayEngine, make_engine

    chosen = make_engine(engine, None, address)
    if patches is None and model != "auto":
        raise InputError(
            "--engine ray trains from a patch table; make one with 'gpatcher patches' and pass it with --patches"
        )
    return chosen if isinstance(chosen, RayEngine) else None


def _settings(
    model: str,
    source: dict[str, Any],
    preset: str | None,
    extractor: str | None,
    changes: list[str],
    patches: Path | None,
    auto: dict[str, Any],
) -> dict[str, Any]:
    from gpatcher.runs.settings import AUTO, PATCHERS, parse_change, resolve_settings

    if model not in (*PATCHERS, AUTO):
        raise InputError(
            f"'gpatcher fit' trains one of {', '.join((*PATCHERS, AUTO))}, got {model!r}; 'gpatcher bench' has others"
        )
    parsed = {**dict(parse_change(text) for text in changes), **auto}
    if model == AUTO:
        single = {"--extractor": extractor, "--patches": patches, "--preset": preset}
        given = [option for option, value in single.items() if value is not None]
        if given:
            raise InputError(f"{given[0]} is for a single model; pass --model gpatcher, fast or deep too")
        return resolve_settings(AUTO, changes=parsed)[0]
    if extractor is not None:
        parsed["patches.name"] = extractor
    if patches is not None:
        from gpatcher.patches.extract import extractor_parameters
        from gpatcher.patches.store import PatchTable

        table = PatchTable.open(patches).extractor
        made = {"patches.name": table.name}
        made |= {f"patches.{name}": value for name, value in extractor_parameters(table).items()}
        for name, value in made.items():
            asked = parsed.get(name, PATCHERS[model] if name == "patches.name" else value)
            if asked != value:
                option = "--model fast" if name == "patches.name" else f"--set {name}={value}"
                raise InputError(f"the patch table in {patches} has {name}={value}, not {asked}; pass {option}")
        parsed |= made
    return resolve_settings(model, source.get("name", ""), preset, changes=parsed)[0]


def _load(
    source: dict[str, Any],
    ways: dict[str, Any],
    times: dict[str, Any],
    on_rare_class: str,
    seed: int,
    settings: dict[str, Any],
    root: Path | None,
    screen: Console,
) -> tuple[Graph, LaterNodes | None, Callable[[Path], None] | None]:
    """Return the graph, the nodes after a cut, and what writes its tables into the run's folder."""
    if "name" in source:
        passed = [f"--{way.replace('_', '-')}" for way, value in (ways | times).items() if value is not None]
        passed += ["--on-rare-class"] if on_rare_class != "error" else []
        if passed:
            raise InputError(f"{', '.join(passed)} split the nodes of a table; {source['name']!r} has its own splits")
        with step("reading the graph"):
            return load_source(source, root), None, None
    given = ways | times
    for column, kind in (("time", "nodes"), ("edge_time", "edges")):
        if given[column] is not None and isinstance(source[kind], dict):
            given[column] = by_table(given[column], [*source[kind]])
    source |= given | {"on_rare_class": on_rare_class}
    with step("reading the tables"):
        tables = load_source_tables(source, seed)
    source |= {LABEL_TYPE: tables.label_type, "ends": dict(tables.options.ends)}
    if tables.graph.x is None and not settings.get("features", {}).get("adjacency_features"):
        from gpatcher.model.structure import with_structure_features

        tables = replace(tables, graph=with_structure_features(tables.graph))
    for line in _describe_tables(tables):
        screen.print(line, soft_wrap=True)
    _print_columns(tables, screen)
    from gpatcher.estimator.tables import keep_tables
    from gpatcher.runs.later import LaterNodes

    later = LaterNodes.read(tables)
    if later is not None:
        screen.print(later.note, soft_wrap=True, markup=False)
    return tables.graph, later, partial(keep_tables, tables)


def _describe_tables(tables: Tables) -> Iterator[str]:
    """Say what was read and how it is used."""
    from gpatcher.graph.split import is_labelled

    graph, encoder = tables.graph, tables.encoder
    labelled = int(is_labelled(graph.labels()).sum())
    direction = "directed" if graph.is_directed else "undirected"
    yield (
        f"Read {counted(graph.n, 'node')} and {counted(tables.counts.edge_rows, 'edge')}, taken as {direction}; "
        f"{labelled:,} {'has' if labelled == 1 else 'have'} a label."
    )
    if encoder is None:
        yield "The nodes have no feature columns: features of the structure are used instead."
    else:
        kinds = Counter(encoder.columns.values())
        columns = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        yield f"Columns: {columns}; {counted(encoder.width, 'feature')}."
    sizes = " / ".join(f"{size:,}" for size in graph.splits[0].sizes)
    several = f"{len(graph.splits)} splits, the first: " if len(graph.splits) > 1 else ""
    yield f"Split: {several}{sizes} nodes for train / validation / test, saved in split.parquet."


def _print_columns(tables: Tables, screen: Console) -> None:
    """Print what was inferred: the columns, and with edge types what each joins."""
    if tables.columns:
        screen.print(table(("column", "kind", "features", "missing", "note"), tables.describe_columns()))
    if tables.links:
        direction = {True: "directed", False: "undirected"}
        links = [
            (link.name, link.source, link.target, f"{link.rows:,}", direction[link.directed]) for link in tables.links
        ]
        screen.print(table(("edges", "from", "to", "rows", "taken as"), links))


@contextmanager
def _progress_bar(screen: Console) -> Iterator[FitProgress]:
    """Show a bar over the stages of a fit."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from gpatcher.runs.fit import FitProgress

    figures = TextColumn("{task.fields[figures]}")
    columns = (TextColumn("{task.description}"), BarColumn(), figures, TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("extracting patches", total=None, figures="")

        class Shown(FitProgress):
            def extracted(self, done: int, total: int) -> None:
                bar.update(task, total=total, completed=done)

            def epoch(self, run: int, runs: int, epoch: int, epochs: int, figures: dict[str, float]) -> None:
                text = f"validation loss {figures['val_loss']:.3f}"
                text += f", accuracy {figures['val_accuracy']:.1%}" if "val_accuracy" in figures else ""
                bar.update(task, description=f"run {run} of {runs}", total=epochs, completed=epoch, figures=text)

            def member(self, name: str, done: int, total: int) -> None:
                bar.update(task, description="training the portfolio", total=total, completed=done, figures=name)

            def stage(self, description: str) -> None:
                bar.update(task, description=description, total=None, figures="")

        yield Shown()


def _print_summary(screen: Console, model: str, graph: Graph, records: list[Record], out: Path) -> None:
    from gpatcher.runs.records import summarise

    title = f"{model} on {graph.name}" + (", R² × 100" if graph.is_regression else "")
    val, test = ("val", "test") if graph.is_regression else ("val_accuracy", "test_accuracy")
    shown = table(("split", "seed", "validation", "test", "epochs", "seconds"), [], title)
    for record in records:
        score = "no labels" if record[test] is None else f"{100 * record[test]:.1f}"
        epochs = "-" if record["epochs"] is None else str(record["epochs"])
        figures = (f"{100 * record[val]:.1f}", score, epochs, f"{record['seconds']:.1f}")
        shown.add_row(str(record["split"]), str(record["seed"]), *figures)
    screen.print(shown)
    scored = [record[test] for record in records if record[test] is not None]
    if scored:
        summary = summarise(scored)
        named = "R² × 100 on test" if graph.is_regression else "Test accuracy"
        screen.print(f"{named}: {summary}, {summary.interval}", style="bold")
    peak = max(record["peak_rss_mb"] for record in records)
    sizes = {record["batch_size"] for record in records} - {None}
    batches = f" with batches of {', '.join(counted(size, 'node') for size in sizes)}" if sizes else ""
    screen.print(f"Peak memory: {peak / 1024:.2f} GiB{batches}", soft_wrap=True)
    screen.print(f"Records, model and page: {out}/records.jsonl, model.safetensors, report.html", soft_wrap=True)
    for record in records:
        for member, reason in ((record["members"] or {}).get("skipped") or {}).items():
            screen.print(f"Not trained: {member}: {reason}", soft_wrap=True, markup=False)
    if graph.node_ids is not None:
        count = graph.n if graph.node_types is None else len(graph.node_types.nodes())
        screen.print(f"Predictions for {counted(count, 'node')}: {out}/predictions.parquet", soft_wrap=True)


def _print_leaderboard(screen: Console, evaluation: Evaluation | RegressionEvaluation) -> None:
    from gpatcher.report.leaderboard import leaderboard_cells, leaderboard_columns, verdict

    shown = table(leaderboard_columns(evaluation, short=True), [])
    shown.collapse_padding = True  # leaves more room for the names of models
    for row in evaluation.leaderboard:
        shown.add_row(*leaderboard_cells(row), style="bold" if row.role == "model" else None)
    screen.print(shown)
    screen.print(verdict(evaluation), soft_wrap=True, markup=False)
