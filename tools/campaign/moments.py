"""Rows of moments: SIGKILL and Ctrl-C at a random moment of a command, and the same command twice at once."""

import json
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bases import BENCH, LONG, MODEL, TABLES, TINY, TUNE, Bases, read_answers

NODES = ("nodes.csv", "edges.csv")


@dataclass(frozen=True)
class Work:
    """A command that writes, what continues it, and its answer."""

    name: str
    words: tuple[str, ...]
    copied: tuple[str, ...]
    answers: tuple[str, ...]
    again: tuple[str, ...] = ()  # added to continue
    folder: str = "out"  # that it writes to

    @property
    def command(self) -> str:
        """The command as it is typed; two works may have the same name."""
        return " ".join(self.words)


WORKS = (
    Work("fit", ("fit", *TABLES, *LONG, "--out", "out"), NODES, MODEL, ("--resume",)),
    Work(
        "fit --overwrite",
        ("fit", *TABLES, *TINY, "--seed", "1", "--out", "fast", "--overwrite"),
        (*NODES, "fast"),
        ("fast/model.safetensors", "fast/predictions.parquet"),
        folder="fast",
    ),
    Work("patches", ("patches", "graph", "--out", "out", "--size", "8", "--shard", "4"), ("graph",), ("out/*.npy",)),
    Work("store", ("store", *TABLES, "--out", "out"), NODES, ("out/*.npy", "out/graph.json")),
    Work("bench", (*BENCH, "--out", "out"), (), ("out/records.jsonl",)),
    Work("tune", (*TUNE, "--out", "out"), (), ("out/best.json",)),
)
# new interpreters with worker processes: for Ctrl-C
WORKERS = Work("bench, 2 jobs", (*BENCH, "--jobs", "2", "--out", "out"), (), ("out/records.jsonl",))


def answer(folder: Path, work: Work) -> dict[str, bytes]:
    """Return the answer of a command; of records what does not depend on time, in the order of the jobs."""
    found = read_answers(folder, work.answers)
    for name in found:
        if name.endswith(".jsonl"):
            records = [json.loads(line) for line in found[name].splitlines()]
            kept = sorted((r["job"], r["val"], r["test"], str(r["error"])) for r in records)
            found[name] = json.dumps(kept).encode()
    return found


def expected(bases: Bases, work: Work) -> dict[str, bytes]:
    """Return the answer without interruption, and note how long it takes."""
    if work.command not in bases.right:
        folder = bases.fresh(work.copied)
        bases.call(*work.words, folder=folder)
        shutil.rmtree(folder)
        folder = bases.fresh(work.copied)
        ended = bases.run(work.words, folder, fork=work is not WORKERS, timeout=900.0)
        if ended.outcome != "done":
            raise SystemExit(f"{work.name} fails without interruption: {ended.err}")
        bases.right[work.command], bases.cpu[work.command] = answer(folder, work), ended.cpu
        shutil.rmtree(folder)
    return bases.right[work.command]


def drafts(folder: Path) -> list[str]:
    """Return the drafts below a folder."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*.partial")]


def continued(bases: Bases, work: Work, folder: Path) -> tuple[str, str]:
    """Run the command again, as its user would, and compare its answer."""
    right = expected(bases, work)
    again = work.again if any((folder / work.folder).glob("run.json")) else ()
    ended = bases.run((*work.words, *again), folder)
    if ended.outcome == "refused" and work.name == "store" and (folder / "out").exists():
        ended = bases.run(("patches", "out", "--out", "other", "--size", "4"), folder)  # it was finished
    if ended.outcome != "done":
        return (ended.outcome if ended.outcome != "refused" else "lost"), ended.message
    if answer(folder, work) != right:
        return "lost", "the answer differs from that of an uninterrupted run"
    left = drafts(folder)
    return ("left behind", ", ".join(left)) if left else ("right", "")


def whole(bases: Bases, folder: Path) -> tuple[str, str]:
    """Say whether the folder of an overwritten run is one run, the old or the new, whose model is its predictions'."""
    ended = bases.run(("predict", "fast", "--out", "p.parquet"), folder)
    if ended.outcome != "done":
        return "lost", ended.message
    same = (folder / "p.parquet").read_bytes() == (folder / "fast" / "predictions.parquet").read_bytes()
    return ("right", "") if same else ("lost", "the predictions are not those of the model")


def crash(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Kill a command at a random moment, then run it again."""
    work = WORKS[rng.integers(len(WORKS))]
    expected(bases, work)
    folder = bases.fresh(work.copied)
    moment = float(rng.random())
    process = bases.start(work.words, folder)
    process.until(moment * bases.cpu[work.command])
    process.signal(signal.SIGKILL)
    killed = process.wait().code == -signal.SIGKILL
    outcome, message = whole(bases, folder) if work.folder == "fast" else ("right", "")
    if outcome == "right":
        outcome, message = continued(bases, work, folder)
    what = f"{work.name}, {'killed' if killed else 'over'} at {moment:.3f} of its time"
    shutil.rmtree(folder)
    return {"what": what, "outcome": outcome, "message": message}


def interrupt(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Press Ctrl-C at a random moment, then run the command again."""
    work = WORKERS if rng.random() < 0.12 else WORKS[rng.integers(len(WORKS))]  # workers take long to start
    expected(bases, work)
    folder = bases.fresh(work.copied)
    moment = float(rng.random())
    process = bases.start(work.words, folder, fork=work is not WORKERS)
    if work is WORKERS:  # whose time is that of its workers
        time.sleep(moment * bases.cpu[work.command])
    else:
        process.until(moment * bases.cpu[work.command])
    process.signal(signal.SIGINT)
    ended = process.wait()
    outcome, message = ended.outcome, ended.message
    stopped = ended.code == 130 or (ended.code == -signal.SIGINT and not ended.err)
    if stopped or outcome == "done":
        outcome, message = ("left behind", ", ".join(drafts(folder))) if drafts(folder) else ("right", "")
        if outcome == "right":
            outcome, message = continued(bases, work, folder)
    what = f"{work.name}, {'stopped' if stopped else 'over'} at {moment:.3f} of its time"
    shutil.rmtree(folder)
    return {"what": what, "outcome": outcome, "message": message}


def pairs(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Start a command twice at once: one may be refused, the answer is that of one run."""
    work = WORKS[rng.integers(len(WORKS))]
    right = expected(bases, work)
    folder = bases.fresh(work.copied)
    delay = float(rng.random() * bases.cpu[work.command])
    first = bases.start(work.words, folder)
    first.until(delay)
    second = bases.start(work.words, folder)
    ends = [process.wait() for process in (first, second)]
    outcomes = sorted(ended.outcome for ended in ends)
    bad = [ended for ended in ends if ended.outcome not in ("done", "refused")]
    if bad:
        outcome, message = bad[0].outcome, bad[0].message
    elif "done" not in outcomes:
        outcome, message = "lost", "both were refused"
    elif answer(folder, work) != right:
        outcome, message = "wrong", "the answer differs from that of one run"
    else:
        outcome, message = "right", ""
    what = f"{work.name}, twice, {delay:.2f} s apart: {' and '.join(outcomes)}"
    shutil.rmtree(folder)
    return {"what": what, "outcome": outcome, "message": message}
