"""The work of ``gpatcher fit``: one run per split, a record for each, the best model and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeModel
from gpatcher.estimator.classifier import PatchModel
from gpatcher.estimator.ensemble import load_model
from gpatcher.estimator.folder import open_tables
from gpatcher.estimator.members import choose_jobs
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, plan_runs
from gpatcher.io import remove_folder
from gpatcher.runs.evaluation import evaluate, evaluated_nodes, is_large
from gpatcher.runs.folder import PREDICTIONS, RECORDS, run_folder
from gpatcher.runs.later import LaterNodes
from gpatcher.runs.predict import write_predictions
from gpatcher.runs.records import Record, append_record, read_records, settings_hash
from gpatcher.runs.regression import column_baselines, evaluate_numbers
from gpatcher.runs.results import EVALUATION, BaselineResult, write_evaluation
from gpatcher.runs.run import AutoOptions, Cache, Job, baseline_settings, run_job
from gpatcher.runs.settings import AUTO, PATCHERS, complete, resolve_settings
from gpatcher.scale.executors import ProcessEngine, RayEngine

_LINEAR = {"model.layers": 1, "model.dropout": 0.0}
# trained for comparison with the saved model: title, model and changes of its settings
SINGLE_BASELINES: dict[str, tuple[str, dict[str, Any]]] = {"MLP": ("mlp", {}), "GCN": ("gcn", {})}
AUTO_BASELINES: dict[str, tuple[str, dict[str, Any]]] = {
    "Logistic regression": ("mlp", _LINEAR),
    "Logistic regression with adjacency rows": ("mlp", {**_LINEAR, "features.adjacency_features": True}),
    **SINGLE_BASELINES,
    "GraphSAGE": ("graphsage", {}),
    "LINKX": ("linkx", {}),
}


@dataclass(frozen=True)
class FitOptions:
    """Options of ``gpatcher fit``.

    Parameters
    ----------
    splits : str
        ``all``, or numbers such as ``0,1``.
    seed : int
        Seed of the first run; each further run takes the next.
    device, memory
        See `GPatcherClassifier`.
    source : dict, optional
        Where the graph came from; saved with the model.
    command : str, optional
        The command line, for the page.
    patch_table, engine, workers
        See `GPatcherClassifier.fit`.
    resume : bool
        Whether to skip runs on record with the same settings, and to continue from a checkpoint.
    overwrite : bool
        Whether to replace an existing run in the folder.
    compare : bool
        Whether to train baselines on the split of the saved model, for its page.
    refit, cross_validate, jobs
        For an ensemble, see `AutoClassifier`.
    later : LaterNodes, optional
        Nodes after a cut in time, to predict and score with the saved model.
    """

    splits: str = "0"
    seed: int = 0
    device: str = "cpu"
    memory: int | None = None
    source: dict[str, Any] | None = None
    command: str | None = None
    patch_table: Path | None = None
    engine: RayEngine | None = None
    workers: int | None = None
    resume: bool = False
    overwrite: bool = False
    compare: bool = True
    refit: bool = False
    cross_validate: bool = False
    jobs: int | None = None
    later: LaterNodes | None = None


class FitProgress:
    """Receives the progress of `fit_splits`; a subclass shows it."""

    def extracted(self, done: int, total: int) -> None:
        """Show the finished steps of the extraction."""

    def epoch(self, run: int, runs: int, epoch: int, epochs: int, figures: dict[str, float]) -> None:
        """Show an epoch of a run."""

    def member(self, name: str, done: int, total: int) -> None:
        """Show that a member of an ensemble is done."""

    def stage(self, description: str) -> None:
        """Show that another stage begins."""


def fit_splits(
    graph: Graph,
    model: str,
    settings: dict[str, Any],
    out: Path,
    options: FitOptions | None = None,
    *,
    progress: FitProgress | None = None,
    before_saving: Callable[[Path], None] | None = None,
    after: Callable[[Path], None] | None = None,
) -> list[Record]:
    """Train one model per split, append a record for each, and save the one with the best validation accuracy.

    Missing ``settings`` have their defaults. A folder with another run is an error, see `run_folder`.
    ``before_saving`` is called with the folder before the first model is saved, to write other files into it; ``after``
    at the end, for example to write a page.
    """
    if model not in (*PATCHERS, AUTO):
        raise InputError(f"fit_splits trains one of {', '.join((*PATCHERS, AUTO))}, got {model!r}; run_job a baseline")
    options, progress = options or FitOptions(), progress or FitProgress()
    settings = complete(settings, model) if model in PATCHERS else resolve_settings(AUTO)[0] | settings
    runs = plan_runs(graph, options.splits, options.seed)
    identity = {
        "model": model,
        "settings": settings,
        "graph": graph.content_hash,
        "splits": [split.hash for split in graph.splits],
        "memory": options.memory,
    }
    jobs = choose_jobs(graph, options.jobs, options.device) if model == AUTO else 1
    with (
        run_folder(out, identity, resume=options.resume, overwrite=options.overwrite) as folder,
        ProcessEngine(jobs) as local,
    ):
        records, kept = _run_all(graph, model, settings, folder, options, local, runs, progress, before_saving)
        if kept is not None:
            if graph.node_ids is not None or not is_large(graph):
                progress.stage("predicting")
                write_predictions(kept, graph, folder / PREDICTIONS)
            _evaluate(kept, graph, folder, options, local, progress)
        if after is not None:
            after(folder)
    return records


def _run_all(
    graph: Graph,
    model: str,
    settings: dict[str, Any],
    out: Path,
    options: FitOptions,
    local: ProcessEngine,
    runs: list[tuple[int, int]],
    progress: FitProgress,
    before_saving: Callable[[Path], None] | None,
) -> tuple[list[Record], NodeModel | None]:
    """Return the records, and the classifier that was saved, or None if it was evaluated before."""
    key = settings_hash(settings if options.memory is None else {**settings, "memory": options.memory})
    finished = _finished(out, graph, settings, options.memory) if options.resume else {}
    records: list[Record] = []
    best = -math.inf
    kept: NodeModel | None = None
    cache = Cache()
    how: dict[str, Any] = {
        name: getattr(options, name) for name in ("device", "memory", "patch_table", "engine", "workers")
    }
    for number, (split, seed) in enumerate(runs, 1):
        if (split, seed) in finished:
            records.append(finished[split, seed])
            best = max(best, _score(records[-1]))
            continue
        # the name identifies graph, settings, split and seed, so that no other run's checkpoint is used
        checkpoint = out / f"checkpoint-{graph.content_hash}-{key}-{split}-{seed}.safetensors"

        def show(epoch: int, figures: dict[str, float], number: int = number) -> None:
            progress.epoch(number, len(runs), epoch, settings["train"]["epochs"], figures)

        auto = AutoOptions(options.refit, options.cross_validate, local, progress.member)
        job = Job("fit", graph.name, model, settings, split, seed)
        run = run_job(
            job,
            graph,
            cache=cache,
            checkpoint=checkpoint,
            progress=show,
            extraction_progress=progress.extracted,
            auto=auto,
            **how,
        )
        # save the model first: a run on record is not repeated
        if _score(run.record) > best and run.classifier is not None:
            best, kept = _score(run.record), run.classifier
            if before_saving is not None:
                before_saving(out)
                before_saving = None
            kept.save(out, source=options.source)
        append_record(out / RECORDS, run.record)
        _remove_checkpoints(checkpoint)
        records.append(run.record)
    if kept is None and not (out / EVALUATION).exists():
        # all runs had finished, but the process was killed before the evaluation
        kept = load_model(out, graph)
    return records, kept


def _score(record: Record) -> float:
    """Return what the saved model is chosen by: the validation accuracy, or R² of numbers."""
    return float(record["val"] if record["val_accuracy"] is None else record["val_accuracy"])


def _finished(out: Path, graph: Graph, settings: dict[str, Any], memory: int | None) -> dict[tuple[int, int], Record]:
    """Return the records of this graph and these settings by split and seed; the batch size depends on the memory."""
    wanted = ("fit", graph.content_hash, settings_hash(settings), memory)
    return {
        (record["split"], record["seed"]): record
        for record in read_records(out / RECORDS)
        if tuple(record.get(name) for name in ("experiment", "graph", "settings_hash", "memory")) == wanted
    }


def _remove_checkpoints(checkpoint: Path) -> None:
    """Remove the checkpoint of a run: a file, one for each choice of extractors, or a folder with members."""
    # the suffix begins with a letter, so that seed 1 does not match seed 10
    for path in (checkpoint, *checkpoint.parent.glob(f"{checkpoint.stem}-[a-z]*{checkpoint.suffix}")):
        path.unlink(missing_ok=True)
    remove_folder(checkpoint.with_suffix(""))


def _evaluate(
    classifier: NodeModel, graph: Graph, out: Path, options: FitOptions, local: ProcessEngine, progress: FitProgress
) -> None:
    """Evaluate a trained model and baselines, and write evaluation.json, from which its page is made."""
    notes = [] if options.later is None else options.later.score(classifier, out)
    baselines: list[BaselineResult] = []
    if not options.compare:
        notes.append("Baselines were not trained (--no-compare).")
    elif is_large(graph):
        notes.append("Baselines are not trained beside it on a graph of this size.")
    else:
        baselines = train_baselines(classifier, graph, progress, local)
    progress.stage("evaluating")
    kept = open_tables(out)
    encoder = None if kept is None else kept[1]
    judge: Any = evaluate_numbers if graph.is_regression else evaluate
    write_evaluation(judge(classifier, graph, baselines, notes, _about(options), encoder), out)


def _about(options: FitOptions) -> dict[str, str]:
    """Say when, by which command and from what a model was trained."""
    about = {"date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")}
    if options.command is not None:
        about["command"] = options.command
    source = options.source or {}

    def text(value: Any) -> str:
        return ", ".join(f"{kind}={table}" for kind, table in value.items()) if isinstance(value, dict) else str(value)

    return about | {name: text(source[name]) for name in ("name", "database", "nodes", "edges") if source.get(name)}


def train_baselines(
    classifier: NodeModel, graph: Graph, progress: FitProgress | None = None, engine: ProcessEngine | None = None
) -> list[BaselineResult]:
    """Train baselines on the split of a fitted model: MLP and GCN, and more for an ensemble or for numbers.

    ``engine`` is where to train them, by default in this process.
    """
    progress = progress or FitProgress()
    single = isinstance(classifier, PatchModel)
    settings = baseline_settings(classifier) if isinstance(classifier, PatchModel) else None
    rows = SINGLE_BASELINES if single else AUTO_BASELINES
    nodes = evaluated_nodes(classifier, graph)[1]
    columns: list[BaselineResult] = []
    if graph.is_regression:
        columns = column_baselines(graph, classifier.split_, nodes, classifier.seed)
        rows = {title: row for title, row in rows.items() if "Logistic" not in title}
    shared = (graph, classifier.split_, nodes, settings, classifier.seed, classifier.device)
    results: dict[str, BaselineResult] = {}
    progress.stage("training baselines for comparison")
    for title, result in (engine or ProcessEngine()).map(_train_one, rows, shared):
        results[title] = result
        progress.stage(f"training baselines for comparison: {len(results)} of {len(rows)} done")
    return [*columns, *(results[title] for title in rows)]


def _train_one(
    title: str, graph: Graph, split: Split, nodes: IntArray, settings: Any, seed: int, device: str
) -> BaselineResult:
    """Train a baseline; without settings, by the protocol of the paper."""
    name, changes = AUTO_BASELINES[title]
    if settings is None:
        settings = resolve_settings(name, preset="default", changes=changes)[0]
    run = run_job(Job("fit", graph.name, name, settings, 0, seed), graph, split, device=device)
    scores = ("val", "test") if graph.is_regression else ("val_accuracy", "test_accuracy")
    figures = (run.record[field] for field in (*scores, "train_seconds"))
    return BaselineResult(title, run.predict(nodes), *figures)
