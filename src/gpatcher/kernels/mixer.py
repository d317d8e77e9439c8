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

import numba as nb
import numpy as np

from gpatcher.kernels.activations import drop_factor, jit_numeric, normal_cdf, normal_density, random_words
from gpatcher.kernels.compile import Array
from gpatcher.kernels.product import add_product

BLOCK = 16  # patches at a time
_EPS, _ZERO, _ONE = np.float32(1e-5), np.float32(0), np.float32(1)
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
    biases : float32 array, shape (steps, 2, h, p)
        b₁ and b₂.
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
    wide = _side_by_side(biases)
    kept, rates = np.zeros((1, 5, h, n), np.float32), np.zeros((1, n), np.float32)
    work, words = np.zeros((3, h, n), np.float32), np.empty(h * n // 4, np.uint64)
    for start in range(0, len(patches), BLOCK):
        end = min(start + BLOCK, len(patches))
        _load(patches[start:end], work[0])
        block = first + start // BLOCK
        _forward(block, tokens, channels, wide, norms, skip, drop, seed, words, kept, rates, work, patches.shape[2])
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
    wide = _side_by_side(biases)
    bias_sums, norm_sums = np.zeros((steps, 2, h, n), np.float32), np.zeros((steps, 2, h, n), np.float32)
    kept, rates = np.zeros((steps, 5, h, n), np.float32), np.zeros((steps, n), np.float32)
    work, words, turned = np.zeros((3, h, n), np.float32), np.empty(h * n // 4, np.uint64), np.zeros((n, h), np.float32)
    z, d, e = work[0], work[1], work[2]
    for start in range(0, len(patches), BLOCK):
        end = min(start + BLOCK, len(patches))
        _load(patches[start:end], z)
        block = first + start // BLOCK
        _forward(block, tokens, channels, wide, norms, skip, drop, seed, words, kept, rates, work, width)
        _spread(grad[start:end], mask[start:end], z)  # from here on z is its own gradient
        for s in range(steps - 1, -1, -1):
            own = kept[s]
            _times(z.ravel(), own[_OUT_SLOPE].ravel(), d.ravel())
            for k in (1, 0):
                source = own[_ACTIVE] if k else own[_INPUT]
                _add(d.ravel(), bias_sums[s, k].ravel())
                if s % 2:
                    _transpose(source, turned)
                    add_product(d, turned, grad_channels[s // 2, k])
                    _fill(e.ravel(), _ZERO)
                    add_product(channels[s // 2, k].T, d, e)
                else:
                    rows = d.reshape(-1, p)
                    add_product(source.reshape(-1, p).T, rows, grad_tokens[s // 2, k])
                    _fill(e.ravel(), _ZERO)
                    add_product(rows, transposed[s // 2, k], e.reshape(-1, p))
                if k:
                    _times(e.ravel(), own[_SLOPE].ravel(), d.ravel())
            if s:
                _normalise_back(e, own[_NORMAL], rates[s], norms[s], norm_sums[s], width)
            if skip:
                _add(e.ravel(), z.ravel())
            else:
                _copy(e.ravel(), z.ravel())
        _store(z, grad_patches[start:end])
    for s in range(steps):
        for k in range(2):
            for i in range(h):
                for j in range(n):
                    grad_biases[s, k, i, j % p] += bias_sums[s, k, i, j]
                    grad_norms[s, k, i] += norm_sums[s, k, i, j]


@jit_numeric
def _side_by_side(biases: Array) -> Array:
    """Repeat biases for each patch of a block, shape (steps, 2, h, BLOCK p)."""
    steps, _, h, p = biases.shape
    out = np.empty((steps, 2, h, BLOCK * p), np.float32)
    for v in range(BLOCK):
        out[:, :, :, v * p : (v + 1) * p] = biases
    return out


# ------------------------------------------------------------------------------------------------ the steps


@jit_numeric
def _forward(
    block: int,
    tokens: Array,
    channels: Array,
    biases: Array,
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
    z, mixed, steps, p = work[0], work[1], len(biases), tokens.shape[2]
    slopes = len(kept) == steps
    for s in range(steps):
        own, rate = kept[s % len(kept)], rates[s % len(kept)]
        if s:
            _normalise(z, norms[s], own[_NORMAL], rate, own[_INPUT], width)
        else:
            _copy(z.ravel(), own[_INPUT].ravel())
        for k in range(2):
            source = own[_ACTIVE] if k else own[_INPUT]
            _copy(biases[s, k].ravel(), mixed.ravel())
            if s % 2:
                add_product(channels[s // 2, k], source, mixed)
            else:
                add_product(source.reshape(-1, p), tokens[s // 2, k], mixed.reshape(-1, p))
            if k == 0:
                _gelu(mixed.ravel(), own[_ACTIVE].ravel(), own[_SLOPE].ravel(), slopes)
                if drop:
                    random_words(seed, (block * steps + s) * words.size, words)
                    _drop(words.view(np.uint16), drop, own[_ACTIVE].ravel(), own[_SLOPE].ravel())
        if skip:
            _add(mixed.ravel(), z.ravel())
            _fill(own[_OUT_SLOPE].ravel(), _ONE)
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


@jit_numeric
def _normalise(z: Array, norm: Array, normal: Array, rate: Array, out: Array, width: int) -> None:
    """LayerNorm over the features of each position."""
    mean, count = out[0], np.float32(width)
    _fill(mean, _ZERO)
    _fill(rate, _ZERO)
    for i in range(width):
        _add(z[i], mean)
    for i in range(width):
        for j in range(rate.size):
            normal[i, j] = z[i, j] - mean[j] / count
            rate[j] += normal[i, j] * normal[i, j]
    for j in range(rate.size):
        rate[j] = _ONE / np.sqrt(rate[j] / count + _EPS)
    for i in range(width):
        for j in range(rate.size):
            normal[i, j] *= rate[j]
            out[i, j] = normal[i, j] * norm[0, i] + norm[1, i]


@jit_numeric
def _normalise_back(e: Array, normal: Array, rate: Array, norm: Array, grad: Array, width: int) -> None:
    """Replace the gradient of the output of `_normalise` by that of its input, and add that of scale and shift."""
    mean, product = np.zeros(rate.size, np.float32), np.zeros(rate.size, np.float32)
    for i in range(width):
        for j in range(rate.size):
            grad[0, i, j] += e[i, j] * normal[i, j]
            grad[1, i, j] += e[i, j]
        for j in range(rate.size):
            e[i, j] *= norm[0, i]
            mean[j] += e[i, j]
            product[j] += e[i, j] * normal[i, j]
    share = _ONE / np.float32(width)
    for i in range(width):
        for j in range(rate.size):
            e[i, j] = rate[j] * (e[i, j] - share * (mean[j] + normal[i, j] * product[j]))


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
def _load(patches: Array, z: Array) -> None:
    p = z.shape[1] // BLOCK
    if len(patches) < BLOCK:
        _fill(z.ravel(), _ZERO)
    for v in range(patches.shape[0]):
        for j in range(patches.shape[1]):
            for i in range(patches.shape[2]):
                z[i, v * p + j] = patches[v, j, i]


@jit_numeric
def _store(z: Array, patches: Array) -> None:
    p = z.shape[1] // BLOCK
    for v in range(patches.shape[0]):
        for j in range(patches.shape[1]):
            for i in range(patches.shape[2]):
                patches[v, j, i] = z[i, v * p + j]


@jit_numeric
def _mean(z: Array, mask: Array, out: Array) -> None:
    """Write the mean over the positions of each patch that have a member."""
    p = z.shape[1] // BLOCK
    for v in range(len(mask)):
        count = max(_dot(mask[v], mask[v]), _ONE)
        for i in range(out.shape[1]):
            out[v, i] = _dot(z[i, v * p :], mask[v]) / count


@jit_numeric
def _spread(grad: Array, mask: Array, z: Array) -> None:
    """Write the gradient of `_mean`."""
    p = z.shape[1] // BLOCK
    _fill(z.ravel(), _ZERO)
    for v in range(len(mask)):
        count = max(_dot(mask[v], mask[v]), _ONE)
        for i in range(grad.shape[1]):
            share = grad[v, i] / count
            for j in range(mask.shape[1]):
                z[i, v * p + j] = share * mask[v, j]


@nb.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _dot(values: Array, mask: Array) -> np.float32:
    """Return the sum of the values where the mask is 1."""
    total = _ZERO
    for j in range(mask.size):
        total += values[j] * mask[j]
    return total


@jit_numeric
def _transpose(z: Array, out: Array) -> None:
    for j in range(z.shape[1]):
        for i in range(z.shape[0]):
            out[j, i] = z[i, j]


@jit_numeric
def _copy(values: Array, out: Array) -> None:
    for i in range(values.size):
        out[i] = values[i]


@jit_numeric
def _fill(out: Array, value: np.float32) -> None:
    for i in range(out.size):
        out[i] = value


@jit_numeric
def _add(values: Array, out: Array) -> None:
    for i in range(values.size):
        out[i] += values[i]


@jit_numeric
def _times(a: Array, b: Array, out: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] * b[i]
