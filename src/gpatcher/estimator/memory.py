"""Memory: the peak of this process, the bytes that a run holds, and the batch size that fits."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from gpatcher.errors import InputError
from gpatcher.estimator.prepare import Prepared
from gpatcher.model.gpatcher import GPatcher

DEFAULT_BATCH = 4096  # nodes per step from a patch table, and per step of prediction
_SMALLEST_BATCH = 32
_PROGRAM = 700 << 20  # bytes of the interpreter with all imports


def reset_peak() -> None:
    """Reset the peak resident memory, if the system supports it (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_mb() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.is_file():
        # not getrusage: a process inherits its peak from the parent
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return round(int(peak.split()[1]) / 1024, 1)
    import psutil

    memory = psutil.Process().memory_info()
    if hasattr(memory, "peak_wset"):  # Windows
        return round(float(memory.peak_wset) / 2**20, 1)
    import resource

    unit = 2**20 if sys.platform == "darwin" else 1024  # macOS counts bytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def held_bytes(prepared: Prepared) -> int:
    """Return the bytes that a run holds besides its batches: the program, arrays in memory, labels and their copies."""
    graph = prepared.graph
    arrays = (graph.indptr, graph.indices, graph.weights, graph.y, graph.node_ids)
    held = sum(array.nbytes for array in arrays if array is not None and not isinstance(array, np.memmap))
    held += sum(int(data.nbytes) for data in prepared.data)
    return _PROGRAM + held + prepared.x.nbytes + 40 * graph.n


def choose_batch_size(model: GPatcher, prepared: Prepared, memory: int | None, passes: int = 1) -> int | None:
    """Return the default number of nodes per step: as many as fit into ``memory`` bytes, None for all at once.

    ``passes`` is how many times as much a step computes as one pass over its nodes.

    Memory limits batches only with fixed patches and a single round: a learned filter holds the products of all pairs
    anyway, and several rounds run over all nodes in every step.
    """
    if not model.reads_ahead or model.config.rounds > 1:
        return None
    if memory is None:
        return DEFAULT_BATCH if prepared.from_disk else None
    held = held_bytes(prepared)
    batch = min(DEFAULT_BATCH, 1 << (prepared.graph.n - 1).bit_length())
    while batch > _SMALLEST_BATCH and held + passes * model.step_bytes(batch, prepared.x) > memory:
        batch //= 2
    total = held + passes * model.step_bytes(batch, prepared.x)
    if total > memory:
        stored = {"graph": isinstance(prepared.graph.x, np.memmap), "patches": prepared.from_disk}
        commands = {"graph": "gpatcher store", "patches": "gpatcher patches"}
        ways = [f", or keep the {part} on disk ('{commands[part]}')" for part, done in stored.items() if not done]
        raise InputError(
            f"memory={memory / 2**30:.2f} GiB is too little: graph and program take about {held / 2**30:.2f} GiB, with "
            f"batches of {batch} nodes {total / 2**30:.2f} GiB; give more{''.join(ways)}"
        )
    return batch
