"""One run: from a job to a record and a trained model; shared by ``fit``, ``bench`` and ``tune``.

A new model is a module ``model(x, nodes) -> logits`` in a file of `gpatcher.baselines`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.baselines import BASELINES, make_baseline
from gpatcher.datasets.registry import NAMED, canonical_key
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeModel, NodeRegressor, labelled
from gpatcher.estimator.classifier import GPatcherClassifier, GPatcherRegressor, PatchModel
from gpatcher.estimator.ensemble import AutoClassifier, AutoRegressor
from gpatcher.estimator.members import Progress as EnsembleProgress
from gpatcher.estimator.members import describe_member
from gpatcher.estimator.memory import peak_rss_mb, reset_peak
from gpatcher.estimator.prepare import Prepared, as_extractors, check_device
from gpatcher.estimator.settings import Settings, make_config
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, stratified_split
from gpatcher.model.inputs import FeatureConfig, FeatureTable, node_features
from gpatcher.patches.base import Progress as ExtractionProgress
from gpatcher.patches.spectral import LearnedFilter
from gpatcher.runs.ablations import ShuffledExtractor, patch_graph
from gpatcher.runs.evaluation import is_large
from gpatcher.runs.records import RECORD_VERSION, Record, settings_hash, versions
from gpatcher.runs.settings import AUTO, PATCHERS
from gpatcher.scale.executors import Engine, RayEngine
from gpatcher.spectral.heterophily import heterophily
from gpatcher.training.loop import FitResult, Progress, fit, predict_logits
from gpatcher.training.task import Classification, Task, task_of
from gpatcher.trust.calibration import reliability
from gpatcher.trust.conformal import interval_coverage

_POINTS = 41  # of the filter response in a record


@dataclass(frozen=True)
class Job:
    """The description of a run; its id is a hash of all fields but the number of trials.

    Parameters
    ----------
    experiment : str
        Name of the experiment, or ``fit`` or ``tune``.
    dataset : str
        Name of the data set, or another source of the graph.
    model : str
        ``gpatcher``, ``fast``, ``deep``, ``auto`` or the name of a baseline.
    settings : mapping
        With the sections patches, features, model and train, or auto, see `gpatcher.runs.settings`.
    split, seed : int
    row : str
        Row of the table.
    trials : int, optional
        Number of trials that the settings were chosen from; None if they were not tuned.
    ablation : mapping
        ``shuffle_patches: true`` permutes the positions of a patch; ``induced``, settings of GPatcher, trains on the
        graph induced by its patches.
    task : str
        A key of `gpatcher.bench.tasks.TASKS`.
    """

    experiment: str
    dataset: str
    model: str
    settings: Mapping[str, Any]
    split: int
    seed: int
    row: str = ""
    trials: int | None = None
    ablation: Mapping[str, Any] = field(default_factory=dict)
    task: str = "train"

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        parts = [self.experiment, self.task, self.dataset, self.row, self.model, self.settings, self.split, self.seed]
        parts += [self.ablation] if self.ablation else []
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def header(self) -> Record:
        """Return the fields of a record that are known before the run."""
        return {
            "version": RECORD_VERSION,
            "job": self.id,
            "experiment": self.experiment,
            "dataset": self.dataset,
            "row": self.row or self.model,
            "model": self.model,
            "split": self.split,
            "seed": self.seed,
            "trials": self.trials,
            "settings_hash": settings_hash(self.settings),
            "settings": dict(self.settings),
            "ablation": dict(self.ablation),
            "error": None,
        }


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a job: its record and the trained model, a classifier or the module of a baseline."""

    record: Record
    logits: Callable[[IntArray], FloatArray]  # of nodes, or predicted numbers
    classifier: NodeModel | None = None
    module: nn.Module | None = None  # None for an ensemble
    x: FeatureTable | None = None  # input features of the module
    result: FitResult | None = None  # metrics of its training
    task: Task = field(default_factory=Classification)

    def predict(self, nodes: IntArray) -> npt.NDArray[Any]:
        """Return the class numbers of some nodes, or the predicted numbers."""
        answers = self.logits(nodes)
        return np.asarray(answers.argmax(1) if isinstance(self.task, Classification) else answers[:, 0])


