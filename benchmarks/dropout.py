"""Dropout: what a mask costs compared with torch's own, forward and backward, on one thread.

python benchmarks/dropout.py
"""

from collections.abc import Callable
from functools import partial

import record
import torch
import torch.nn.functional as F
from torch import Tensor

from gpatcher.model.dropout import dropout


def both_passes(function: Callable[..., Tensor], x: Tensor) -> None:
    """Drop half of the values and send a gradient back."""
    function(x, 0.5).sum().backward()
    x.grad = None


def main() -> None:
    """Measure three sizes."""
    torch.set_num_threads(1)
    rows = []
    for n in (1_000, 10_000, 100_000):
        x = torch.randn(n, 64, requires_grad=True)
        both_passes(dropout, x)
        ours, theirs = (record.timed(partial(both_passes, f, x), 15) for f in (dropout, F.dropout))
        values = x.numel()
        rows.append({"values": values, "ns_a_value": 1e9 * ours / values, "torch_ns": 1e9 * theirs / values})
        rows[-1]["ratio"] = ours / theirs
    record.write("dropout", rows)


if __name__ == "__main__":
    main()
