"""Run time of the mixer over the number of nodes and the size of their patches: the paper's figure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from gpatcher.model import PatchMixer

NODES = (10, 100, 1_000, 10_000, 100_000)
SIZES = (8, 16, 32, 64)
_BLOCK = 4096  # nodes mixed at a time: memory stays the same, whatever n
_REPEATS = 3


@torch.no_grad()
def mixer_seconds(n: int, p: int, hidden: int = 64, layers: int = 2) -> float:
    """Return the median seconds that a forward pass of the mixer takes over the patches of n nodes.

    Parameters
    ----------
    n : number of nodes
    p : places in a patch
    hidden, layers : width and blocks of the mixer
    """
    mixer = PatchMixer(p, hidden, layers, dropout=0.0).eval()
    block = torch.randn(min(n, _BLOCK), p, hidden, generator=torch.Generator().manual_seed(0))
    there = torch.ones(len(block), p)
    mixer(block, there)  # the first call sets up what later ones find
    seconds = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        for start in range(0, n, _BLOCK):
            rows = min(_BLOCK, n - start)
            mixer(block[:rows], there[:rows])
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def run_times(
    nodes: Sequence[int] = NODES,
    sizes: Sequence[int] = SIZES,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a record per pair of n and p: nodes, patch_size, seconds; ``progress`` is called with both before each."""
    for p in sizes:
        for n in nodes:
            if progress is not None:
                progress(n, p)
            yield {"nodes": n, "patch_size": p, "seconds": mixer_seconds(n, p)}