class Cache:
    """Shared by the runs of a process: features, patches and heterophily of the last graph."""

    def __init__(self) -> None:
        self.prepared: tuple[Prepared, ...] | None = None
        self._features: dict[tuple[FeatureConfig, str], FeatureTable] = {}
        self._graph: Graph | None = None
        self._heterophily: tuple[Graph, float | None] | None = None

    def features(self, graph: Graph, config: FeatureConfig, device: str = "cpu") -> FeatureTable:
        """Return the features, computed once per graph, configuration and device."""
        if self._graph is not graph:
            self._features, self._graph = {}, graph
        if (config, device) not in self._features:
            self._features[config, device] = node_features(graph, config, check_device(device))
        return self._features[config, device]

    def node_heterophily(self, graph: Graph) -> float | None:
        """Return the node heterophily, measured once per graph; None if it is undefined or the graph is large."""
        if self._heterophily is None or self._heterophily[0] is not graph:
            level = np.nan if is_large(graph) or graph.is_regression else heterophily(graph).node_heterophily
            self._heterophily = graph, None if np.isnan(level) else round(level, 4)
        return self._heterophily[1]


def run_job(
    job: Job,
    graph: Graph,
    split: Split | None = None,
    *,
    cache: Cache | None = None,
    read_test: bool = True,
    device: str = "cpu",
    memory: int | None = None,
    patch_table: Path | None = None,
    checkpoint: Path | None = None,
    engine: RayEngine | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    extraction_progress: ExtractionProgress | None = None,
    auto: AutoOptions | None = None,
) -> Run:
    """Train one model on one split; the test nodes are read once, at the end.

    Parameters
    ----------
    job : Job
    graph : Graph
    split : Split, optional
        By default the graph's split with the job's number; if the graph has none, a random stratified one.
    cache : Cache, optional
        Shares features and patches between runs on the same graph.
    read_test : bool
        False while settings are tuned: the test nodes are removed from the split before training.
    device, memory, patch_table, checkpoint, engine, workers, progress
        See `GPatcherClassifier` and its ``fit``.
    extraction_progress : callable, optional
        Called with the steps done and the total while patches are extracted without eigenvectors.
    auto : AutoOptions, optional
        How an ensemble is trained; by default on the split, in this process.

    Returns
    -------
    Run

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> graph = csbm(phi=0.8, n=200, features=10)
    >>> settings = {"model": {"hidden": 8}, "train": {"epochs": 5}}
    >>> run_job(Job("fit", "csbm", "mlp", settings, 0, 0), graph, graph.splits[0]).record["epochs"]
    5
    """
    if job.model not in (*BASELINES, *PATCHERS, AUTO):
        raise InputError(f"unknown model {job.model!r}; choose one of {', '.join((*BASELINES, *PATCHERS, AUTO))}")
    cache = cache or Cache()
    reset_peak()
    started = time.perf_counter()
    if split is None:
        split = _own_split(job, graph)
    if not read_test:
        split = Split(split.train, split.val, np.empty(0, np.int64))
    how: dict[str, Any] = {"device": device, "memory": memory}
    if job.model == AUTO:
        trained = _train_ensemble(job, graph, split, how, auto or AutoOptions(), checkpoint, engine)
    elif job.model in PATCHERS:
        trained = _train_patches(
            job,
            graph,
            split,
            cache,
            how,
            patch_table,
            extraction_progress,
            progress=progress,
            checkpoint=checkpoint,
            engine=engine,
            workers=workers,
        )
    else:
        trained = _train_baseline(job, graph, split, cache, device, progress)
    y = graph.labels()
    task = task_of(y, split.train)
    held, logits = trained.held_out
    val_metrics = task.measure_all(logits, y[held]) if held.size else None
    test_nodes = labelled(graph, split.test)
    test_metrics = None
    if read_test and test_nodes.size:
        test_metrics = task.measure_all(trained.logits(test_nodes), y[test_nodes])
    dataset = NAMED.get(canonical_key(job.dataset))
    metric = dataset.metric if dataset and not graph.is_regression else task.metric
    val = (val_metrics or {}).get(metric)
    if val is None:
        raise InputError(f"{metric} is not defined on the validation nodes of {graph.name}")
    test = test_metrics or {}
    record = job.header() | {
        "graph": graph.content_hash,
        "directed": graph.is_directed,
        "leaky": bool(dataset and dataset.leaky),
        "split_hash": split.hash,
        "split_sizes": list(split.sizes),
        "metric": metric,
        "val": val,
        "test": test.get(metric),
        "val_accuracy": (val_metrics or {}).get("accuracy"),
        "test_accuracy": test.get("accuracy"),
        "metrics": {"validation": val_metrics, "test": test_metrics},
        "memory": memory,
        **_NO_PATCHES,
        **trained.fields,
        "peak_rss_mb": max(peak_rss_mb(), trained.workers_peak_mb),
        "seconds": round(time.perf_counter() - started, 3),
        "node_heterophily": cache.node_heterophily(graph),
        "versions": versions(),
    }
    return Run(record, trained.logits, trained.classifier, trained.module, trained.x, trained.result, task)


