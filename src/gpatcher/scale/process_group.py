"""Several processes that train one model together: who does which part, and how the parts are added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpatcher.arrays import IntArray


class ProcessGroup:
    """The processes of a training run; one alone, unless torch's process group says otherwise.

    Every member holds the same weights and sees the same order of nodes. It works on its share of each batch; the
    gradients of all are added up, so that a step is the step that one process would make on the whole batch.

    Parameters
    ----------
    together : whether this process belongs to torch's default process group
    """

    def __init__(self, together: bool = False) -> None:
        self.rank, self.size = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)

    def share(self, nodes: Tensor) -> Tensor:
        """Return the nodes of a batch that this member works on; all of them where there are too few to share.

        Shares are ranges of rising ids: a member keeps to the same shards of a patch table.
        """
        if self.size == 1 or len(nodes) < self.size:
            return nodes
        return nodes.sort().values.tensor_split(self.size)[self.rank]

    def add_gradients(self, model: nn.Module) -> None:
        """Replace every gradient by the sum over the members."""
        if self.size == 1:
            return
        own = [p for p in model.parameters() if p.requires_grad]
        flat = torch.cat([torch.zeros_like(p).ravel() if p.grad is None else p.grad.ravel() for p in own])
        dist.all_reduce(flat)
        for p, grad in zip(own, torch.split(flat, [p.numel() for p in own]), strict=True):
            p.grad = grad.view_as(p)

    def add(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over the members."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def spread(self, nodes: IntArray, work: Callable[[IntArray], Tensor]) -> Tensor:
        """Return ``work(nodes)``, a row per node, of which each member makes some and all get all."""
        if self.size == 1 or len(nodes) < self.size:
            return work(nodes)
        start = sum(len(part) for part in np.array_split(nodes, self.size)[: self.rank])
        own = work(np.array_split(nodes, self.size)[self.rank])
        rows = own.new_zeros(len(nodes), *own.shape[1:])
        rows[start : start + len(own)] = own
        return self.add(rows)

    def agree(self, number: int) -> bool:
        """Return whether all members hold the same number."""
        numbers = self.add(torch.tensor([number, number**2], dtype=torch.float64))
        return bool(numbers[0] ** 2 == self.size * numbers[1])

    def start_equal(self, tensors: Iterable[Tensor]) -> None:
        """Give every member the values of the first."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor.detach(), 0)
