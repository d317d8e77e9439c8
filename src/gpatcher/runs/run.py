"""Runs over splits: train, record, save; what `gpatcher fit` does and what the presets are chosen with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpatcher.arrays import IntArray
from gpatcher.baselines import make_baseline
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import plan_runs
from gpatcher.report.run import write_run
from gpatcher.runs.evaluation import BaselineResult, evaluate, evaluated_nodes, is_large
from gpatcher.runs.predict import write_predictions
from gpatcher.runs.records import Record, append_record, config_hash, peak_rss_mb, read_records, versions
from gpatcher.scale.executors import RayEngine
from gpatcher.training.loop import TrainConfig, fit, predict_logits
from gpatcher.training.metrics import measure_all
from gpatcher.trust.calibration import reliability


def run_splits(
    graph: Graph,
    model: str,
    parameters: dict[str, Any],
    out: Path,
    *,
    splits: str = "0",
    seed: int = 0,
    device: str = "cpu",
    origin: dict[str, Any] | None = None,
    keep: Callable[[], None] | None = None,
    patches: Path | None = None,
    engine: RayEngine | None = None,
    workers: int | None = None,
    resume: bool = False,
    compare: bool = True,
    progress: Callable[[int, int, int, int, dict[str, float]], None] | None = None,
    extracting: Callable[[int, int], None] | None = None,
    stage: Callable[[str], None] | None = None,
) -> list[Record]:
    """Train one model per split, append a record for each, keep the one that validated best.

    Parameters
    ----------
    parameters : of `GPatcherClassifier`
    out : folder for records.jsonl, model.json, model.safetensors and report.html, the page of the kept model
    origin : where the graph came from, kept with the model
    keep : called before the first model is saved: what else belongs into the folder; until then an earlier run in it
        stays as it was
    compare : train MLP and GCN on the split of the kept model, for the page
    patches, engine, workers : see `GPatcherClassifier.fit`
    resume : skip runs that are in records.jsonl with the same configuration, and go on from a checkpoint
    progress : called with run, runs, epoch, most epochs and the figures of the epoch
    extracting : called with steps done and steps in all while patches are made without eigenvectors
    stage : called with a few words on what is done after the runs
    """
    try:
        classifier = GPatcherClassifier(**parameters, device=device)
    except TypeError as error:
        raise InputError(f"unknown parameter: {error}") from None
    runs = plan_runs(graph, splits, seed)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "records.jsonl"
    config = {k: v for k, v in classifier.get_params().items() if k not in ("seed", "memory", "device")}
    if classifier.memory is not None and classifier.batch_size is None and classifier.extractor == "ppr":
        config["memory"] = classifier.memory  # the batch size follows from it
    key = config_hash(config)
    mine = [r for r in read_records(path) if (r.get("graph"), r["config_hash"]) == (graph.content_hash, key)]
    finished = {(r["split"], r["seed"]): r for r in mine} if resume else {}

    done: list[Record] = []
    prepared = None
    best = -1.0
    kept: GPatcherClassifier | None = None
    page = out / "report.html"
    for number, (split, run_seed) in enumerate(runs, 1):
        if (split, run_seed) in finished:
            done.append(finished[split, run_seed])
            best = max(best, done[-1]["val_accuracy"])
            continue
        classifier.set_params(seed=run_seed)
        prepared = prepared or classifier.prepare(graph, patches, progress=extracting)
        # the checkpoint of another run or configuration is never taken for this one's
        place = out / f"checkpoint-{graph.content_hash}-{key}-{split}-{run_seed}.safetensors"
        if not resume:
            _forget(place)

        def show(epoch: int, figures: dict[str, float], at: int = number) -> None:
            if progress is not None:
                progress(at, len(runs), epoch, classifier.epochs, figures)

        classifier.fit(
            graph,
            split if graph.splits else None,
            prepared=prepared,
            progress=show,
            checkpoint=place,
            engine=engine,
            workers=workers,
        )
        result = classifier.result_
        record: Record = {
            "dataset": graph.name,
            "graph": graph.content_hash,
            "model": model,
            "extractor": classifier.extractor_,
            "compared": classifier.compared_,
            "exact": classifier.exact_,
            "split": split,
            "seed": run_seed,
            "val_accuracy": result.val_accuracy,
            "test_accuracy": result.test_accuracy,
            "metrics": {
                "validation": _metrics(classifier, graph, classifier.split_.val),
                "test": _metrics(classifier, graph, classifier.split_.test),
            },
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "seconds": round(result.seconds, 3),
            "extract_seconds": round(prepared.seconds, 3),
            "batch_size": classifier.batch_size_,
            "peak_rss_mb": max(peak_rss_mb(), classifier.workers_peak_mb_),
            "split_hash": classifier.split_.hash,
            "calibration": calibration_figures(classifier, graph),
            "directed_input": graph.is_directed,
            "config_hash": key,
            "config": config,
            "versions": versions(),
        }
        # the model first: a run that is on record is not made again
        if result.val_accuracy > best:
            best = result.val_accuracy
            if keep is not None:
                keep()
                keep = None
            classifier.save(out, source=origin)
            kept = copy.copy(classifier)  # fitting anew gives the classifier a new model, and leaves this one its own
        append_record(path, record)
        _forget(place)
        done.append(record)
    if kept is None and not page.exists():  # all runs were finished, but a kill came before the page
        kept = GPatcherClassifier.load(out, graph)
    if kept is not None:
        if graph.node_ids is not None:  # somebody's own data: the answers too
            write_predictions(kept, graph, out / "predictions.parquet")
        write_report(kept, graph, page, compare, stage)
    return done


def _forget(checkpoint: Path) -> None:
    """Remove the checkpoint of a run, and those of each extractor that ``auto`` compares."""
    # a name begins with a letter, so that seed 1 does not take those of seed 10 for its own
    for path in (checkpoint, *checkpoint.parent.glob(f"{checkpoint.stem}-[a-z]*{checkpoint.suffix}")):
        path.unlink(missing_ok=True)


def _metrics(classifier: GPatcherClassifier, graph: Graph, nodes: IntArray) -> dict[str, float | None] | None:
    known = nodes[graph.labels()[nodes] >= 0]
    return measure_all(graph.labels()[known], classifier.predict_proba(graph, known)) if known.size else None


def write_report(
    classifier: GPatcherClassifier,
    graph: Graph,
    path: Path,
    compare: bool = True,
    stage: Callable[[str], None] | None = None,
) -> None:
    """Write the page of a trained model: how well it did beside MLP and GCN, what it learned, why, and the graph."""
    left_out = []
    rivals: list[BaselineResult] = []
    if not compare:
        left_out.append("MLP and GCN were not trained (--no-compare).")
    elif is_large(graph):
        left_out.append("MLP and GCN are not trained beside it on a graph of this size.")
    else:
        rivals = train_rivals(classifier, graph, stage)
    if stage is not None:
        stage("writing the page")
    write_run(evaluate(classifier, graph, rivals, left_out), path)


def train_rivals(
    classifier: GPatcherClassifier, graph: Graph, stage: Callable[[str], None] | None = None
) -> list[BaselineResult]:
    """Train MLP and GCN on the split and features of a fitted model, with its training settings."""
    settings = {name: getattr(classifier, name) for name in TrainConfig.__dataclass_fields__}
    config = TrainConfig(**{**settings, "batch_size": None})
    x = classifier.features_
    ids = evaluated_nodes(classifier, graph)[1]
    rivals = []
    for name in ("MLP", "GCN"):
        if stage is not None:
            stage(f"training {name} to compare with")
        torch.manual_seed(classifier.seed)
        sizes = {"hidden": classifier.hidden, "dropout": classifier.dropout}
        model = make_baseline(name.lower(), graph, x.shape[1], classifier.split_, **sizes).to(x.device)
        result = fit(model, x, graph.labels(), classifier.split_, config, seed=classifier.seed)
        predicted = predict_logits(model, x, ids).argmax(1).numpy()
        rivals.append(BaselineResult(name, predicted, result.val_accuracy, result.test_accuracy, result.seconds))
    return rivals


def calibration_figures(classifier: GPatcherClassifier, graph: Graph) -> dict[str, float | None]:
    """Return the temperature and the expected calibration error before and after it, on validation and on test."""
    known = classifier.split_.test[graph.labels()[classifier.split_.test] >= 0]
    test: list[float | None] = [None, None]
    if known.size:
        raw = classifier.predict_proba(graph, known, calibrated=False)
        test = [reliability(p, graph.labels()[known]).error for p in (raw, classifier.predict_proba(graph, known))]
    return {
        "temperature": classifier.calibration_.temperature,
        "val_error_before": classifier.calibration_.error_before,
        "val_error_after": classifier.calibration_.error_after,
        "test_error_before": test[0],
        "test_error_after": test[1],
    }
