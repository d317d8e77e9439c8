"""What ``gpatcher fit`` does: one run per split, a record for each, the best model and its evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import plan_runs
from gpatcher.io import make_folder
from gpatcher.runs.evaluation import EVALUATION, BaselineResult, evaluate, evaluated_nodes, is_large, write_evaluation
from gpatcher.runs.predict import write_predictions
from gpatcher.runs.records import Record, append_record, read_records, settings_hash
from gpatcher.runs.run import Cache, Job, baseline_settings, run_job
from gpatcher.runs.settings import PATCHERS, complete
from gpatcher.scale.executors import RayEngine

RECORDS, PREDICTIONS = "records.jsonl", "predictions.parquet"
BASELINES = {"mlp": "MLP", "gcn": "GCN"}  # trained beside the kept model, for its page


@dataclass(frozen=True)
class FitOptions:
    """How the runs of ``gpatcher fit`` are made.

    Parameters
    ----------
    splits : str
        ``all``, or numbers such as ``0,1``.
    seed : int
        Of the first run; each further run takes the next.
    device, memory
        See `GPatcherClassifier`.
    source : dict, optional
        Where the graph came from, kept with the model.
    patch_table, engine, workers
        See `GPatcherClassifier.fit`.
    resume : bool
        Skip runs that are on record with the same settings, and continue from a checkpoint.
    compare : bool
        Train MLP and GCN on the split of the kept model, for the page.
    """

    splits: str = "0"
    seed: int = 0
    device: str = "cpu"
    memory: int | None = None
    source: dict[str, Any] | None = None
    patch_table: Path | None = None
    engine: RayEngine | None = None
    workers: int | None = None
    resume: bool = False
    compare: bool = True


class FitProgress:
    """Receives the progress of `fit_splits`; a subclass shows it."""

    def extracted(self, done: int, total: int) -> None:
        """Show the steps of the extraction that are done."""

    def epoch(self, run: int, runs: int, epoch: int, epochs: int, figures: dict[str, float]) -> None:
        """Show an epoch of a run."""

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
    before_saving: Callable[[], None] | None = None,
) -> list[Record]:
    """Train one model per split, append a record for each, keep the one that validated best.

    What ``settings`` does not give has its default. ``before_saving`` is called before the first model is saved, to
    write what else belongs into the folder; until then an earlier run in it stays as it was.
    """
    if model not in PATCHERS:
        raise InputError(f"fit_splits trains one of {', '.join(PATCHERS)}, got {model!r}; run_job trains a baseline")
    options, progress = options or FitOptions(), progress or FitProgress()
    settings = complete(settings, model)
    runs = plan_runs(graph, options.splits, options.seed)
    make_folder(out)
    key = settings_hash(settings if options.memory is None else {**settings, "memory": options.memory})
    finished = _finished(out, graph, settings, options.memory) if options.resume else {}
    records: list[Record] = []
    best = -1.0
    kept: GPatcherClassifier | None = None
    cache = Cache()
    how: dict[str, Any] = {
        name: getattr(options, name) for name in ("device", "memory", "patch_table", "engine", "workers")
    }
    for number, (split, seed) in enumerate(runs, 1):
        if (split, seed) in finished:
            records.append(finished[split, seed])
            best = max(best, records[-1]["val_accuracy"])
            continue
        # the checkpoint of another run or other settings is never taken for this one's
        checkpoint = out / f"checkpoint-{graph.content_hash}-{key}-{split}-{seed}.safetensors"
        if not options.resume:
            _remove_checkpoints(checkpoint)

        def show(epoch: int, figures: dict[str, float], number: int = number) -> None:
            progress.epoch(number, len(runs), epoch, settings["train"]["epochs"], figures)

        job = Job("fit", graph.name, model, settings, split, seed)
        run = run_job(
            job, graph, cache=cache, checkpoint=checkpoint, progress=show, extraction_progress=progress.extracted, **how
        )
        # the model first: a run that is on record is not made again
        if run.record["val_accuracy"] > best and run.classifier is not None:
            best, kept = run.record["val_accuracy"], run.classifier
            if before_saving is not None:
                before_saving()
                before_saving = None
            kept.save(out, source=options.source)
        append_record(out / RECORDS, run.record)
        _remove_checkpoints(checkpoint)
        records.append(run.record)
    if kept is None and not (out / EVALUATION).exists():
        # all runs were finished, but a kill came before the evaluation
        kept = GPatcherClassifier.load(out, graph)
    if kept is None:
        return records
    if graph.node_ids is not None:
        progress.stage("predicting")
        write_predictions(kept, graph, out / PREDICTIONS)
    _evaluate(kept, graph, out, options.compare, progress)
    return records


def _finished(out: Path, graph: Graph, settings: dict[str, Any], memory: int | None) -> dict[tuple[int, int], Record]:
    """Return the records of this graph and these settings by split and seed; the batch size depends on the memory."""
    wanted = ("fit", graph.content_hash, settings_hash(settings), memory)
    return {
        (record["split"], record["seed"]): record
        for record in read_records(out / RECORDS)
        if tuple(record.get(name) for name in ("experiment", "graph", "settings_hash", "memory")) == wanted
    }


def _remove_checkpoints(checkpoint: Path) -> None:
    """Remove the checkpoint of a run, and those of each choice of extractors that it compares."""
    # a name begins with a letter, so that seed 1 does not match those of seed 10
    for path in (checkpoint, *checkpoint.parent.glob(f"{checkpoint.stem}-[a-z]*{checkpoint.suffix}")):
        path.unlink(missing_ok=True)


def _evaluate(classifier: GPatcherClassifier, graph: Graph, out: Path, compare: bool, progress: FitProgress) -> None:
    """Evaluate a trained model beside MLP and GCN, and write evaluation.json, from which its page is made."""
    notes = []
    baselines: list[BaselineResult] = []
    if not compare:
        notes.append("MLP and GCN were not trained (--no-compare).")
    elif is_large(graph):
        notes.append("MLP and GCN are not trained beside it on a graph of this size.")
    else:
        baselines = train_baselines(classifier, graph, progress)
    progress.stage("evaluating")
    write_evaluation(evaluate(classifier, graph, baselines, notes), out)


def train_baselines(
    classifier: GPatcherClassifier, graph: Graph, progress: FitProgress | None = None
) -> list[BaselineResult]:
    """Train MLP and GCN on the split and features of a fitted model, with its training settings."""
    progress = progress or FitProgress()
    nodes = evaluated_nodes(classifier, graph)[1]
    cache, results = Cache(), []
    for name, title in BASELINES.items():
        progress.stage(f"training {title} for comparison")
        job = Job("fit", graph.name, name, baseline_settings(classifier), 0, classifier.seed)
        run = run_job(job, graph, classifier.split_, cache=cache, device=classifier.device)
        figures = (run.record[name] for name in ("val_accuracy", "test_accuracy", "train_seconds"))
        results.append(BaselineResult(title, run.predict(nodes), *figures))
    return results
