"""Encoder, gather and mixer by compiled kernels, which keep intermediate values in cache: for large batches on a CPU.

The values are those of the modules up to rounding. Masks of dropout are drawn by a counter-based generator, whose seed
is one draw of torch's, and parts of a batch have fixed sizes, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gpatcher.model.views import PatchView

if TYPE_CHECKING:
    from gpatcher.model.mixer import PatchMixer

_PARTS = 16  # of a batch at most, each with its own sums of gradients
_MULTIPLE = 16  # sizes of matrices in the kernels


@dataclass(frozen=True, eq=False)
class Members:
    """The distinct nodes in the fixed patches of a batch, and where each of them occurs."""

    nodes: Tensor  # (r,): rows of the table of features
    places: tuple[Any, ...]  # starts, positions, patches and own, see `gpatcher.kernels.members.find_members`
    weights: Tensor  # (m,): of each position in the mean of its patch; source after source
    scale: Tensor  # (m,): factor of the narrow row at each position


def find_members(views: Sequence[PatchView], n: int, weighting: tuple[bool, bool]) -> tuple[Members, list[PatchView]]:
    """Return the distinct nodes of fixed patches, and the patches with rows of these in place of nodes.

    ``weighting`` is that of the mean, see `gpatcher.model.views.PatchView.weights`.
    """
    from gpatcher.kernels.members import find_members as find

    values = [(view.index, view.mask, view.weights(*weighting), view.scale()) for view in views]
    index, mask, weights, scale = (_joined([part.flatten() for part in parts]) for parts in zip(*values, strict=True))
    rows, sizes = torch.empty_like(index), np.array([view.index.shape[1] for view in views])
    nodes, *places = find(*_arrays(index, mask), sizes, n, rows.numpy())
    parts = torch.split(rows, [view.index.numel() for view in views])
    views = [replace(view, index=part.view_as(view.index)) for part, view in zip(parts, views, strict=True)]
    return Members(torch.from_numpy(nodes), tuple(places), weights, scale), views


def read(
    x: Tensor,
    members: Members,
    views: Sequence[PatchView],
    encoder: tuple[Tensor, Tensor],
    dropouts: tuple[float, float],
    narrow: nn.Sequential | None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return what a round reads of each patch.

    Parameters
    ----------
    x : Tensor, shape (n, d)
    members, views
        As returned by `find_members`.
    encoder : pair of Tensor
        Weight and bias of the encoder.
    dropouts : pair of float
        Of its input and output.
    narrow : nn.Sequential, optional
        Projection and LayerNorm of the narrow rows, if a mixer reads them.

    Returns
    -------
    ego : Tensor, shape (b, h)
    means, patches : list of Tensor, shape (b, h) and (b, p, m)
        Of each source: the mean of its members, and their narrow rows times their scale.
    """
    weight, bias = encoder
    matrix, norm = weight.new_zeros(weight.shape[1], 0), weight.new_zeros(3, 0)
    if narrow is not None:
        linear: Any
        layer: Any
        linear, layer = narrow
        same = isinstance(linear, nn.Identity)
        matrix = torch.eye(len(matrix)) if same else linear.weight.T
        norm = torch.stack([torch.zeros_like(layer.bias) if same else linear.bias, layer.weight, layer.bias])
    drops = _of_65536(dropouts[0]), _of_65536(dropouts[1])
    settings = (*drops, _seeds(drops))
    weights = _filled(weight), _filled_rows(bias), _filled(matrix), _filled_rows(norm)
    results = _Read.apply(x, members, views, settings, norm.shape[1], *weights)  # type: ignore[no-untyped-call]
    widths = weight.shape[1], weight.shape[1], norm.shape[1]
    ego, mean, z = (_narrowed(part, width) for part, width in zip(results, widths, strict=True))
    counts = [view.index.numel() for view in views]
    patches = zip(_parts(z, counts), views, strict=True)
    means = _parts(mean, [len(ego)] * len(views))
    return ego, means, [part.view(*view.index.shape, -1) for part, view in patches]


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _parts(whole: Tensor, lengths: list[int]) -> list[Tensor]:
    """Split a tensor into parts, if there are several: the gradient of a split is a copy."""
    return list(torch.split(whole, lengths)) if len(lengths) > 1 else [whole]


