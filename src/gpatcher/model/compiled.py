"""Encoder and mixer by compiled kernels, which keep intermediate values in cache: for large batches on a CPU.

The values are those of the modules up to rounding. Masks of dropout are drawn by a counter-based generator, whose seed
is one draw of torch's, and parts of a batch have fixed sizes, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from gpatcher.model.mixer import PatchMixer
    from gpatcher.model.views import PatchView

_PARTS = 16  # of a batch at most, each with its own sums of gradients
_MULTIPLE = 16  # sizes of matrices in the kernels


def encode(x: Tensor, weight: Tensor, bias: Tensor, input_dropout: float, dropout: float) -> Tensor:
    """Return dropout(relu(dropout(x) · weight + bias)), shape (n, h); x has no gradient."""
    drops = _of_65536(input_dropout), _of_65536(dropout)
    return _Encode.apply(x, _filled(weight), bias, drops, _seeds(drops))  # type: ignore[no-untyped-call]


def mix(mixer: PatchMixer, view: PatchView, rows: Tensor) -> Tensor:
    """Return what the mixer makes of patches whose members are rows, shape (b, h)."""
    weights = _weights(mixer, view.index.shape[1], rows.shape[1])
    drop = _of_65536(mixer.dropout) if mixer.training else 0
    settings = (*weights, mixer.skip, drop, _seeds((drop,)))
    if torch.is_grad_enabled():
        mean = _Mix.apply(view.gather(rows), view.mask, *settings)  # type: ignore[no-untyped-call]
    else:
        mean = _mix_rows(rows, view.index, view.scale(), view.mask, *settings)
    out: Tensor = mixer.norm(mean)
    return out


def _weights(mixer: PatchMixer, size: int, dim: int) -> tuple[Tensor, ...]:
    """Return the weights as `gpatcher.kernels.mixer.mix_patches` reads them; gradients pass through."""
    biases, tokens, channels, norms = [], [], [], [torch.ones(2, dim)]
    block: Any
    for block in mixer.blocks:
        if block.channel_mlp is not None:
            first, _, _, second = block.channel_mlp
            channels.append(torch.stack([first.weight, second.weight]))
            biases.append(torch.stack([first.bias, second.bias]))
            norms += [torch.stack([norm.weight, norm.bias]) for norm in (block.channel_norm, block.token_norm)]
        first, _, _, second = block.token_mlp
        tokens.append(torch.stack([first.weight.T, second.weight.T]))
        biases.append(torch.stack([first.bias, second.bias]))
    parts = torch.stack(channels) if channels else torch.zeros(0, 2, dim, dim)
    norm = F.pad(torch.stack(norms), (0, -dim % _MULTIPLE))
    longest = max(size + -size % _MULTIPLE, norm.shape[2])
    shifts = torch.stack([F.pad(pair, (0, longest - pair.shape[1])) for pair in biases])
    return _filled(torch.stack(tokens)), _filled(parts), shifts, norm


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, drops: tuple[int, int], seeds: Any) -> Tensor:
        from gpatcher.kernels.encoder import ROWS, encode_rows

        out = torch.empty(len(x), len(bias))
        rows, wide, shift, result = _arrays(x, weight, bias, out)

        def part(start: int, end: int, _: int) -> None:
            encode_rows(rows[start:end], wide, shift, *drops, seeds, start // ROWS, result[start:end])

        _in_parts(part, len(x), ROWS)
        ctx.save_for_backward(x, out)
        ctx.settings, ctx.shape = (*drops, seeds), wide.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from gpatcher.kernels.encoder import ROWS, encoder_gradients

        x, out = ctx.saved_tensors
        rows, result, slope = _arrays(x, out, grad)
        weights, biases = np.zeros((_PARTS, *ctx.shape), np.float32), np.zeros((_PARTS, out.shape[1]), np.float32)

        def part(start: int, end: int, number: int) -> None:
            here = (values[start:end] for values in (rows, result, slope))
            encoder_gradients(*here, *ctx.settings, start // ROWS, weights[number], biases[number])

        _in_parts(part, len(rows), ROWS)
        return None, torch.from_numpy(weights.sum(0)), torch.from_numpy(biases.sum(0)), None, None


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, mask: Tensor, *args: Any) -> Tensor:
        from gpatcher.kernels.mixer import BLOCK, mix_patches

        weights, (skip, drop, seeds) = args[:4], args[4:]
        out = torch.empty(len(z), z.shape[2])
        patches, filled, result, *arrays = _arrays(z, mask, out, *weights)

        def part(start: int, end: int, _: int) -> None:
            here = patches[start:end], filled[start:end]
            mix_patches(*here, *arrays, skip, drop, seeds[0], start // BLOCK, result[start:end])

        _in_parts(part, len(z), BLOCK)
        ctx.save_for_backward(z, mask, *weights)
        ctx.settings = skip, drop, seeds[0]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from gpatcher.kernels.mixer import BLOCK, mix_gradients

        z, mask, tokens, channels, biases, norms = ctx.saved_tensors
        grad_z = torch.empty_like(z, memory_format=torch.contiguous_format)
        patches, filled, slope, result, *arrays = _arrays(z, mask, grad, grad_z, tokens, channels, biases, norms)
        (transposed,) = _arrays(tokens.transpose(2, 3))
        sums = [np.zeros((_PARTS, *weights.shape), np.float32) for weights in (tokens, channels, biases, norms)]

        def part(start: int, end: int, number: int) -> None:
            here, own = (patches[start:end], filled[start:end]), [total[number] for total in sums]
            first = start // BLOCK
            mix_gradients(*here, *arrays, *ctx.settings, first, transposed, slope[start:end], result[start:end], *own)

        _in_parts(part, len(z), BLOCK)
        return (grad_z, None, *(torch.from_numpy(total.sum(0)) for total in sums), None, None, None)


def _mix_rows(rows: Tensor, index: Tensor, scale: Tensor, mask: Tensor, *args: Any) -> Tensor:
    """Return what `_Mix` returns without a gradient; each part of the patches is gathered when it is mixed."""
    from gpatcher.kernels.mixer import BLOCK, gather_patches, mix_patches

    weights, (skip, drop, seeds) = args[:4], args[4:]
    out = torch.empty(len(index), rows.shape[1])
    members, scales, filled, table, result, *arrays = _arrays(index, scale, mask, rows, out, *weights)

    def part(start: int, end: int, _: int) -> None:
        patches = np.empty((end - start, *members.shape[1:], table.shape[1]), np.float32)
        gather_patches(table, members[start:end], scales[start:end], patches)
        mix_patches(patches, filled[start:end], *arrays, skip, drop, seeds[0], start // BLOCK, result[start:end])

    _in_parts(part, len(index), BLOCK)
    return out


def _in_parts(function: Callable[[int, int, int], None], count: int, multiple: int) -> None:
    """Call a function with start, end and number of each part of ``count`` items, on as many threads as torch has."""
    length = -(-count // (_PARTS * multiple)) * multiple
    starts = range(0, count, max(1, length))
    ends = [min(start + length, count) for start in starts]
    threads = torch.get_num_threads()
    call = map if threads == 1 else _pool(threads, os.getpid()).map
    for _ in call(function, starts, ends, range(_PARTS)):
        pass


@lru_cache(1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return threads of this process; those of a process that forked do not exist in it."""
    return ThreadPoolExecutor(threads)


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _filled(weights: Tensor) -> Tensor:
    """Fill up the last two dimensions with zeros to multiples of 16."""
    rows, columns = (-size % _MULTIPLE for size in weights.shape[-2:])
    return F.pad(weights, (0, columns, 0, rows)) if rows or columns else weights


def _of_65536(p: float) -> int:
    return min(round(p * 2**16), 2**16 - 1)


def _seeds(drops: Sequence[int]) -> Any:
    """Return a seed for each mask; torch's generator draws those of masks that drop something."""
    return np.array([int(torch.empty((), dtype=torch.int64).random_()) if drop else 0 for drop in drops], np.uint64)
