"""Members of an ensemble: candidates of the portfolio, trained in parallel and saved on disk."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError, InputWarning, check_choice
from gpatcher.estimator.base import labelled
from gpatcher.estimator.persistence import SavedModel
from gpatcher.estimator.portfolio import KINDS, Candidate
from gpatcher.estimator.prepare import as_extractors
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, strata
from gpatcher.io import (
    FileEntry,
    check_file,
    list_files,
    new_folder,
    read_manifest,
    remove_folder,
    write_bytes,
    write_json,
)
from gpatcher.model.inputs import is_large_map
from gpatcher.scale.executors import Engine
from gpatcher.spectral.spectrum import is_affordable

Progress = Callable[[str, int, int], None]  # called with a name, members done and members in total
_ENOUGH = 200  # validation nodes from which a single split is used instead of folds
_LARGE = 200_000  # nodes from which a graph is not sent to other processes
_SMALL = 5_000  # nodes and stored edges up to which starting processes costs more than it saves
_REPEATED = 20_000  # nodes and stored edges up to which a member is trained with several seeds
_SPECTRAL = 4000  # nodes up to which candidates with eigenvectors are trained
_MEMBER, _HELD_OUT = "member.json", "held_out.safetensors"
_MODELS, _FINAL = "model", "final"  # subfolders, numbered
_FORMAT, _VERSION = "gpatcher-member", 2


@dataclass(frozen=True, eq=False)
class Member:
    """A trained member of an ensemble."""

    candidate: Candidate
    models: tuple[SavedModel, ...]  # one per fold and seed, fold by fold
    held_out: FloatArray  # logits of the held-out nodes of all folds, in the order of the folds; mean over the seeds
    stopped: float  # chosen on validation, mean over the folds
    seconds: float
    temperature: float = 1.0
    loss: float = np.nan  # on the held-out nodes, at this temperature
    accuracy: float = np.nan  # on these nodes; R² in a regression
    weight: float = 0.0
    seeds: int = 1  # models per fold
    final: tuple[SavedModel, ...] = ()  # trained on all labels, one per seed


@dataclass(frozen=True)
class MemberEntry:
    """A member as `describe_member` lists it in the manifest of its ensemble."""

    name: str
    kind: str
    settings: dict[str, Any]
    weight: float
    temperature: float
    loss: float
    accuracy: float
    stopped: float
    seconds: float
    folds: int
    refit: bool
    seeds: int = 1

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        if not (self.temperature > 0 and self.weight >= 0):
            raise InputError(
                f"temperature must be above 0 and weight at least 0, got {self.temperature}, {self.weight}"
            )


def describe_member(member: Member) -> dict[str, Any]:
    """Return the metrics of a member, for JSON."""
    return {
        **member.candidate.to_dict(),
        "weight": member.weight,
        "temperature": member.temperature,
        "loss": member.loss,
        "accuracy": member.accuracy,
        "stopped": member.stopped,
        "seconds": round(member.seconds, 3),
        "folds": len(member.models) // member.seeds,
        "refit": bool(member.final),
        "seeds": member.seeds,
    }


def choose_jobs(graph: Graph, jobs: int | None, device: str = "cpu") -> int:
    """Return how many models are trained at the same time on this graph: as given, else one per core.

    One for small graphs, where starting processes costs more than it saves, and for large ones, which would be sent to
    each process.
    """
    if jobs is None:
        many = graph.n <= _LARGE and graph.n + graph.stored_edges > _SMALL and device == "cpu"
        return os.cpu_count() or 1 if many else 1
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    return jobs


# ------------------------------------------------------------------------------------------------ training members


def make_folds(graph: Graph, split: Split, count: int, seed: int) -> list[Split] | None:
    """Return splits whose validation parts are the held-out nodes: one split, or folds if these would be few."""
    from sklearn.model_selection import StratifiedKFold

    val = labelled(graph, split.val)
    if count < 2 or val.size >= _ENOUGH:
        return [Split(split.train, val, np.empty(0, np.int64))] if val.size else None
    nodes = np.concatenate([split.train, val])
    y = strata(graph.labels())[nodes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer members than folds
        count = min(count, int(np.bincount(y).max()))
        parts = StratifiedKFold(count, shuffle=True, random_state=seed).split(nodes, y)
        return [Split(nodes[train], nodes[held], np.empty(0, np.int64)) for train, held in parts]


def choose_seeds(graph: Graph, seed: int, count: int) -> tuple[int, ...]:
    """Return the seeds that a member is trained with, this many where there are few nodes and edges.

    Their mean is better than a single one, and training is short on such a graph.
    """
    more = count - 1 if graph.n + graph.stored_edges <= _REPEATED else 0
    return seed, *np.random.SeedSequence(seed).generate_state(more).tolist()


def why_inapplicable(candidate: Candidate, graph: Graph, memory: int | None) -> str | None:
    """Return why a candidate is not trained on this graph, or None if it is."""
    classifier: Any = candidate.make()
    extractors = as_extractors(classifier.patches)
    affordable = graph.n <= _SPECTRAL and is_affordable(graph.n, memory)
    if not affordable and any(extractor.needs_eigenvectors for extractor in extractors):
        return f"eigenvectors of {graph.n:,} nodes take too long"
    if is_large_map(graph.x) and classifier.features.structure:
        return "structure columns would copy the memory-mapped features"
    return None


def _longest_first(candidates: list[Candidate]) -> list[Candidate]:
    """Return the first candidate, whose result is there soon, and the others by training time: no core idles long."""
    return [*candidates[:1], *sorted(candidates[1:], key=lambda candidate: -candidate.cost)]


@dataclass(frozen=True, eq=False)
class _Task:
    """A member to train on some folds; sent to other processes."""

    candidate: Candidate
    folds: tuple[Split, ...]
    seeds: tuple[int, ...]
    parameters: dict[str, Any]
    stopped: float | None  # fixed iterations or penalty; None to choose by validation


@dataclass(frozen=True, eq=False)
class _Trained:
    models: tuple[SavedModel, ...]
    held_out: FloatArray
    stopped: float
    seconds: float


def _train(task: _Task, graph: Graph) -> _Trained:
    """Train a member on each fold, with each seed."""
    started = time.perf_counter()
    models, logits, stopped = [], [], []
    prepared = None
    for fold in task.folds:
        total: Any = 0.0
        for seed in task.seeds:
            classifier: Any = task.candidate.make(**task.parameters, seed=seed)
            if task.stopped is not None:
                classifier = classifier.fixed(task.stopped)
            if prepared is None:
                prepared = classifier.prepare(graph)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)  # a fold is part of a split that was checked
                classifier.fit(graph, fold, prepared=prepared)
            models.append(classifier.to_saved())
            stopped.append(classifier.stopped_)
            if fold.val.size:
                total = total + classifier.decision_function(graph, fold.val)
        if fold.val.size:
            logits.append(total / len(task.seeds))
    held_out = np.concatenate(logits) if logits else np.empty((0, graph.num_outputs), np.float32)
    return _Trained(tuple(models), held_out, float(np.mean(stopped)), time.perf_counter() - started)


def _member(task: _Task, result: _Trained) -> Member:
    seeds = len(task.seeds)
    return Member(task.candidate, result.models, result.held_out, result.stopped, result.seconds, seeds=seeds)


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains members within the budget, and saves finished ones in a folder."""

    graph: Graph
    parameters: dict[str, Any]  # of every classifier
    engine: Engine
    budget: float | None  # seconds
    skipped: dict[str, str]  # why a member was not trained; extended in place
    folder: Path | None
    progress: Progress | None
    started: float = field(default_factory=time.perf_counter)

    def run(
        self, candidates: list[Candidate], folds: list[Split], seeds: tuple[int, ...], share: float
    ) -> list[Member]:
        """Return the members trained within this share of the budget, in the order of the candidates."""
        done: dict[str, Member] = {}
        identity = self._identity(folds, seeds)

        def tasks() -> Iterator[_Task]:
            for candidate in candidates if self.budget is not None else _longest_first(candidates):
                kept = self._read(candidate, identity)
                if kept is not None:
                    done[candidate.name] = kept
                    self._say(candidate.name, len(done), len(candidates))
                elif done and self._left(share) < self._mean(done):
                    self.skipped[candidate.name] = self._used_up()
                else:
                    yield _Task(candidate, tuple(folds), seeds, self.parameters, None)

        for task, result in self.engine.map(_train, tasks(), (self.graph,)):
            member = _member(task, result)
            if self.folder is not None:
                write_member(member, self.folder / slug(task.candidate.name), identity)
            done[task.candidate.name] = member
            self._say(task.candidate.name, len(done), len(candidates))
        return [done[candidate.name] for candidate in candidates if candidate.name in done]

    def refit(self, members: list[Member], split: Split, seeds: tuple[int, ...]) -> list[Member]:
        """Return the members; those with nonzero weight are also trained on all labels, with each seed."""
        result = {member.candidate.name: member for member in members}
        used = [member for member in members if member.weight > 0]
        spent = len(seeds) * max(member.seconds / len(member.models) for member in used)
        if self._left(1.0) < spent:
            self.skipped["training on every label"] = self._used_up()
            return members
        identity = self._identity([split], seeds)
        done = 0

        def tasks() -> Iterator[_Task]:
            nonlocal done
            for member in used:
                kept = self._read(member.candidate, identity, "final-")
                if kept is None:
                    yield _Task(member.candidate, (split,), seeds, self.parameters, member.stopped)
                    continue
                done += 1
                result[member.candidate.name] = replace(member, final=kept.models)

        for task, trained in self.engine.map(_train, tasks(), (self.graph,)):
            name = task.candidate.name
            if self.folder is not None:
                write_member(_member(task, trained), self.folder / ("final-" + slug(name)), identity)
            member = result[name]
            result[name] = replace(member, final=trained.models, seconds=member.seconds + trained.seconds)
            done += 1
            self._say(f"{name}, every label", done, len(used))
        return [result[member.candidate.name] for member in members]

    def _identity(self, folds: Sequence[Split], seeds: tuple[int, ...]) -> str:
        """Return what finished members in the folder must have been trained on, and with which seeds."""
        return " ".join([self.graph.content_hash, *(fold.hash for fold in folds), *map(str, seeds)])

    def _read(self, candidate: Candidate, identity: str, prefix: str = "") -> Member | None:
        if self.folder is None:
            return None
        return read_member(candidate, self.folder / (prefix + slug(candidate.name)), identity)

    def _left(self, share: float) -> float:
        return np.inf if self.budget is None else share * self.budget - (time.perf_counter() - self.started)

    def _used_up(self) -> str:
        return f"the budget of {self.budget:.0f} s was used up"

    @staticmethod
    def _mean(done: dict[str, Member]) -> float:
        return float(np.mean([member.seconds for member in done.values()]))

    def _say(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)


