"""Running jobs: each is done once, whoever asks, and leaves one record when it ends or fails.

A folder holds ``records.jsonl`` and ``claims``. Before it starts a job, a process locks the byte of ``claims`` that
belongs to the job's id, then looks into the records once more. The system frees the locks of a process that dies, so
there are no stale ones: a killed run goes on where it was, and two processes share the work of one folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from gpatcher.bench.plan import Job, load_source
from gpatcher.bench.runtime import mixer_seconds
from gpatcher.datasets.registry import NAMED, canonical_key
from gpatcher.errors import InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.runs.models import Kept, mean_response, train_model
from gpatcher.runs.records import Record, append_record, config_hash, peak_rss_mb, read_records, versions
from gpatcher.scale.executors import Engine, ProcessEngine
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.heterophily import heterophily
from gpatcher.spectral.spectrum import graph_spectrum

Item = TypeVar("Item")
Result = TypeVar("Result")


MEASURES = (
    *("nodes", "edges", "classes", "features", "isolated", "node_heterophily", "edge_homophily"),
    *("adjusted_homophily", "label_informativeness", "train_duplicates"),
)


class Ledger:
    """Which jobs of a folder are done and how often each has failed; reads only what was appended since."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "records.jsonl"
        self._offset = 0
        self._done: set[str] = set()
        self._failures: Counter[str] = Counter()

    def _read(self) -> tuple[set[str], Counter[str]]:
        if not self.path.is_file():
            return self._done, self._failures
        with self.path.open("rb") as file:
            file.seek(self._offset)
            whole, _, tail = file.read().rpartition(b"\n")
        done, failures = self._done, self._failures
        for line in whole.splitlines():
            self._count(line, done, failures)
        self._offset += len(whole) + 1 if whole else 0
        if tail:  # a record without its line end: it counts, and is read again next time
            done, failures = set(done), Counter(failures)
            self._count(tail, done, failures)
        return done, failures

    @staticmethod
    def _count(line: bytes, done: set[str], failures: Counter[str]) -> None:
        with suppress(ValueError):  # a line cut short by a kill; other damage is met when the run starts
            record = json.loads(line)
            if "job" in record and record.get("error") is None:
                done.add(record["job"])
            elif "job" in record:
                failures[record["job"]] += 1

    def is_done(self, job: str) -> bool:
        """Return whether a job has ended well."""
        return job in self._read()[0]

    def failures(self, job: str) -> int:
        """Return how often a job has failed."""
        return self._read()[1][job]


@cache
def _claims(folder: Path) -> int:
    # one open file per process and folder: closing any would free all locks of the process on it
    return os.open(folder / "claims", os.O_RDWR | os.O_CREAT, 0o644)


@contextmanager
def claim(folder: Path, key: str) -> Iterator[bool]:
    """Hold what belongs to a key (hexadecimal digits) against other processes; False where one of them has it."""
    handle, place = _claims(folder), int(key[:15], 16)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.lockf(handle, fcntl.LOCK_UN, 1, place)


