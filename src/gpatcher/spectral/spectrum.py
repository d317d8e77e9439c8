"""Frequencies of a graph: eigenpairs of Ã, and the energy of a signal as a function of the eigenvalue.

A frequency is an eigenvalue λ of the normalised adjacency Ã: λ near 1 is a low frequency (neighbours have similar
values), λ near -1 a high one (neighbours have opposite values).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError, check_at_least, free_memory
from gpatcher.graph.graph import Graph
from gpatcher.io import cache_folder, checksum, draft_of, make_folder, write_text
from gpatcher.spectral.results import SpectralMeasure

_MAX_SECONDS = 600.0  # on one core; `is_affordable` rejects slower decompositions


@dataclass(frozen=True, eq=False)
class Spectrum:
    """All eigenpairs of Ã."""

    values: FloatArray  # in ascending order, in [-1, 1]
    vectors: FloatArray  # one per column

    def transform(self, signal: FloatArray) -> FloatArray:
        """Return the graph Fourier transform Uᵀs of a signal of shape (n,) or (n, c)."""
        return np.asarray(self.vectors.T @ signal)

    def energy(self, signal: FloatArray) -> FloatArray:
        """Return the energy of a signal at each eigenvalue, summed over its columns; shape (n,)."""
        parts = self.transform(signal) ** 2
        return np.asarray(parts if parts.ndim == 1 else parts.sum(axis=1))


def eigenpairs(
    graph: Graph,
    self_loops: bool = False,
    dtype: npt.DTypeLike = np.float64,
    *,
    memory: int | None = None,
    cache: Path | None = None,
) -> Spectrum:
    """Decompose Ã = UΛUᵀ exactly, in O(n³) time.

    float32 needs half the memory and 0.6 of the time; its eigenvectors are orthogonal to about 2e-6. It is an error
    if the computation needs more than ``memory`` bytes, by default half of the free memory. Eigenpairs are cached in
    the folder ``cache``, by a hash of the edges.

    Examples
    --------
    >>> eigenpairs(Graph.from_edge_index([[0, 1], [1, 0]])).values.round(6)
    array([-1.,  1.])
    """
    path = None
    if cache is not None:
        path = cache / f"{graph.fingerprint}-{'loops-' if self_loops else ''}{np.dtype(dtype).name}.npy"
        cached = _read_cache(path, graph.n, np.dtype(dtype))
        if cached is not None:
            return cached
    needed, seconds = eigenpairs_cost(graph.n, np.dtype(dtype).itemsize)
    budget, gib = _budget(memory), 2**30
    if needed > budget:
        raise InputError(
            f"all eigenvectors of {graph.n:,} nodes need about {needed / gib:.1f} GiB and {seconds / 60:.0f} minutes, "
            f"but {budget / gib:.1f} GiB may be used; raise the budget (--memory), or choose an extractor without "
            "eigenvectors (--extractor ppr, or polynomial to train a filter)"
        )
    dense = graph.normalised(self_loops, dtype).toarray()
    # divide and conquer: the fastest driver here, and unlike "evr" it keeps the vectors orthogonal
    values, vectors = scipy.linalg.eigh(dense, driver="evd", overwrite_a=True, check_finite=False)
    if path is not None:
        _write_cache(path, values, vectors)
    return Spectrum(values, vectors)


def graph_spectrum(graph: Graph, self_loops: bool = False, memory: int | None = None) -> Spectrum:
    """Return the eigenpairs that extractors use: single precision, and cached from 1,000 nodes on."""
    cache = cache_folder("spectra") if graph.n >= 1000 else None
    return eigenpairs(graph, self_loops, np.float32, memory=memory, cache=cache)


def eigenpairs_cost(n: int, itemsize: int = 4) -> tuple[int, float]:
    """Estimate the bytes (4.2 arrays of n × n) and the seconds (on one typical core) of `eigenpairs`."""
    return int(4.2 * itemsize * n * n), (1.1e-10 if itemsize == 4 else 1.8e-10) * n**3


def is_affordable(n: int, memory: int | None = None) -> bool:
    """Return whether `eigenpairs` in single precision fits into memory and takes at most ten minutes."""
    needed, seconds = eigenpairs_cost(n)
    return needed <= _budget(memory) and seconds <= _MAX_SECONDS


def _budget(memory: int | None) -> int:
    return free_memory() // 2 if memory is None else memory


def _write_cache(path: Path, values: FloatArray, vectors: FloatArray) -> None:
    """Write eigenvalues and eigenvectors as one array of n + 1 rows; a folder that cannot be written is ignored."""
    with suppress(InputError):
        make_folder(path.parent)
        with draft_of(path) as draft, draft.open("wb") as file:
            np.save(file, np.vstack([values, vectors]))
        write_text(path.with_suffix(".sha256"), checksum(path))


def _read_cache(path: Path, n: int, dtype: np.dtype[Any]) -> Spectrum | None:
    try:
        if path.with_suffix(".sha256").read_text() != checksum(path):
            return None
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None  # missing or damaged: the eigenpairs are computed again
    return Spectrum(array[0], array[1:]) if array.shape == (n + 1, n) and array.dtype == dtype else None


def chebyshev_moments(graph: Graph, signal: FloatArray, count: int = 128, self_loops: bool = False) -> FloatArray:
    r"""Return the Chebyshev moments of the spectral measure of a signal, summed over its columns, without eigenvectors.

    .. math:: \mu_k = s^\top T_k(\tilde A)\, s = \sum_i \hat s_i^2\, T_k(\lambda_i), \quad k = 0 \dots count - 1

    The three-term recurrence gives two moments per product with Ã, so the cost is O(m · count / 2).

    Examples
    --------
    >>> pair = Graph.from_edge_index([[0, 1], [1, 0]])
    >>> chebyshev_moments(pair, np.array([1.0, 1.0]), count=4)  # all energy at λ = 1
    array([2., 2., 2., 2.])
    """
    check_at_least(2, count=count)
    matrix = graph.normalised(self_loops)
    previous = np.asarray(signal, dtype=np.float64)
    current = matrix @ previous
    moments = np.empty(count + 1)
    moments[0], moments[1] = np.vdot(previous, previous), np.vdot(previous, current)
    # T_a T_b = (T_{a+b} + T_{|a-b|}) / 2 turns each new vector into two moments
    for k in range(1, (count + 1) // 2):
        moments[2 * k] = 2.0 * np.vdot(current, current) - moments[0]
        previous, current = current, 2.0 * (matrix @ current) - previous
        moments[2 * k + 1] = 2.0 * np.vdot(current, previous) - moments[1]
    return moments[:count]


def measure_exact(spectrum: Spectrum, signal: FloatArray, bins: int = 40) -> SpectralMeasure:
    """Bin the energy of a signal by eigenvalue."""
    energy = spectrum.energy(signal)
    values = np.clip(spectrum.values, -1.0, 1.0)
    sums, edges = np.histogram(values, bins=bins, range=(-1.0, 1.0), weights=energy)
    total = _positive_energy(float(energy.sum()))
    return SpectralMeasure(edges, sums / total, float(values @ energy) / total, exact=True)


def measure_from_moments(moments: FloatArray, bins: int = 40) -> SpectralMeasure:
    r"""Bin the energy of a signal by eigenvalue, from its Chebyshev moments.

    With λ = cos θ the density over θ is

    .. math:: \frac{1}{\pi} \Big( \mu_0 + 2 \sum_k g_k\, \mu_k \cos k\theta \Big),

    damped by Jackson's g_k so that it is never negative; each bin is its integral in closed form. The resolution is
    about π / count.
    """
    count = moments.size
    total = _positive_energy(float(moments[0]))
    k = np.arange(1, count)
    q = np.pi / (count + 1)
    jackson = ((count - k + 1) * np.cos(k * q) + np.sin(k * q) / np.tan(q)) / (count + 1)
    edges = np.linspace(-1.0, 1.0, bins + 1)
    theta = np.arccos(edges)
    integral = moments[0] * theta + 2.0 * np.sin(np.outer(theta, k)) @ (jackson * moments[1:] / k)
    fraction = np.maximum(-np.diff(integral), 0.0) / np.pi / total
    return SpectralMeasure(edges, fraction / fraction.sum(), float(moments[1]) / total, exact=False)


def _positive_energy(total: float) -> float:
    if not total > 0:
        raise InputError("the signal is zero everywhere, so it has no frequencies")
    return total