# ------------------------------------------------------------------------------------------------ members on disk


@dataclass(frozen=True)
class _Manifest:
    """The description of a member, ``member.json``."""

    identity: str
    candidate: dict[str, Any]
    stopped: float
    seconds: float
    models: int
    seeds: int
    final: int  # number of models trained on all labels
    files: dict[str, FileEntry]


def slug(name: str) -> str:
    """Return a name in the form used in paths."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write_member(member: Member, folder: Path, identity: str) -> None:
    """Write a member atomically; ``identity`` says what it was trained on."""
    remove_folder(folder)
    with new_folder(folder) as draft:
        for part, models in ((_MODELS, member.models), (_FINAL, member.final)):
            for number, saved in enumerate(models):
                saved.write(draft / f"{part}-{number}")
        held_out = safetensors.numpy.save({"logits": np.ascontiguousarray(member.held_out)})
        write_bytes(draft / _HELD_OUT, held_out)
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "identity": identity,
            "candidate": member.candidate.to_dict(),
            "stopped": member.stopped,
            "seconds": member.seconds,
            "models": len(member.models),
            "seeds": member.seeds,
            "final": len(member.final),
            "files": list_files([draft / _HELD_OUT]),
        }
        write_json(draft / _MEMBER, content)


def read_member(candidate: Candidate, folder: Path, identity: str) -> Member | None:
    """Read a member; None if it is missing or was trained with another configuration or on other data."""
    if not (folder / _MEMBER).is_file():
        return None
    content: _Manifest = read_manifest(folder / _MEMBER, _FORMAT, _VERSION, "member of an ensemble", _Manifest)
    if content.candidate != candidate.to_dict() or content.identity != identity:
        return None
    if list(content.files) != [_HELD_OUT]:
        raise InputError(f"{folder / _MEMBER} is damaged: it must list {_HELD_OUT}; remove the folder and train again")
    check_file(folder / _HELD_OUT, content.files[_HELD_OUT], "remove the folder and train again")
    held_out = safetensors.numpy.load_file(folder / _HELD_OUT)["logits"]
    models, final = (
        tuple(SavedModel.read(folder / f"{part}-{number}") for number in range(count))
        for part, count in ((_MODELS, content.models), (_FINAL, content.final))
    )
    return Member(candidate, models, held_out, content.stopped, content.seconds, seeds=content.seeds, final=final)
