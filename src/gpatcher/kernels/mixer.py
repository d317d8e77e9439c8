"""The patch mixer, a few patches at a time, so that all that belongs to them stays in cache.

The mathematics is that of `gpatcher.model.mixer.PatchMixer`, as steps of one form. In step s = 0, 1, 2, ... a patch z,
h features by p positions, becomes

    r = scale ∘ norm(z) + shift   (r = z in the first step)
    a = dropout(gelu(r · W₁ᵀ + b₁))
    z ← gelu(a · W₂ᵀ + b₂), or z + a · W₂ᵀ + b₂ with skip connections.

In even steps W mixes positions, as written; in odd ones it mixes features, W₁ · r and W₂ · a. The result is the mean
over the positions that have a member. `BLOCK` patches lie side by side, shape (h, BLOCK p), where h and p are multiples
of 16, filled up with zeros.
"""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.activations import drop_factor, jit_numeric, normal_cdf, normal_density, random_words
from gpatcher.kernels.compile import Array
from gpatcher.kernels.norm import add, copy, dot, fill, normalise, normalise_back, total
from gpatcher.kernels.product import WIDE, add_product, transpose, write_product

BLOCK = 16  # patches at a time
_ZERO, _ONE = np.float32(0), np.float32(1)
_NORMAL, _INPUT, _ACTIVE, _SLOPE, _OUT_SLOPE = range(5)  # what a step keeps for the backward pass


