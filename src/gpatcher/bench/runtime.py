"""Run time of the patch mixer alone."""

from __future__ import annotations

import statistics
import time

import torch

from gpatcher.model.mixer import PatchMixer

_BATCH = 4096  # patches at a time, as in prediction


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
