"""The frequencies of a graph: eigenpairs of Ã, and how the energy of a signal lies over them.

A frequency is an eigenvalue λ of the normalised adjacency: λ near 1 is low (neighbours alike),
λ near -1 is high (neighbours opposite).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs
import psutil
import scipy.linalg

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph

_PATIENCE = 600.0  # seconds of one core beyond which nobody is made to wait for eigenvectors unasked


@dataclass(frozen=True, eq=False)
class Spectrum:
    """All eigenpairs of Ã: ``values`` (n,) from -1 up to 1, ``vectors`` (n, n) with one in each column."""

    values: FloatArray
    vectors: FloatArray

    def transform(self, signal: FloatArray) -> FloatArray:
        """Return the graph Fourier transform Uᵀs of a signal, shape (n,) or (n, c)."""
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

    Parameters
    ----------
    dtype : float32 takes half the memory and 0.6 of the time; its vectors are orthogonal to about 2e-6
    memory : bytes it may use, by default half of what is free; more is refused before anything starts
    cache : folder to keep the eigenpairs in, under a key of the graph's content

    Examples
    --------
    >>> eigenpairs(Graph.from_edge_index([[0, 1], [1, 0]])).values.round(6)
    array([-1.,  1.])
    """
    kept = None
    if cache is not None:
        kept = cache / f"{graph.fingerprint}-{'loops-' if self_loops else ''}{np.dtype(dtype).name}.npy"
        found = _read_cache(kept, graph.n, np.dtype(dtype))
        if found is not None:
            return found
    check_budget(graph.n, np.dtype(dtype).itemsize, memory)
    dense = graph.normalised(self_loops, dtype).toarray()
    # divide and conquer: the quickest driver here, and unlike "evr" it keeps the vectors orthogonal
    values, vectors = scipy.linalg.eigh(dense, driver="evd", overwrite_a=True, check_finite=False)
    spectrum = Spectrum(values, vectors)
    if kept is not None:
        _write_cache(kept, spectrum)
    return spectrum


def eigenpairs_cost(n: int, itemsize: int = 4) -> tuple[int, float]:
    """Estimate the bytes and seconds of `eigenpairs`: 4.2 n × n arrays; the time is that of one common core."""
    return int(4.2 * itemsize * n * n), (1.1e-10 if itemsize == 4 else 1.8e-10) * n**3


def check_budget(n: int, itemsize: int = 4, memory: int | None = None) -> None:
    """Refuse an eigendecomposition that needs more memory than it may use."""
    needed, seconds = eigenpairs_cost(n, itemsize)
    budget = _budget(memory)
    if needed > budget:
        gib = 2**30
        raise InputError(
            f"all eigenvectors of {n:,} nodes need about {needed / gib:.1f} GiB and {seconds / 60:.0f} minutes, but "
            f"{budget / gib:.1f} GiB may be used; raise the budget (--memory), or take an extractor that needs no "
            "eigenvectors (--extractor ppr, or polynomial to train a filter)"
        )


def is_affordable(n: int, memory: int | None = None) -> bool:
    """Tell whether `eigenpairs` in single precision fit the memory and take ten minutes at most."""
    needed, seconds = eigenpairs_cost(n)
    return needed <= _budget(memory) and seconds <= _PATIENCE


def _budget(memory: int | None) -> int:
    return psutil.virtual_memory().available // 2 if memory is None else memory


def cache_folder() -> Path:
    """Return where eigenpairs are kept: ``$GPATCHER_CACHE``, else a folder in the user's cache."""
    return Path(os.environ.get("GPATCHER_CACHE") or platformdirs.user_cache_dir("gpatcher")) / "spectra"


