"""Rows of limits: a disk that is full, and too little memory."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from bases import MODEL, TINY, Bases
from moments import WORKS, Work, answer, continued, drafts, expected, whole
from program import Ended, limit_files, limit_memory

MEMORY = re.compile(r"memory|GiB|MiB", re.IGNORECASE)
# what no machine has the memory for
HUGE = (
    ("diagnose", "csbm:n=1000000000000"),
    ("fit", "csbm:n=10000000000", "--out", "out"),
    ("store", "rmat:n=1000000000000,m=10", "--out", "out"),
    ("patches", "graph", "--size", "2000000000", "--out", "out"),
    ("fit", "graph", *TINY, "--set", "patches.size=2000000000", "--out", "out"),
    ("fit", "graph", *TINY, "--set", "model.hidden=100000000", "--out", "out"),
    ("fit", "graph", *TINY, "--set", "model.hidden=1000000000000", "--out", "out"),
    ("fit", "graph", *TINY, "--set", "model.mixer_hidden=1000000", "--out", "out"),
    ("fit", "graph", *TINY, "--set", "model.layers=100000000000", "--out", "out"),
    ("fit", "graph", "--model", "deep", "--set", "model.rounds=100000000000", "--out", "out"),
    ("fit", "csbm:n=60000,degree=12,features=2", "--model", "gpatcher", "--extractor", "shared", "--out", "out"),
)


# what takes more than a process has at hand: on a graph of thousands of nodes
LARGE = "csbm:n=20000,features=64,degree=6"
LARGE_WORKS = (
    Work("fit", ("fit", LARGE, *TINY, "--out", "out"), (), MODEL[:1]),
    Work("patches", ("patches", LARGE, "--out", "out", "--size", "16"), (), ("out/*.npy",)),
    Work("store", ("store", LARGE, "--out", "out"), (), ("out/*.npy",)),
    Work("diagnose", ("diagnose", LARGE, "--json"), (), ()),
)


def mounted(folder: Path) -> bool:
    """Mount a file system of 64 MiB, where that is allowed."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=64M", "campaign", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def disk(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Run a command on a file system that is nearly full, or with a limit on the size of files; then with room."""
    work = WORKS[rng.integers(len(WORKS))]
    right = expected(bases, work)
    folder = bases.fresh(work.copied)
    used = sum(len(content) for content in right.values())
    size = int(2 ** rng.uniform(8, np.log2(4 * used + 8192)))
    full = bases.scratch / "disk"
    whole_disk = bool(rng.integers(2)) and mounted(full)
    if whole_disk:
        shutil.move(folder, full)
        folder = full / folder.name
        (full / "filler").write_bytes(bytes(max(0, shutil.disk_usage(full).free - size)))
    else:
        size += 4096  # the limit is on what it prints, too
    try:
        ended = bases.run(work.words, folder, before=None if whole_disk else limit_files(size))
        if whole_disk:
            (full / "filler").unlink()
        outcome, message = _after_full_disk(bases, work, folder, ended)
    finally:
        if whole_disk:
            subprocess.run(["umount", "-l", str(full)], check=True)
        else:
            shutil.rmtree(folder)
    kind = "free on disk" if whole_disk else "at most in a file"
    return {"what": f"{work.name}, {size:,} bytes {kind}", "outcome": outcome, "message": message}


def _after_full_disk(bases: Bases, work: Work, folder: Path, ended: Ended) -> tuple[str, str]:
    """Say what became of a command on a full disk: right, or refused with nothing lost and nothing left behind."""
    outcome, message = ended.outcome, ended.message
    if outcome == "done":
        return ("right", "") if answer(folder, work) == expected(bases, work) else ("wrong", message)
    if outcome != "refused":
        return outcome, message
    if work.folder not in message:
        return "refused, file not named", message
    if drafts(folder):
        return "left behind", ", ".join(drafts(folder))
    state, why = whole(bases, folder) if work.folder == "fast" else ("right", "")
    if state == "right":
        state, why = continued(bases, work, folder)
    return ("refused", "") if state == "right" else (state, why)


def memory(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Run a command with a limit on its address space, or one that no machine has the memory for."""
    if rng.random() < 0.3:
        words = HUGE[rng.integers(len(HUGE))]
        folder = bases.fresh(("graph",))
        ended, what = bases.run(words, folder), f"gpatcher {' '.join(words)}"
        right, work = None, None
    else:
        work = LARGE_WORKS[rng.integers(len(LARGE_WORKS))]
        right = expected(bases, work)
        folder = bases.fresh(work.copied)
        extra = int(2 ** rng.uniform(20, 28))
        ended = bases.run(work.words, folder, before=limit_memory(extra))
        what = f"{work.name} with {extra / 2**20:.2f} MiB"
    outcome = ended.outcome
    if outcome == "refused" and not MEMORY.search(ended.message):
        outcome = "refused, memory not named"
    if outcome == "done":
        outcome = "right" if work is not None and answer(folder, work) == right else "wrong"
    shutil.rmtree(folder)
    return {"what": what, "outcome": outcome, "message": ended.message.replace(str(folder), "")}
