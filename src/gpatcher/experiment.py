"""Runs over splits: train, record, save; what `gpatcher fit` does and what the presets are chosen with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.data.tables import write_table
from gpatcher.estimator import GPatcherClassifier
from gpatcher.graph import Graph, InputError, IntArray
from gpatcher.metrics import measure_all
from gpatcher.records import Record, append_record, config_hash, peak_rss_mb, read_records, versions

_SEEDS = 10  # runs of `--splits all` where the data have one split


def plan_runs(graph: Graph, splits: str, seed: int) -> list[tuple[int, int]]:
    """Return (split, seed) of each run that ``splits`` asks for: "all", or numbers such as "0,1".

    "all" is every split of the graph, or ten seeds on the one it has (made, where it has none).
    """
    several = len(graph.splits) > 1
    if splits.strip() == "all":
        count = len(graph.splits) if several else _SEEDS
        return [(i if several else 0, seed + i) for i in range(count)]
    try:
        numbers = [int(part) for part in splits.split(",")]
    except ValueError:
        raise InputError(f"splits must be 'all' or numbers such as 0,1, got {splits!r}") from None
    most = len(graph.splits) if several else _SEEDS
    for number in numbers:
        if not 0 <= number < most:
            raise InputError(f"there is no split {number}: {graph.name} has 0 to {most - 1}")
    return [(number if several else 0, seed + number) for number in numbers]


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
    resume: bool = False,
    progress: Callable[[int, int, int, int, dict[str, float]], None] | None = None,
) -> list[Record]:
    """Train one model per split, append a record for each, keep the one that validated best.

    Parameters
    ----------
    parameters : of `GPatcherClassifier`
    out : folder for records.jsonl, model.json, model.safetensors and filter.html
    resume : skip runs that are in records.jsonl with the same configuration, and go on from a checkpoint
    progress : called with run, runs, epoch, most epochs and the figures of the epoch
    """
    try:
        classifier = GPatcherClassifier(**parameters, device=device)
    except TypeError as error:
        raise InputError(f"unknown parameter: {error}") from None
    runs = plan_runs(graph, splits, seed)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "records.jsonl"
    config = {k: v for k, v in classifier.get_params().items() if k not in ("seed", "memory", "device")}
    key = config_hash(config)
    mine = [r for r in read_records(path) if (r.get("graph"), r["config_hash"]) == (graph.content, key)]
    finished = {(r["split"], r["seed"]): r for r in mine} if resume else {}

    done: list[Record] = []
    prepared = None
    best = -1.0
    for number, (split, run_seed) in enumerate(runs, 1):
        if (split, run_seed) in finished:
            done.append(finished[split, run_seed])
            best = max(best, done[-1]["val_accuracy"])
            continue
        classifier.set_params(seed=run_seed)
        prepared = prepared or classifier.prepare(graph)
        # the checkpoint of another run or configuration is never taken for this one's
        place = out / f"checkpoint-{graph.content}-{key}-{split}-{run_seed}.safetensors"
        if not resume:
            place.unlink(missing_ok=True)

        def show(epoch: int, figures: dict[str, float], at: int = number) -> None:
            if progress is not None:
                progress(at, len(runs), epoch, classifier.epochs, figures)

        classifier.fit(graph, split if graph.splits else None, prepared=prepared, progress=show, checkpoint=place)
        result = classifier.result_
        record: Record = {
            "dataset": graph.name,
            "graph": graph.content,
            "model": model,
            "extractor": classifier.extractor,
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
            "peak_rss_mb": peak_rss_mb(),
            "split_hash": classifier.split_.hash,
            "directed_input": graph.is_directed,
            "config_hash": key,
            "config": config,
            "versions": versions(),
        }
        # the model first: a run that is on record is not made again
        if result.val_accuracy > best:
            best = result.val_accuracy
            classifier.save(out, source=origin)
            write_filter_page(classifier, graph, out / "filter.html")
            if graph.node_ids is not None:  # somebody's own data: the answers too
                write_table(prediction_columns(classifier, graph), out / "predictions.parquet")
        append_record(path, record)
        place.unlink(missing_ok=True)
        done.append(record)
    return done


def _metrics(classifier: GPatcherClassifier, graph: Graph, nodes: IntArray) -> dict[str, float | None] | None:
    known = nodes[graph.labels()[nodes] >= 0]
    return measure_all(graph.labels()[known], classifier.predict_proba(graph, known)) if known.size else None


def write_filter_page(classifier: GPatcherClassifier, graph: Graph, path: Path) -> None:
    """Write a page with the response of the filter and the course of the training."""
    import plotly.graph_objects as go

    from gpatcher.report.page import Figure, write_page

    history = classifier.result_.history
    course = go.Figure()
    epochs = list(range(1, len(history) + 1))
    for name, label in (("train_loss", "training loss"), ("val_loss", "validation loss")):
        course.add_scatter(x=epochs, y=[h[name] for h in history], name=label)
    course.update_xaxes(title="epoch")
    course.update_yaxes(title="loss")
    result = classifier.result_
    test = "" if result.test_accuracy is None else f", test {result.test_accuracy:.1%}"
    write_page(
        path,
        f"{graph.name}: what the filter learned",
        f"extractor {classifier.extractor}; accuracy: validation {result.val_accuracy:.1%}{test}",
        [
            Figure(
                "Response of the filter",
                "How strongly each frequency counts when nodes are ranked for a patch.",
                classifier.filter_response().plot(),
            ),
            Figure("Training", f"The weights of epoch {result.best_epoch} were kept.", course),
        ],
    )


def prediction_columns(classifier: GPatcherClassifier, graph: Graph) -> dict[str, npt.NDArray[Any]]:
    """Return id, predicted class, a probability per class, confidence and whether a node was trained on."""
    probability = classifier.predict_proba(graph)
    trained = np.zeros(graph.n, dtype=bool)
    trained[classifier.split_.train] = True
    ids = np.arange(graph.n) if graph.node_ids is None else graph.node_ids
    columns = {"id": ids, "predicted": classifier.classes_[probability.argmax(1)]}
    columns |= {f"probability_{name}": probability[:, c] for c, name in enumerate(classifier.classes_)}
    return {**columns, "confidence": probability.max(1), "in_training": trained}