@jit_numeric
def mix_patches(
    patches: Array,
    mask: Array,
    tokens: Array,
    channels: Array,
    biases: Array,
    norms: Array,
    skip: bool,
    drop: int,
    seed: np.uint64,
    first: int,
    out: Array,
) -> None:
    """Write the mean of the mixed positions of each patch.

    Parameters
    ----------
    patches : float32 array, shape (b, p', h')
        With the true numbers of positions and features.
    mask : float32 array, shape (b, p')
    tokens : float32 array, shape (even steps, 2, p, p)
        W₁ᵀ and W₂ᵀ of the steps that mix positions.
    channels : float32 array, shape (odd steps, 2, h, h)
        W₁ and W₂ of the steps that mix features.
    biases : float32 array, shape (steps, 2, max(h, p))
        b₁ and b₂, one value for each position in even steps and for each feature in odd ones.
    norms : float32 array, shape (steps, 2, h)
        Scale and shift; those of the first step are not read.
    skip : bool
    drop : int
        Of 65,536 values, how many are dropped.
    seed, first : int
        Of the masks of dropout, and number of the first block in them.
    out : float32 array, shape (b, h')
    """
    h, n = channels.shape[2], BLOCK * tokens.shape[2]
    starts = _starts(biases, h, tokens.shape[2])
    kept, rates = np.zeros((1, 5, h, n), np.float32), np.zeros((1, n), np.float32)
    work, rows = np.zeros((3, h, n), np.float32), np.zeros((n, h), np.float32)
    words = np.empty(h * n // 4, np.uint64)
    for start in range(0, len(patches), BLOCK):
        end = min(start + BLOCK, len(patches))
        _load(patches[start:end], rows, work[0])
        block = first + start // BLOCK
        _forward(block, tokens, channels, starts, norms, skip, drop, seed, words, kept, rates, work, patches.shape[2])
        _mean(work[0], mask[start:end], out[start:end])


@jit_numeric
def mix_gradients(
    patches: Array,
    mask: Array,
    tokens: Array,
    channels: Array,
    biases: Array,
    norms: Array,
    skip: bool,
    drop: int,
    seed: np.uint64,
    first: int,
    transposed: Array,
    grad: Array,
    grad_patches: Array,
    grad_tokens: Array,
    grad_channels: Array,
    grad_biases: Array,
    grad_norms: Array,
) -> None:
    """Write the gradient of the patches and add those of the weights, for a gradient of the output of `mix_patches`.

    ``transposed`` holds W₁ and W₂ of the steps that mix positions. The gradients have the shapes of the weights.
    """
    steps, h, p, width = len(biases), channels.shape[2], tokens.shape[2], patches.shape[2]
    n = BLOCK * p
    starts = _starts(biases, h, tokens.shape[2])
    zeros, sums = np.zeros((h, max(p, WIDE)), np.float32), np.zeros((steps, 2, n), np.float32)
    kept, rates = np.zeros((steps, 5, h, n), np.float32), np.zeros((steps, n), np.float32)
    work, rows, turned = np.zeros((3, h, n), np.float32), np.zeros((n, h), np.float32), np.zeros((n, h), np.float32)
    words = np.empty(h * n // 4, np.uint64)
    z, d, e = work[0], work[1], work[2]
    for start in range(0, len(patches), BLOCK):
        end = min(start + BLOCK, len(patches))
        _load(patches[start:end], rows, z)
        block = first + start // BLOCK
        _forward(block, tokens, channels, starts, norms, skip, drop, seed, words, kept, rates, work, width)
        _spread(grad[start:end], mask[start:end], z)  # from here on z is its own gradient
        for s in range(steps - 1, -1, -1):
            own = kept[s]
            _times(z.ravel(), own[_OUT_SLOPE].ravel(), d.ravel())
            for k in (1, 0):
                source = own[_ACTIVE] if k else own[_INPUT]
                if s % 2:
                    for i in range(h):
                        grad_biases[s, k, i] += total(d[i])
                    transpose(source, turned)
                    add_product(d, turned, grad_channels[s // 2, k])
                    write_product(channels[s // 2, k].T, d, zeros[:, :WIDE], e)
                else:
                    for i in range(h):
                        add(d[i], sums[s, k])
                    tall = d.reshape(-1, p)
                    add_product(source.reshape(-1, p).T, tall, grad_tokens[s // 2, k])
                    write_product(tall, transposed[s // 2, k], zeros[:, :p], e.reshape(-1, p))
                if k:
                    _times(e.ravel(), own[_SLOPE].ravel(), d.ravel())
            if s:
                normalise_back(e, own[_NORMAL], rates[s], norms[s], grad_norms[s], width)
            if skip:
                add(e.ravel(), z.ravel())
            else:
                copy(e.ravel(), z.ravel())
        _store(z, turned, grad_patches[start:end])
    for s in range(0, steps, 2):
        for k in range(2):
            for j in range(n):
                grad_biases[s, k, j % p] += sums[s, k, j]


@jit_numeric
def _starts(biases: Array, h: int, p: int) -> Array:
    """Return what products start from, shape (steps, 2, h, max(p, WIDE)): b by position, or by feature in odd steps."""
    steps = len(biases)
    out = np.zeros((steps, 2, h, max(p, WIDE)), np.float32)
    for s in range(steps):
        for k in range(2):
            for i in range(h):
                for j in range(out.shape[3] if s % 2 else p):
                    out[s, k, i, j] = biases[s, k, i if s % 2 else j]
    return out


# ------------------------------------------------------------------------------------------------ the steps


@jit_numeric
def _forward(
    block: int,
    tokens: Array,
    channels: Array,
    starts: Array,
    norms: Array,
    skip: bool,
    drop: int,
    seed: np.uint64,
    words: Array,
    kept: Array,
    rates: Array,
    work: Array,
    width: int,
) -> None:
    """Run all steps on the patches in ``work[0]``; if each step has a place in ``kept``, keep the slopes there."""
    z, mixed, steps, p = work[0], work[1], len(starts), tokens.shape[2]
    slopes = len(kept) == steps
    for s in range(steps):
        own, rate = kept[s % len(kept)], rates[s % len(kept)]
        if s:
            normalise(z, norms[s], own[_NORMAL], rate, own[_INPUT], width)
        else:
            copy(z.ravel(), own[_INPUT].ravel())
        for k in range(2):
            source = own[_ACTIVE] if k else own[_INPUT]
            if s % 2:
                write_product(channels[s // 2, k], source, starts[s, k, :, :WIDE], mixed)
            else:
                write_product(source.reshape(-1, p), tokens[s // 2, k], starts[s, k, :, :p], mixed.reshape(-1, p))
            if k == 0:
                _gelu(mixed.ravel(), own[_ACTIVE].ravel(), own[_SLOPE].ravel(), slopes)
                if drop:
                    random_words(seed, (block * steps + s) * words.size, words)
                    _drop(words.view(np.uint16), drop, own[_ACTIVE].ravel(), own[_SLOPE].ravel())
        if skip:
            add(mixed.ravel(), z.ravel())
            fill(own[_OUT_SLOPE].ravel(), _ONE)
        else:
            _gelu(mixed.ravel(), z.ravel(), own[_OUT_SLOPE].ravel(), slopes)


@jit_numeric
def _gelu(x: Array, out: Array, slope: Array, slopes: bool) -> None:
    if slopes:
        for i in range(x.size):
            share = normal_cdf(x[i])
            out[i] = x[i] * share
            slope[i] = share + x[i] * normal_density(x[i])
    else:
        for i in range(x.size):
            out[i] = x[i] * normal_cdf(x[i])


@jit_numeric
def _drop(bits: Array, drop: int, values: Array, slope: Array) -> None:
    limit, factor = np.uint16(drop), drop_factor(drop)
    for i in range(values.size):
        kept = factor if bits[i] >= limit else _ZERO
        values[i] *= kept
        slope[i] *= kept


# ------------------------------------------------------------------------------------------------ patches in and out


@jit_numeric
def gather_patches(rows: Array, index: Array, scale: Array, out: Array) -> None:
    """Write the rows of the members of each patch times their scale, shape (b, p, h)."""
    for v in range(index.shape[0]):
        for j in range(index.shape[1]):
            row = rows[index[v, j]]
            for i in range(row.size):
                out[v, j, i] = row[i] * scale[v, j]


@jit_numeric
def _load(patches: Array, rows: Array, z: Array) -> None:
    """Write patches side by side; ``rows`` is a buffer of the transposed shape, with zeros where nothing is written."""
    p = z.shape[1] // BLOCK
    if len(patches) < BLOCK:
        fill(rows.ravel(), _ZERO)
    for v in range(patches.shape[0]):
        for j in range(patches.shape[1]):
            for i in range(patches.shape[2]):
                rows[v * p + j, i] = patches[v, j, i]
    transpose(rows, z)


@jit_numeric
def _store(z: Array, rows: Array, patches: Array) -> None:
    p = z.shape[1] // BLOCK
    transpose(z, rows)
    for v in range(patches.shape[0]):
        for j in range(patches.shape[1]):
            for i in range(patches.shape[2]):
                patches[v, j, i] = rows[v * p + j, i]


@jit_numeric
def _mean(z: Array, mask: Array, out: Array) -> None:
    """Write the mean over the positions of each patch that have a member."""
    p = z.shape[1] // BLOCK
    for v in range(len(mask)):
        count = max(dot(mask[v], mask[v]), _ONE)
        for i in range(out.shape[1]):
            out[v, i] = dot(z[i, v * p :], mask[v]) / count


@jit_numeric
def _spread(grad: Array, mask: Array, z: Array) -> None:
    """Write the gradient of `_mean`."""
    p = z.shape[1] // BLOCK
    weights = np.zeros(z.shape[1], np.float32)
    for v in range(len(mask)):
        count = max(dot(mask[v], mask[v]), _ONE)
        for j in range(mask.shape[1]):
            weights[v * p + j] = mask[v, j] / count
    fill(z.ravel(), _ZERO)
    column = np.zeros((z.shape[0], 1), np.float32)
    for v in range(len(mask)):
        for i in range(grad.shape[1]):
            column[i, 0] = grad[v, i]
        part = z[:, v * p : (v + 1) * p]
        write_product(column, weights[v * p : (v + 1) * p].reshape(1, -1), part, part)


@jit_numeric
def _times(a: Array, b: Array, out: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] * b[i]
