"""Estimates of time, memory and disk before the work: the only place that knows what things cost.

Each is measured on a small part of the work and scaled: patches of some nodes, or a few epochs on at most 4,000 nodes.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import IntArray
from gpatcher.estimator.base import NodeModel
from gpatcher.estimator.classifier import GPatcherClassifier, GPatcherRegressor, PatchModel
from gpatcher.estimator.ensemble import QUALITIES, AutoClassifier, AutoRegressor
from gpatcher.estimator.members import choose_jobs, choose_seeds, make_folds
from gpatcher.estimator.memory import peak_rss_mb, reset_peak
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, is_labelled, plan_runs
from gpatcher.patches.ppr import PPR, push_patches
from gpatcher.runs.fit import FitOptions
from gpatcher.runs.settings import AUTO, complete

_NODES = 4_000  # of the graph that is trained on
_FIRST = 500  # of the graph that is trained on before it, so that loading and compiling code is not measured
_LABELS = 8  # per class, in each part of the split of that graph
_EPOCHS = 4
_BEST_EPOCH = 100  # a typical one; training goes on for the patience after it
_REFIT = 0.4  # fraction of the members of an ensemble that are trained again on all labels
_AFTER = 0.25  # baselines, predictions, the evaluation and the page, as a fraction of the training
_START = 8.0  # seconds of imports, of compiled code from the cache and of the page
_PAGE = 6 << 20  # bytes
_SAMPLE = 1_000  # nodes whose patches are computed


@dataclass(frozen=True)
class Estimate:
    """What a command will take."""

    seconds: float
    memory: int  # bytes at the peak
    disk: int  # bytes of its files

    def __str__(self) -> str:
        minutes = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        minutes = minutes if self.seconds < 7200 else f"{self.seconds / 3600:.1f} h"
        disk = f"{self.disk / 2**20:,.0f} MiB" if self.disk < 2**30 else f"{self.disk / 2**30:.1f} GiB"
        return f"about {minutes}, {self.memory / 2**30:.1f} GiB of memory and {disk} of disk, by a rough estimate"


def estimate_patches(graph: Graph, extractor: PPR, threads: int | None = None, spent: float = 0.0) -> Estimate:
    """Estimate what a patch table takes, from the patches of a sample of nodes.

    ``spent`` are the seconds until the graph was there, which the command spends again.
    """
    sample = np.random.default_rng(0).choice(graph.n, min(_SAMPLE, graph.n), replace=False)
    push_patches(graph, extractor, sample[:8], threads=1)  # compiles, and normalises the adjacency
    started = time.perf_counter()
    push_patches(graph, extractor, sample, threads=1)
    each = (time.perf_counter() - started) / len(sample)
    table = estimate_table(graph.n, extractor.size, each, threads or os.cpu_count() or 1)
    return Estimate(spent + table.seconds, int(peak_rss_mb() * 2**20) + table.memory, table.disk)


def estimate_table(nodes: int, size: int, each: float, cores: int) -> Estimate:
    """Estimate a patch table from the seconds of one source on one core; its memory is beside that of the graph."""
    row = 8 * size  # an index and a score for each position
    return Estimate(each * nodes / cores, 3 * row * min(nodes, 1 << 16), row * nodes)


def estimate_fit(graph: Graph, model: str, settings: dict[str, Any], options: FitOptions) -> Estimate:
    """Estimate what `fit_splits` takes, from a few epochs of each model."""
    small, scale = _fold(graph, _NODES)
    runs = len(plan_runs(graph, options.splits, options.seed))
    split = graph.splits[0] if graph.splits else None
    models: list[NodeModel]
    if model == AUTO:
        quality = QUALITIES[settings["auto"]["quality"]]
        kind = AutoRegressor if graph.is_regression else AutoClassifier
        classifier = kind(quality=settings["auto"]["quality"], memory=options.memory)
        chosen, _ = classifier._applicable(graph, quality.members)
        models = [candidate.make(memory=options.memory) for candidate in chosen]
        folds = 1
        if options.cross_validate and split is not None:
            folds = len(make_folds(graph, split, quality.models, options.seed) or [split])
        jobs = choose_jobs(graph, options.jobs, options.device)
        seeds = len(choose_seeds(graph, options.seed, quality.models))
        each, final = seeds if folds == 1 else folds, seeds if options.refit else 0
        prepares, fits, saved = 1 + _REFIT * (final > 0), each + _REFIT * final, _REFIT * (each + final)
        limit = settings["auto"].get("budget") or np.inf
    else:
        patches = GPatcherRegressor if graph.is_regression else GPatcherClassifier
        models = [patches.from_settings(complete(settings, model), memory=options.memory, device=options.device)]
        prepares, fits, saved, jobs, limit = 1 / runs, 1.0, 1.0, 1, np.inf  # prepared once for all runs
    for first in models if scale > 1 else ():
        _measure(first, _fold(graph, _FIRST)[0], 1.0)
    reset_peak()
    before = peak_rss_mb()
    seconds = disk = 0.0
    for one in models:
        prepare, train, size = _measure(one, small, scale)
        seconds += prepares * prepare + fits * train
        disk += saved * size
    seconds = runs * min(seconds / jobs, limit)
    grown = (peak_rss_mb() - before) * scale * 2**20
    memory = (before * 2**20 + grown) * (1 if jobs == 1 else 1 + jobs / 2)
    files = graph.nbytes + graph.n * (40 + 4 * graph.num_outputs) + _PAGE
    return Estimate(_START + seconds * (1 + _AFTER), int(memory), int(disk + files))


def _measure(classifier: Any, graph: Graph, scale: float) -> tuple[float, float, float]:
    """Return seconds to prepare the graph, seconds to train, and bytes of the saved model, for the whole graph."""
    spectral = False
    if isinstance(classifier, PatchModel):
        epochs = classifier.train.epochs
        classifier = classifier.fixed(_EPOCHS)
    started = time.perf_counter()
    prepared = classifier.prepare(graph)
    prepare = time.perf_counter() - started
    started = time.perf_counter()
    classifier.fit(graph, prepared=prepared)
    train = time.perf_counter() - started
    if isinstance(classifier, PatchModel):
        wanted = min(epochs, classifier.train.patience + _BEST_EPOCH)
        train = classifier.result_.seconds / _EPOCHS * wanted
        spectral = any(e.needs_eigenvectors for e in classifier.extractors_)
    size = sum(tensor.nbytes for tensor in classifier.to_saved().state.values())
    return prepare * scale ** (3 if spectral else 1), train * scale, size * scale


def _fold(graph: Graph, most: int) -> tuple[Graph, float]:
    """Return a graph of at most ``most`` nodes with the degrees of a sample of nodes, and how much smaller it is.

    The edges of the sampled nodes end at other sampled nodes instead of at their own neighbours. Some nodes of each
    part of the split, or with a label, are always in the sample.
    """
    if graph.n <= most:
        return graph, 1.0
    rng = np.random.default_rng(0)
    parts = [part for split in graph.splits[:1] for part in (split.train, split.val, split.test)]
    if not parts and graph.y is not None:
        parts = [np.flatnonzero(is_labelled(graph.y))]
    needed = [rng.permutation(part)[: min(_LABELS * graph.num_outputs, most // 4)] for part in parts]
    order = np.concatenate([*needed, rng.permutation(graph.n)])
    kept = np.sort(order[np.sort(np.unique(order, return_index=True)[1])][:most])
    rows = np.repeat(np.arange(most), np.diff(graph.indptr)[kept])
    targets = np.concatenate([np.asarray(graph.neighbours(v)) for v in kept]) % most
    if not graph.is_directed:  # half of the entries, and their reverse ones
        half = rng.random(len(rows)) < 0.5
        rows, targets = np.concatenate([rows[half], targets[half]]), np.concatenate([targets[half], rows[half]])
    adjacency = sp.csr_array((np.ones(len(rows), np.float32), (rows, targets)), shape=(most, most))
    adjacency.sum_duplicates()
    y: Any = None if graph.y is None else np.asarray(graph.y)[kept]
    splits = tuple(_folded(split, kept) for split in graph.splits[:1])
    x = None if graph.x is None else graph.x[kept]
    edges = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32)
    return Graph(*edges, x=x, y=y, classes=graph.classes, splits=splits), graph.n / most


def _folded(split: Split, kept: IntArray) -> Split:
    train, val, test = (np.flatnonzero(np.isin(kept, part)) for part in (split.train, split.val, split.test))
    return Split(train, val, test)
