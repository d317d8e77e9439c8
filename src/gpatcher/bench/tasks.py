"""What the jobs of a bench do: train, measure the response of a filter, statistics, run time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from gpatcher.bench.plan import is_generated, load_source
from gpatcher.bench.runtime import mixer_seconds
from gpatcher.errors import InputWarning
from gpatcher.estimator.memory import peak_rss_mb
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.runs.records import Record, versions
from gpatcher.runs.run import Cache, Job, mean_response, run_job
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.heterophily import heterophily
from gpatcher.spectral.spectrum import graph_spectrum

MEASURES = (
    *("nodes", "edges", "classes", "features", "isolated", "node_heterophily", "edge_homophily"),
    *("adjusted_homophily", "label_informativeness", "train_duplicates"),
)
CACHE = Cache()  # of this process


@lru_cache(maxsize=1)
def _graph(dataset: str, draw: int, root: Path | None) -> tuple[Graph, float]:
    """Return the graph and its heterophily; the last one is cached, so that jobs on it share it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # shown once, when the run was planned
        graph = load_source(dataset, draw, root)
    return graph, heterophily(graph).node_heterophily


def load_split(dataset: str, split: int, seed: int, root: Path | None) -> tuple[Graph, Split]:
    """Load the graph and the split of a run; of a generator, the graph that its seed draws."""
    generated = is_generated(dataset)
    graph = _graph(dataset, seed if generated else 0, root)[0]
    return graph, graph.splits[0 if generated else split]


def _train(job: Job, root: Path | None) -> Record:
    graph, split = load_split(job.dataset, job.split, job.split, root)
    level = _graph(job.dataset, job.split if is_generated(job.dataset) else 0, root)[1]
    run = run_job(job, graph, split, cache=CACHE)
    return run.record | {"node_heterophily": None if np.isnan(level) else round(level, 4)}


def _response(job: Job, root: Path | None) -> Record:
    record = _train(job, root)
    graph, _ = _graph(job.dataset, 0, root)
    values = graph_spectrum(graph, bool(job.settings["patches"]["self_loops"])).values
    return record | {"mean_response": mean_response(values, record["response"])}


def _statistics(job: Job, root: Path | None) -> Record:
    graph, _ = _graph(job.dataset, 0, root)
    diagnosis = diagnose(graph, spectral=False)
    return {"graph": graph.content_hash, "measures": {name: getattr(diagnosis, name) for name in MEASURES}}


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