# fields of a record that only some kinds of models have
_NO_PATCHES: Record = {
    "extractors": None,
    "compared": None,
    "extract_seconds": 0.0,
    "calibration": None,
    "response": None,
    "members": None,
}


@dataclass(frozen=True, eq=False)
class _Trained:
    """A trained model and the fields of its record about training."""

    logits: Callable[[IntArray], FloatArray]  # of nodes
    held_out: tuple[IntArray, FloatArray]  # validation nodes with a label, and their logits
    fields: Record
    classifier: NodeModel | None = None
    module: nn.Module | None = None
    x: FeatureTable | None = None
    result: FitResult | None = None
    workers_peak_mb: float = 0.0


def _result_fields(result: FitResult, batch_size: int | None) -> Record:
    return {
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "batch_size": batch_size,
        "train_seconds": round(result.seconds, 3),
    }


def _train_baseline(
    job: Job, graph: Graph, split: Split, cache: Cache, device: str, progress: Progress | None
) -> _Trained:
    training_graph = _induced_graph(job, graph, split, cache) if job.ablation.get("induced") else graph
    config = make_config("train", job.settings.get("train", {}))
    x = cache.features(training_graph, make_config("features", job.settings.get("features", {})), device)
    torch.manual_seed(job.seed)
    own = job.settings.get("model", {})
    module = make_baseline(job.model, training_graph, x.shape[1], split, **own).to(x.device)
    result = fit(module, x, training_graph.labels(), split, config, seed=job.seed, progress=progress)

    task = task_of(training_graph.labels(), split.train)

    def logits(nodes: IntArray) -> FloatArray:
        return task.answer(predict_logits(module, x, nodes, config.batch_size).numpy())

    held = labelled(graph, split.val)
    fields = _result_fields(result, config.batch_size)
    return _Trained(logits, (held, logits(held)), fields, module=module, x=x, result=result)


def _train_patches(
    job: Job,
    graph: Graph,
    split: Split,
    cache: Cache,
    how: dict[str, Any],
    patch_table: Path | None,
    extraction_progress: ExtractionProgress | None,
    **training: Any,
) -> _Trained:
    kind = GPatcherRegressor if graph.is_regression else GPatcherClassifier
    classifier = kind.from_settings(dict(job.settings), seed=job.seed, **how)
    if cache.prepared is None or not classifier._matches(cache.prepared, graph):
        cache.prepared = classifier.prepare(graph, patch_table, progress=extraction_progress)
    prepared = cache.prepared
    if job.ablation.get("shuffle_patches"):  # shuffling does not change the prepared data, so they are shared
        shuffled = tuple(
            ShuffledExtractor(size=extractor.size, extractor=extractor, seed=job.seed)
            for extractor in as_extractors(classifier.patches)
        )
        classifier.set_params(patches=shuffled)
        prepared = tuple(replace(one, extractors=shuffled) for one in prepared)
    classifier.fit(graph, split, prepared=prepared, **training)

    def logits(nodes: IntArray) -> FloatArray:
        return classifier.decision_function(graph, nodes)

    held = labelled(graph, split.val)
    fields = _result_fields(classifier.result_, classifier.batch_size_) | _patch_fields(classifier, graph, cache)
    return _Trained(
        logits,
        (held, logits(held)),
        fields,
        classifier,
        classifier.model_,
        classifier.features_,
        classifier.result_,
        classifier.workers_peak_mb_,
    )


@dataclass(frozen=True)
class AutoOptions:
    """How an ensemble is trained, besides the settings of its job; see `AutoClassifier.fit`."""

    refit: bool = False
    cross_validate: bool = False
    engine: Engine | None = None  # by default one process
    progress: EnsembleProgress | None = None