def _narrowed(rows: Tensor, width: int) -> Tensor:
    """Return the first columns, if there are more: the gradient of a slice is a copy."""
    return rows if rows.shape[1] == width else rows[:, :width]


def encode(x: Tensor, weight: Tensor, bias: Tensor, input_dropout: float, dropout: float) -> Tensor:
    """Return dropout(relu(dropout(x) · weight + bias)), shape (n, h); x has no gradient."""
    drops = _of_65536(input_dropout), _of_65536(dropout)
    out = _Encode.apply(x, _filled(weight), _filled_rows(bias), drops, _seeds(drops))  # type: ignore[no-untyped-call]
    return _narrowed(out, len(bias))


def mix(mixer: PatchMixer, view: PatchView, rows: Tensor) -> Tensor:
    """Return what the mixer makes of patches whose members are rows, shape (b, h)."""
    if torch.is_grad_enabled():
        return mix_patches(mixer, view.gather(rows), view.mask)
    settings = _settings(mixer, view.index.shape[1], rows.shape[1])
    out: Tensor = mixer.norm(_mix_rows(rows, view.index, view.scale(), view.mask, *settings))
    return out


def mix_patches(mixer: PatchMixer, z: Tensor, mask: Tensor) -> Tensor:
    """Return what the mixer makes of patches of shape (b, p, h), shape (b, h)."""
    mean = _Mix.apply(z, mask, *_settings(mixer, *z.shape[1:]))  # type: ignore[no-untyped-call]
    out: Tensor = mixer.norm(mean)
    return out


def _settings(mixer: PatchMixer, size: int, dim: int) -> tuple[Any, ...]:
    """Return the weights, whether there are skip connections, the dropout and its seed."""
    drop = _of_65536(mixer.dropout) if mixer.training else 0
    return (*_weights(mixer, size, dim), mixer.skip, drop, _seeds((drop,)))


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
    norm = _filled_rows(torch.stack(norms))
    longest = max(size + -size % _MULTIPLE, norm.shape[2])
    shifts = torch.stack([F.pad(pair, (0, longest - pair.shape[1])) for pair in biases])
    return _filled(torch.stack(tokens)), _filled(parts), shifts, norm