@lru_cache(maxsize=1)
def _graph(dataset: str, draw: int, root: Path | None) -> tuple[Graph, float]:
    """Return the graph and its heterophily; the last one is kept, so that jobs on it share it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # said once, when the run was planned
        graph = load_source(dataset, draw, root)
    return graph, heterophily(graph).node_heterophily


def load_kept(dataset: str, draw: int, root: Path | None) -> Graph:
    """Load a graph, or return the one that was loaded last."""
    return _graph(dataset, draw, root)[0]


_KEPT = Kept()


def _train(job: Job, root: Path | None) -> Record:
    generated = ":" in job.dataset
    graph, level = _graph(job.dataset, job.split if generated else 0, root)
    split = graph.splits[0 if generated else job.split]
    named = NAMED.get(canonical_key(job.dataset))
    metric = named.metric if named else "accuracy"
    outcome = train_model(job.model, graph, split, job.seed, dict(job.config), metric=metric, kept=_KEPT)
    record: Record = {
        "graph": graph.content_hash,
        "metric": metric,
        "val": outcome.val,
        "test": outcome.test,
        "val_accuracy": outcome.fit.val_accuracy,
        "test_accuracy": outcome.test_accuracy,
        "epochs": outcome.fit.epochs,
        "best_epoch": outcome.fit.best_epoch,
        "train_seconds": round(outcome.fit.seconds, 3),
        "extract_seconds": round(outcome.extract_seconds, 3),
        "split_hash": split.hash,
        "split_sizes": list(split.sizes),
        "leaky": bool(named and named.leaky),
        "node_heterophily": None if np.isnan(level) else round(level, 4),
    }
    return record if outcome.response is None else record | {"response": outcome.response}


def _response(job: Job, root: Path | None) -> Record:
    record = _train(job, root)
    graph, _ = _graph(job.dataset, 0, root)
    values = graph_spectrum(graph, bool(job.config["self_loops"])).values
    return record | {"mean_response": mean_response(values, record["response"])}


def _statistics(job: Job, root: Path | None) -> Record:
    graph, _ = _graph(job.dataset, 0, root)
    found = diagnose(graph, spectral=False)
    return {"graph": graph.content_hash, "measures": {name: getattr(found, name) for name in MEASURES}}


def _runtime(job: Job, root: Path | None) -> Record:
    nodes = int(job.dataset.removeprefix("n="))
    return {"nodes": nodes, "mixer_seconds": mixer_seconds(nodes, int(job.config["p"]))}


TASKS: dict[str, Callable[[Job, Path | None], Record]] = {
    "train": _train,
    "response": _response,
    "statistics": _statistics,
    "runtime": _runtime,
}


def perform(job: Job, root: Path | None) -> Record:
    """Do one job and return its record; an error of the model becomes part of it."""
    torch.set_num_threads(1)  # one job per core: small steps gain nothing from threads
    forget_peak()
    started = time.perf_counter()
    record: Record = {
        "job": job.id,
        "preset": job.preset,
        "dataset": job.dataset,
        "row": job.row,
        "model": job.model,
        "split": job.split,
        "seed": job.seed,
        "tuned": job.tuned,
        "error": None,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            record |= TASKS[job.task](job, root)
    except Exception as error:
        # whatever a model does, the other jobs go on, and the record says what happened
        record["error"] = f"{type(error).__name__}: {error}"
    return record | {
        "seconds": round(time.perf_counter() - started, 3),
        "peak_rss_mb": peak_mb(),
        "config_hash": config_hash(dict(job.config)),
        "config": dict(job.config),
        "versions": _versions(),
    }


_versions = cache(versions)


def forget_peak() -> None:
    """Let the process's largest resident memory start anew, where the system can do it (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Return the largest resident memory since `forget_peak`, in MB."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return round(int(line.split()[1]) / 1024, 1)
    return peak_rss_mb()


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Parameters
    ----------
    job : the job that ended last
    state : "ran", "failed", "known" (done by somebody since it was planned) or "elsewhere" (at work in another process)
    record : its record, where this run made one
    """

    job: Job
    state: str
    record: Record | None


def pending(jobs: Sequence[Job], out: Path, retry: bool = False) -> list[tuple[Job, int]]:
    """Return the jobs that are still to be run, each with how often it has failed so far."""
    out.mkdir(parents=True, exist_ok=True)
    read_records(out / "records.jsonl")  # refuses a damaged file
    ledger = Ledger(out)
    left = [(job, ledger.failures(job.id)) for job in jobs if not ledger.is_done(job.id)]
    return [(job, failures) for job, failures in left if retry or not failures]


def run_jobs(
    jobs: Sequence[tuple[Job, int]], out: Path, engine: Engine | None = None, root: Path | None = None
) -> Iterator[Progress]:
    """Run what `pending` returned, each job claimed when a process is free for it; yield how it goes.

    This process alone claims and writes, so the workers of a cluster need no shared folder for the records.
    """
    out = out.resolve()
    ledger = Ledger(out)
    held: dict[str, ExitStack] = {}
    passed: list[Progress] = []

    def handed_out() -> Iterator[Job]:
        for job, failures in jobs:
            stack = ExitStack()
            if not stack.enter_context(claim(out, job.id)):
                passed.append(Progress(job, "elsewhere", None))
            elif ledger.is_done(job.id) or ledger.failures(job.id) != failures:
                stack.close()
                passed.append(Progress(job, "known", None))
            else:
                held[job.id] = stack
                yield job

    try:
        for job, record in (engine or ProcessEngine()).map(perform, handed_out(), (root,)):
            append_record(ledger.path, record)
            held.pop(job.id).close()
            yield Progress(job, "ran" if record["error"] is None else "failed", record)
        yield from passed
    finally:
        for stack in held.values():
            stack.close()
