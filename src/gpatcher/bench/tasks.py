"""What the jobs of a bench do: train, measure the response of a filter, statistics, run time."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch

from gpatcher.bench.plan import is_generated, load_source
from gpatcher.errors import InputWarning
from gpatcher.estimator.memory import peak_rss_mb, reset_peak
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.mixer import PatchMixer
from gpatcher.runs.records import Record, versions
from gpatcher.runs.run import Cache, Job, mean_response, run_job
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.spectrum import graph_spectrum

MEASURES = (
    *("nodes", "edges", "classes", "features", "isolated", "node_heterophily", "edge_homophily"),
    *("adjusted_homophily", "label_informativeness", "train_duplicates"),
)
CACHE = Cache()  # of this process
_BATCH = 4096  # patches that the mixer takes at a time, as in prediction


@lru_cache(maxsize=1)
def _graph(dataset: str, draw: int, root: Path | None) -> Graph:
    """Return the graph; the last one is cached, so that jobs on it share it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # shown once, when the run was planned
        return load_source(dataset, draw, root)


def load_split(dataset: str, split: int, root: Path | None) -> tuple[Graph, Split]:
    """Load the graph and the split of a run; of a generator, the graph drawn for this split and its own split."""
    if is_generated(dataset):
        graph = _graph(dataset, split, root)
        return graph, graph.splits[0]
    graph = _graph(dataset, 0, root)
    return graph, graph.splits[split]


def _train(job: Job, root: Path | None) -> Record:
    graph, split = load_split(job.dataset, job.split, root)
    return run_job(job, graph, split, cache=CACHE).record


def _response(job: Job, root: Path | None) -> Record:
    record = _train(job, root)
    graph, _ = load_split(job.dataset, job.split, root)
    values = graph_spectrum(graph, bool(job.settings["patches"]["self_loops"])).values
    return record | {"mean_response": mean_response(values, record["response"])}


def _statistics(job: Job, root: Path | None) -> Record:
    graph = _graph(job.dataset, 0, root)
    diagnosis = diagnose(graph, spectral=False)
    return {"graph": graph.content_hash, "measures": {name: getattr(diagnosis, name) for name in MEASURES}}


@torch.no_grad()
def mixer_seconds(n: int, p: int, hidden: int = 64, layers: int = 2, repeats: int = 3) -> float:
    """Return the seconds of one pass of the mixer over n patches of p positions, the median of a few passes."""
    torch.manual_seed(0)
    mixer = PatchMixer(p, hidden, layers).eval()
    rows = torch.randn(min(n, _BATCH), p, hidden)
    mask = torch.ones(len(rows), p)
    mixer(rows, mask)  # the first pass sets up
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        for start in range(0, n, _BATCH):
            size = min(_BATCH, n - start)
            mixer(rows[:size], mask[:size])
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _runtime(job: Job, root: Path | None) -> Record:
    nodes = int(job.dataset.removeprefix("n="))
    return {"nodes": nodes, "mixer_seconds": mixer_seconds(nodes, int(job.settings["patches.size"]))}


TASKS: dict[str, Callable[[Job, Path | None], Record]] = {
    "train": _train,
    "response": _response,
    "statistics": _statistics,
    "runtime": _runtime,
}


def perform(job: Job, root: Path | None) -> Record:
    """Do one job and return its record; an error of the model becomes part of it."""
    torch.set_num_threads(1)  # one job per core: small steps gain nothing from threads
    reset_peak()
    started = time.perf_counter()
    record = job.header()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            record |= TASKS[job.task](job, root)
    except Exception as error:
        # whatever a model does, the other jobs go on, and the record says what happened
        record["error"] = f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - started, 3)
    return {"peak_rss_mb": peak_rss_mb()} | record | {"seconds": seconds, "versions": versions()}
