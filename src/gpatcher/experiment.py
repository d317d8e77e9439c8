"""Runs over splits: train, record, save; what `gpatcher fit` does and what the presets are chosen with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.data.splits import plan_runs
from gpatcher.data.tables import write_pieces
from gpatcher.engine import RayEngine
from gpatcher.estimator import GPatcherClassifier
from gpatcher.graph import FloatArray, Graph, InputError, IntArray
from gpatcher.newcomers import Newcomers
from gpatcher.records import Record, append_record, config_hash, peak_rss_mb, read_records, versions

_ROWS = 1 << 16  # predictions made and written at a time


def run_splits(
    graph: Graph,
    model: str,
    parameters: dict[str, Any],
    out: Path,
    *,
    splits: str = "0",
    seed: int = 0,
    device: str = "cpu",
    origin: dict[str, str | None] | None = None,
    patches: Path | None = None,
    engine: RayEngine | None = None,
    workers: int | None = None,
    resume: bool = False,
    progress: Callable[[int, int, int, int, dict[str, float]], None] | None = None,
    extracting: Callable[[int, int], None] | None = None,
) -> list[Record]:
    """Train one model per split, append a record for each, keep the one that validated best.

    Parameters
    ----------
    parameters : of `GPatcherClassifier`
    out : folder for records.jsonl, model.json, model.safetensors and filter.html
    patches, engine, workers : see `GPatcherClassifier.fit`
    resume : skip runs that are in records.jsonl with the same configuration, and go on from a checkpoint
    progress : called with run, runs, epoch, most epochs and the figures of the epoch
    extracting : called with steps done and steps in all while patches are made without eigenvectors
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
        prepared = prepared or classifier.prepare(graph, patches, progress=extracting)
        # the checkpoint of another run or configuration is never taken for this one's
        place = out / f"checkpoint-{graph.content}-{key}-{split}-{run_seed}.safetensors"
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
            "graph": graph.content,
            "model": model,
            "extractor": classifier.extractor_,
            "compared": classifier.compared_,
            "exact": classifier.exact_,
            "split": split,
            "seed": run_seed,
            "val_accuracy": result.val_accuracy,
            "test_accuracy": result.test_accuracy,
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "seconds": round(result.seconds, 3),
            "extract_seconds": round(prepared.seconds, 3),
            "batch_size": classifier.batch_size_,
            "peak_rss_mb": max(peak_rss_mb(), classifier.workers_peak_mb_),
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
        append_record(path, record)
        _forget(place)
        done.append(record)
    return done


def _forget(checkpoint: Path) -> None:
    """Remove the checkpoint of a run, and those of each extractor that ``auto`` compares."""
    # a name begins with a letter, so that seed 1 does not take those of seed 10 for its own
    for path in (checkpoint, *checkpoint.parent.glob(f"{checkpoint.stem}-[a-z]*{checkpoint.suffix}")):
        path.unlink(missing_ok=True)


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
        f"extractor {classifier.extractor_}; accuracy: validation {result.val_accuracy:.1%}{test}",
        [
            Figure(
                "Response of the filter",
                "How strongly each frequency counts when nodes are ranked for a patch.",
                classifier.filter_response().plot(),
            ),
            Figure("Training", f"The weights of epoch {result.best_epoch} were kept.", course),
        ],
    )


def write_predictions(
    classifier: GPatcherClassifier, graph: Graph, path: Path, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write a row for every node, .csv or .parquet, some at a time."""

    def pieces() -> Iterator[dict[str, npt.NDArray[Any]]]:
        for start in range(0, graph.n, _ROWS):
            stop = min(start + _ROWS, graph.n)
            yield prediction_columns(classifier, graph, np.arange(start, stop))
            if progress is not None:
                progress(stop, graph.n)

    write_pieces(pieces(), path)


def prediction_columns(
    classifier: GPatcherClassifier, graph: Graph, nodes: IntArray | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return id, predicted class, a probability per class, confidence and whether a node was trained on."""
    nodes = np.arange(graph.n) if nodes is None else nodes
    probability = classifier.predict_proba(graph, nodes)
    trained = np.isin(nodes, classifier.split_.train)
    ids = nodes if graph.node_ids is None else graph.node_ids[nodes]
    return _columns(classifier, ids, probability, trained)


def new_prediction_columns(classifier: GPatcherClassifier, newcomers: Newcomers) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of `prediction_columns` for nodes that came after training."""
    probability = classifier.predict_proba_new(newcomers)
    ids = newcomers.nodes if newcomers.node_ids is None else newcomers.node_ids
    return _columns(classifier, ids, probability, np.zeros(newcomers.count, dtype=bool))


def _columns(
    classifier: GPatcherClassifier, ids: npt.NDArray[Any], probability: FloatArray, trained: npt.NDArray[np.bool_]
) -> dict[str, npt.NDArray[Any]]:
    columns = {"id": ids, "predicted": classifier.classes_[probability.argmax(1)]}
    columns |= {f"probability_{name}": probability[:, c] for c, name in enumerate(classifier.classes_)}
    return {**columns, "confidence": probability.max(1), "in_training": trained}