def _write_cache(path: Path, spectrum: Spectrum) -> None:
    """Keep eigenvalues and vectors as one array of n + 1 rows, whole or not at all; a full disk is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, np.vstack([spectrum.values, spectrum.vectors]))
        Path(draft).replace(path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _read_cache(path: Path, n: int, dtype: np.dtype[Any]) -> Spectrum | None:
    try:
        with path.open("rb") as file:
            kept = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None  # damaged or of another kind: it is made anew
    if kept.shape != (n + 1, n) or kept.dtype != dtype:
        return None
    return Spectrum(kept[0], kept[1:])


def chebyshev_moments(graph: Graph, signal: FloatArray, count: int = 128, self_loops: bool = False) -> FloatArray:
    r"""Return the Chebyshev moments of a signal's spectral measure, without any eigenvector.

    .. math:: \mu_k = s^\top T_k(\tilde A)\, s = \sum_i \hat s_i^2\, T_k(\lambda_i), \quad k = 0 \dots count - 1

    The three-term recurrence gives two moments per product with Ã, so the cost is O(m · count / 2).

    Parameters
    ----------
    signal : shape (n,) or (n, c); moments of the columns are added

    Examples
    --------
    >>> pair = Graph.from_edge_index([[0, 1], [1, 0]])
    >>> chebyshev_moments(pair, np.array([1.0, 1.0]), count=4)  # all energy at λ = 1
    array([2., 2., 2., 2.])
    """
    if count < 2:
        raise InputError(f"count must be at least 2, got {count}")
    matrix = graph.normalised(self_loops)
    before = np.asarray(signal, dtype=np.float64)
    now = matrix @ before
    moments = np.empty(count + 1)
    moments[0], moments[1] = np.vdot(before, before), np.vdot(before, now)
    # T_a T_b = (T_{a+b} + T_{|a-b|}) / 2 turns each new vector into two moments
    for k in range(1, (count + 1) // 2):
        moments[2 * k] = 2.0 * np.vdot(now, now) - moments[0]
        before, now = now, 2.0 * (matrix @ now) - before
        moments[2 * k + 1] = 2.0 * np.vdot(now, before) - moments[1]
    return moments[:count]


@dataclass(frozen=True, eq=False)
class SpectralMeasure:
    """How the energy of a signal lies over the eigenvalues, as a histogram.

    Parameters
    ----------
    edges : borders of the bins over λ, from -1 to 1, shape (bins + 1,)
    share : share of the energy in each bin, shape (bins,); adds up to 1
    mean : mean eigenvalue sᵀÃs / sᵀs, exact in either case
    exact : from eigenvectors, or smoothed from moments
    """

    edges: FloatArray
    share: FloatArray
    mean: float
    exact: bool


def measure_exact(spectrum: Spectrum, signal: FloatArray, bins: int = 40) -> SpectralMeasure:
    """Bin the energy of a signal by eigenvalue."""
    energy = spectrum.energy(signal)
    values = np.clip(spectrum.values, -1.0, 1.0)
    sums, edges = np.histogram(values, bins=bins, range=(-1.0, 1.0), weights=energy)
    total = _positive_energy(float(energy.sum()))
    return SpectralMeasure(edges, sums / total, float(values @ energy) / total, exact=True)


def measure_from_moments(moments: FloatArray, bins: int = 40) -> SpectralMeasure:
    r"""Bin the energy of a signal from its Chebyshev moments alone.

    With λ = cos θ the measure is (μ_0 + 2 Σ_k g_k μ_k cos kθ) / π over θ, damped by Jackson's g_k so that it
    never goes negative; each bin is its integral in closed form. The resolution is about π / count.
    """
    count = moments.size
    total = _positive_energy(float(moments[0]))
    k = np.arange(1, count)
    q = np.pi / (count + 1)
    jackson = ((count - k + 1) * np.cos(k * q) + np.sin(k * q) / np.tan(q)) / (count + 1)
    edges = np.linspace(-1.0, 1.0, bins + 1)
    theta = np.arccos(edges)
    below = moments[0] * theta + 2.0 * np.sin(np.outer(theta, k)) @ (jackson * moments[1:] / k)
    share = np.maximum(-np.diff(below), 0.0) / np.pi / total
    return SpectralMeasure(edges, share / share.sum(), float(moments[1]) / total, exact=False)


def _positive_energy(total: float) -> float:
    if not total > 0:
        raise InputError("the signal is zero everywhere, so it has no frequencies")
    return total


def graph_spectrum(graph: Graph, self_loops: bool = False, memory: int | None = None) -> Spectrum:
    """Return the eigenpairs in single precision, from the cache where they are kept."""
    cache = cache_folder() if graph.n >= 1000 else None
    return eigenpairs(graph, self_loops, np.float32, memory=memory, cache=cache)