def _train_ensemble(
    job: Job,
    graph: Graph,
    split: Split,
    how: dict[str, Any],
    options: AutoOptions,
    checkpoint: Path | None,
    engine: RayEngine | None,
) -> _Trained:
    settings = dict(job.settings["auto"])
    keep_best = settings.pop("keep_best")
    kind = AutoRegressor if graph.is_regression else AutoClassifier
    classifier = kind(**settings, seed=job.seed, **how)
    started = time.perf_counter()
    classifier.fit(
        graph,
        split,
        refit=options.refit,
        cross_validate=options.cross_validate,
        folder=None if checkpoint is None else checkpoint.with_suffix(""),
        progress=options.progress,
        engine=engine or options.engine,
    )
    if keep_best:
        classifier.keep_best()
    fields: Record = {
        "epochs": None,
        "best_epoch": None,
        "batch_size": None,
        "train_seconds": round(time.perf_counter() - started, 3),
        "calibration": _calibration(classifier, graph),
        "members": {"trained": [describe_member(m) for m in classifier.members_], "skipped": classifier.skipped_},
    }
    held, logits = classifier.held_out_
    return _Trained(lambda nodes: classifier.decision_function(graph, nodes), (held, logits), fields, classifier)


def _own_split(job: Job, graph: Graph) -> Split:
    if not graph.splits:
        return stratified_split(graph.labels(), 0.6, 0.2, job.seed)
    if not 0 <= job.split < len(graph.splits):
        raise InputError(f"{graph.name} has no split {job.split}; its splits are 0 to {len(graph.splits) - 1}")
    return graph.splits[job.split]


def _patch_fields(classifier: PatchModel, graph: Graph, cache: Cache) -> Record:
    """Return the fields of a record about patches."""
    extractors = [e.extractor if isinstance(e, ShuffledExtractor) else e for e in classifier.extractors_]
    response = None
    if isinstance(extractors[0], LearnedFilter):
        response = [round(float(g), 4) for g in classifier.filter_response(_POINTS).response]
    return {
        "extractors": [extractor.name for extractor in extractors],
        "compared": classifier.compared_,
        "extract_seconds": round(sum(one.seconds for one in cache.prepared or ()), 3),
        "calibration": _calibration(classifier, graph),
        "response": response,
    }


def _calibration(classifier: Any, graph: Graph) -> dict[str, float | None]:
    """Return the temperature and the expected calibration error without and with it, on validation and test nodes.

    Of numbers: the coverage of 90 % intervals on the test nodes, and their width.
    """
    calibration = classifier.calibration_
    test = labelled(graph, classifier.split_.test)
    if isinstance(classifier, NodeRegressor):
        covered, width = None, None
        if test.size:
            intervals = classifier.predict_interval(graph, test, level=0.9)
            covered, width = interval_coverage(intervals, graph.labels()[test])
        width = None if width is None or not np.isfinite(width) else width
        return {"nodes": calibration.nodes, "test_coverage_90": covered, "test_width_90": width}
    before = after = None
    if test.size:
        y = graph.labels()[test]
        before = reliability(classifier.predict_proba(graph, test, calibrated=False), y).error
        after = reliability(classifier.predict_proba(graph, test), y).error
    return {
        "temperature": calibration.temperature,
        "val_error_before": calibration.error_before,
        "val_error_after": calibration.error_after,
        "test_error_before": before,
        "test_error_after": after,
    }


def _induced_graph(job: Job, graph: Graph, split: Split, cache: Cache) -> Graph:
    """Train GPatcher on this split and link each node to the members of its patch.

    The graph depends on the training labels and, by early stopping, on the validation labels.
    """
    inner = replace(job, model="gpatcher", settings=job.ablation["induced"], ablation={})
    run = run_job(inner, graph, split, cache=cache, read_test=False)
    assert isinstance(run.classifier, PatchModel)
    return patch_graph(graph, run.classifier.patches_)


def mean_response(values: FloatArray, response: list[float]) -> float:
    """Return the mean of g over the eigenvalues, with g scaled to a maximum magnitude of 1 there.

    The scale of g is arbitrary, because the scores of a patch are scaled to mean magnitude 1. ``response`` is g at
    equally spaced points from -1 to 1.
    """
    g = np.interp(values, np.linspace(-1, 1, len(response)), response)
    return float(g.mean() / max(np.abs(g).max(), 1e-12))


def baseline_settings(classifier: PatchModel) -> Settings:
    """Return settings for a baseline to compare with a fitted classifier: the same features, width and training."""
    settings = classifier.settings()
    model = {"hidden": classifier.model.hidden, "dropout": classifier.model.dropout}
    return {"features": settings["features"], "model": model, "train": {**settings["train"], "batch_size": None}}