class _Read(torch.autograd.Function):
    """Ego, means and patches of `read`: (b, h), and of all sources one after the other, (S b, h) and (m, narrow)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, members: Members, views: Sequence[PatchView], settings: Any, width: int, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        from gpatcher.kernels.encoder import ROWS, encode_rows
        from gpatcher.kernels.reader import narrow_rows

        count, (hidden, narrow) = len(members.nodes), weights[2].shape
        h, rows, normal = (torch.empty(count, size) for size in (hidden, narrow, narrow))
        rates = torch.empty(count)
        table, nodes, matrix, bias, *projection = _arrays(x, members.nodes, *weights)
        outputs = _arrays(h, rows, normal, rates)

        def part(start: int, end: int, _: int) -> None:
            encoded, *narrowed = (values[start:end] for values in outputs)
            encode_rows(table, nodes[start:end], matrix, bias, *settings, start // ROWS, encoded)
            if width:
                narrow_rows(encoded, *projection, width, *narrowed)

        _in_parts(part, count, ROWS)
        ctx.save_for_backward(x, h, normal, rates, *weights)
        ctx.members, ctx.settings, ctx.width = members, settings, width
        return h.index_select(0, views[0].index[:, 0]), *_read_members(h, rows, members, views)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from gpatcher.kernels.encoder import ROWS, encoder_gradients
        from gpatcher.kernels.reader import collect_gradients, narrow_gradients

        x, h, normal, rates, *weights = ctx.saved_tensors
        members = ctx.members
        nodes, scores, factors, table = _arrays(members.nodes, members.weights, members.scale, x)
        encoded, *inner = _arrays(h, normal, rates)
        narrow, norm, *slopes = _arrays(*weights[2:], *grads)
        starts, *places = members.places
        sums = [np.zeros((_PARTS, *values.shape), np.float32) for values in weights]

        def part(start: int, end: int, number: int) -> None:
            rows, *own = (values[start:end] for values in (encoded, *inner))
            grad_h, grad_rows = np.empty_like(rows), np.empty_like(own[0])
            collect_gradients(starts[start : end + 1], *places, scores, factors, *slopes, grad_h, grad_rows)
            matrix, bias, *projection = (total[number] for total in sums)
            if ctx.width:
                narrow_gradients(rows, narrow, norm, ctx.width, *own, grad_rows, grad_h, *projection)
            first = start // ROWS
            encoder_gradients(table, nodes[start:end], rows, grad_h, *ctx.settings, first, matrix, bias)

        _in_parts(part, len(nodes), ROWS)
        return (None, None, None, None, None, *(torch.from_numpy(total.sum(0)) for total in sums))


def _read_members(h: Tensor, rows: Tensor, members: Members, views: Sequence[PatchView]) -> tuple[Tensor, Tensor]:
    """Return the means and the patches of all sources, one after the other."""
    counts = [view.index.numel() for view in views]
    mean, z = torch.empty(len(views) * len(views[0].index), h.shape[1]), torch.empty(sum(counts), rows.shape[1])
    split = (torch.split(values, counts) for values in (members.weights, members.scale, z))
    for view, target, weights, scale, patches in zip(views, mean.chunk(len(views)), *split, strict=True):
        shape = view.index.shape
        _read_source(h, rows, view, weights.view(shape), scale.view(shape), target, patches.view(*shape, -1))
    return mean, z


def _read_source(h: Tensor, rows: Tensor, view: PatchView, *tensors: Tensor) -> None:
    """Write means and patches of one source; ``tensors`` are weights, scale, means and patches."""
    from gpatcher.kernels.reader import read_patches

    table, narrow, *arrays = _arrays(h, rows, view.index, view.mask, *tensors)

    def part(start: int, end: int, _: int) -> None:
        read_patches(table, narrow, *(values[start:end] for values in arrays))

    _in_parts(part, len(view.index), 1)


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, drops: tuple[int, int], seeds: Any) -> Tensor:
        from gpatcher.kernels.encoder import ROWS, encode_rows

        out = torch.empty(len(x), len(bias))
        rows, wide, shift, result = _arrays(x, weight, bias, out)
        nodes = np.arange(len(x))

        def part(start: int, end: int, _: int) -> None:
            encode_rows(rows, nodes[start:end], wide, shift, *drops, seeds, start // ROWS, result[start:end])

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
        nodes = np.arange(len(x))
        weights, biases = np.zeros((_PARTS, *ctx.shape), np.float32), np.zeros((_PARTS, out.shape[1]), np.float32)

        def part(start: int, end: int, number: int) -> None:
            here = (values[start:end] for values in (nodes, result, slope))
            encoder_gradients(rows, *here, *ctx.settings, start // ROWS, weights[number], biases[number])

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


def _filled_rows(values: Tensor) -> Tensor:
    """Fill up the last dimension with zeros to a multiple of 16."""
    return F.pad(values, (0, -values.shape[-1] % _MULTIPLE)) if values.shape[-1] % _MULTIPLE else values


def _of_65536(p: float) -> int:
    return min(round(p * 2**16), 2**16 - 1)


def _seeds(drops: Sequence[int]) -> Any:
    """Return a seed for each mask; torch's generator draws those of masks that drop something."""
    return np.array([int(torch.empty((), dtype=torch.int64).random_()) if drop else 0 for drop in drops], np.uint64)
