"""Data-parallel training: how a process group divides a batch and sums gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpatcher.arrays import IntArray


class ProcessGroup:
    """The processes of a training run: this one alone, or torch's default process group, which must be initialised.

    Every process has the same weights, iterates over the same batches, and computes its part of each batch. The
    gradients are summed, so that a step equals the step of a single process on the whole batch.
    """

    def __init__(self, together: bool = False) -> None:
        self.rank, self.size = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)

    def share(self, nodes: Tensor) -> Tensor:
        """Return the part of a batch for this process; the whole batch if it has fewer nodes than processes.

        The parts are ranges of ascending ids, so that a process keeps to the same shards of a patch table.
        """
        if self.size == 1 or len(nodes) < self.size:
            return nodes
        return nodes.sort().values.tensor_split(self.size)[self.rank]

    def add_gradients(self, model: nn.Module) -> None:
        """Replace every gradient by its sum over the processes."""
        if self.size == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        flat = torch.cat([torch.zeros_like(p).ravel() if p.grad is None else p.grad.ravel() for p in parameters])
        dist.all_reduce(flat)
        for p, grad in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            p.grad = grad.view_as(p)

    def add(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def spread(self, nodes: IntArray, work: Callable[[IntArray], Tensor]) -> Tensor:
        """Return ``work(nodes)``, one row per node; each process computes a part of the rows and receives all."""
        if self.size == 1 or len(nodes) < self.size:
            return work(nodes)
        parts = np.array_split(nodes, self.size)
        start = sum(len(part) for part in parts[: self.rank])
        own = work(parts[self.rank])
        rows = own.new_zeros(len(nodes), *own.shape[1:])
        rows[start : start + len(own)] = own
        return self.add(rows)

    def agree(self, number: int) -> bool:
        """Return whether all processes have the same number."""
        sums = self.add(torch.tensor([number, number**2], dtype=torch.float64))
        # equality in the Cauchy-Schwarz inequality
        return bool(sums[0] ** 2 == self.size * sums[1])

    def start_equal(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast the values of the first process to all others."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor.detach(), 0)
