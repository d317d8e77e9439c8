"""What the model reads of a batch of fixed patches: the mean of the members, and their narrow rows for the mixer.

Each distinct member is encoded once (`gpatcher.kernels.encoder`), and r = LayerNorm(h · W + b) is its narrow row. A
patch reads Σ weight · h over its members, and scale · r of each of them. In the backward pass the gradients of a member
are collected from all positions where it occurs, so that no two threads add to the same row. Widths of h and r are
multiples of 16, filled up with zeros.

Kernels are called one after the other for a part of the members that fits the cache, not from one another: Numba's code
for the encoder is 1.6 times slower inside a function that calls it.
"""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.activations import jit_numeric
from gpatcher.kernels.compile import Array, prefetch
from gpatcher.kernels.norm import add, copy, fill, normalise, normalise_back, total
from gpatcher.kernels.product import COLUMNS, add_product, add_row, transpose, write_product

GROUP = 256  # members at a time
_AHEAD = 16  # occurrences of members whose gradients are loaded ahead
_ZERO, _ONE = np.float32(0), np.float32(1)


@jit_numeric
def narrow_rows(h: Array, narrow: Array, norm: Array, width: int, rows: Array, normal: Array, rates: Array) -> None:
    """Write the narrow rows of some members.

    Parameters
    ----------
    h : float32 array, shape (r, h)
        Encoding of the members.
    narrow : float32 array, shape (h, m)
        Weights of the projection.
    norm : float32 array, shape (3, m)
        Bias of the projection, scale and shift of the LayerNorm.
    width : int
        True width of the narrow rows.
    rows, normal : float32 array, shape (r, m)
        The narrow rows, and their values before scale and shift.
    rates : float32 array, shape (r,)
        One over the standard deviation of each row.
    """
    m = narrow.shape[1]
    biases, z = np.zeros((COLUMNS, m), np.float32), np.zeros((GROUP, m), np.float32)
    biases[:] = norm[0]
    work = np.zeros((3, m, GROUP), np.float32)
    turned, centred, out = work[0], work[1], work[2]
    block, rate = np.zeros((GROUP, h.shape[1]), np.float32), np.zeros(GROUP, np.float32)
    for start in range(0, len(h), GROUP):
        count = min(GROUP, len(h) - start)
        source = h[start : start + count]
        if count < GROUP:
            copy(source.ravel(), block.ravel())
            source = block
        write_product(source, narrow, biases, z)
        transpose(z, turned)
        normalise(turned, norm[1:], centred, rate, out, width)
        for values, target in ((out, rows), (centred, normal)):
            transpose(values, z)
            copy(z[:count].ravel(), target[start : start + count].ravel())
        copy(rate[:count], rates[start : start + count])


@jit_numeric
def read_patches(
    h: Array, rows: Array, index: Array, mask: Array, weights: Array, scale: Array, mean: Array, z: Array
) -> None:
    """Write what each patch reads of its members.

    Parameters
    ----------
    h, rows : float32 array, shape (r, h) and (r, m)
        Of the members.
    index : int64 array, shape (b, p)
    mask, weights, scale : float32 array, shape (b, p)
        0 where there is no member; weights of the mean; factors of the narrow rows.
    mean : float32 array, shape (b, h)
    z : float32 array, shape (b, p, m)
    """
    (b, p), flat = index.shape, z.reshape(-1, z.shape[2])
    wide, narrow = h.ravel(), rows.ravel()
    fill(mean.ravel(), _ZERO)
    for v in range(b):
        if v + 1 < b:
            for j in range(p):
                if mask[v + 1, j]:
                    _load_row(wide, index[v + 1, j], h.shape[1])
                    _load_row(narrow, index[v + 1, j], rows.shape[1])
        fill(z[v].ravel(), _ZERO)
        for j in range(p):
            if weights[v, j]:
                add_row(weights[v, j], h, index[v, j], mean, v)
            if mask[v, j]:
                add_row(scale[v, j], rows, index[v, j], flat, v * p + j)


@jit_numeric
def _load_row(values: Array, i: int, width: int) -> None:
    """Load a row of a matrix, given as its numbers one after the other, into the cache while the code goes on."""
    for j in range(i * width, (i + 1) * width, COLUMNS):  # as many numbers as there are in a cache line
        prefetch(values, np.uint64(j))


@jit_numeric
def collect_gradients(
    starts: Array,
    positions: Array,
    patches: Array,
    own: Array,
    weights: Array,
    scale: Array,
    grad_ego: Array,
    grad_mean: Array,
    grad_z: Array,
    grad_h: Array,
    grad_rows: Array,
) -> None:
    """Write the gradients of some members, for those of what `read_patches` wrote for the patches of all sources.

    Parameters
    ----------
    starts, positions, patches, own : int64 array
        Where each member occurs, see `gpatcher.kernels.members.find_members`.
    weights, scale : float32 array
        At each position, as of `read_patches`.
    grad_ego, grad_mean, grad_z : float32 arrays
        Of all patches; their rows are what ``own``, ``patches`` and ``positions`` refer to.
    grad_h, grad_rows : float32 array, shape (r, h) and (r, m)
        Gradients of the encoding and of the narrow row of each member.
    """
    numbers = grad_z.ravel()
    fill(grad_h.ravel(), _ZERO)
    fill(grad_rows.ravel(), _ZERO)
    for i in range(len(grad_h)):
        for k in range(starts[i], starts[i + 1]):
            position = positions[k]
            if k + _AHEAD < positions.size:
                _load_row(numbers, positions[k + _AHEAD], grad_z.shape[1])
            if own[k] >= 0:
                add_row(_ONE, grad_ego, own[k], grad_h, i)
            if weights[position]:
                add_row(weights[position], grad_mean, patches[k], grad_h, i)
            add_row(scale[position], grad_z, position, grad_rows, i)


@jit_numeric
def narrow_gradients(
    h: Array,
    narrow: Array,
    norm: Array,
    width: int,
    normal: Array,
    rates: Array,
    grad_rows: Array,
    grad_h: Array,
    grad_narrow: Array,
    grad_norm: Array,
) -> None:
    """Add the gradients of what `narrow_rows` reads, for that of the narrow rows."""
    m, turned_narrow = narrow.shape[1], np.ascontiguousarray(narrow.T)
    e, block = np.zeros((GROUP, m), np.float32), np.zeros((GROUP, m), np.float32)
    g, blank = np.zeros((GROUP, len(narrow)), np.float32), np.zeros((COLUMNS, len(narrow)), np.float32)
    turned, centred = np.zeros((m, GROUP), np.float32), np.zeros((m, GROUP), np.float32)
    rate = np.zeros(GROUP, np.float32)
    for start in range(0, len(h), GROUP):
        count = min(GROUP, len(h) - start)
        end = start + count
        fill(e[count:].ravel(), _ZERO)
        copy(grad_rows[start:end].ravel(), e.ravel())
        copy(normal[start:end].ravel(), block.ravel())
        copy(rates[start:end], rate)
        transpose(block, centred)
        transpose(e, turned)
        normalise_back(turned, centred, rate, norm[1:], grad_norm[1:], width)
        for j in range(width):
            grad_norm[0, j] += total(turned[j])
        transpose(turned, e)
        add_product(h[start:end].T, e[:count], grad_narrow)
        if count == GROUP:
            add_product(e, turned_narrow, grad_h[start:end])
        else:
            write_product(e, turned_narrow, blank, g)
            add(g[:count].ravel(), grad_h[start:end].ravel())
