"""Small graphs, and the dense matrix R whose largest entries every extractor must return."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from gpatcher.errors import InputWarning
from gpatcher.graph.graph import Graph

K, C, THRESHOLD = 6, 0.6, 0.4


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def graphs():
    """Functions that build graphs."""
    return SimpleNamespace(
        build=_build, undirected=_undirected, random_pairs=_random_pairs, make=_make, ring=_ring, kinds=KINDS
    )


@pytest.fixture(scope="session")
def dense():
    """Dense matrices written out from the edges alone, and a check of patches against them."""
    return SimpleNamespace(normalised=_normalised, directed=_directed, scores=_scores, check=_check, K=K, c=C)


# ------------------------------------------------------------------------------------------------ graphs

KINDS = ("connected", "disconnected", "weighted", "directed", "looped", "isolated")


def _build(source, target, n=None, weights=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return Graph.from_edge_index((np.asarray(source), np.asarray(target)), num_nodes=n, weights=weights)


def _undirected(pairs, n=None, weights=None):
    pairs = np.asarray(pairs)
    weights = None if weights is None else np.r_[weights, weights]
    return _build(np.r_[pairs[:, 0], pairs[:, 1]], np.r_[pairs[:, 1], pairs[:, 0]], n, weights)


def _random_pairs(n, rng, degree=3):
    """Edges of a connected graph: a random tree and more edges at random."""
    pairs = {(int(rng.integers(0, v)), v) for v in range(1, n)}
    more = rng.integers(0, n, (degree * n // 2, 2)).tolist()
    return np.array(sorted(pairs | {tuple(sorted(p)) for p in more if p[0] != p[1]}))


def _ring(n):
    nodes = np.arange(n)
    return _undirected(np.c_[nodes, (nodes + 1) % n])


def _make(kind, seed=0):
    rng = np.random.default_rng(seed)
    pairs = _random_pairs(24, rng)
    if kind == "connected":
        return _undirected(pairs)
    if kind == "disconnected":
        return _undirected(np.vstack([pairs, _random_pairs(7, rng) + 24]))
    if kind == "weighted":
        return _undirected(pairs, weights=rng.uniform(0.2, 5.0, len(pairs)))
    if kind == "directed":
        return _build(pairs[:, 0], pairs[:, 1])
    if kind == "looped":
        return _undirected(np.vstack([pairs, [[3, 3], [9, 9]]])[:, :2])
    if kind == "isolated":
        return _undirected(pairs + 1, n=27)  # nodes 0, 25 and 26
    raise AssertionError(kind)


# ------------------------------------------------------------------------------------------------ oracle


def _normalised(graph, self_loops=False):
    """The normalised adjacency Ã, from the edges alone."""
    A = np.zeros((graph.n, graph.n))
    rows = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    A[rows, graph.indices] = 1.0 if graph.weights is None else graph.weights
    A = np.maximum(A, A.T)
    np.fill_diagonal(A, 1.0 if self_loops else 0.0)
    degree = A.sum(1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    return scale[:, None] * A * scale


def _scores(name, graph, self_loops=False):
    """R = g(Ã) by matrix functions, with g of each extractor (K powers, damping C) written out again."""
    A = _normalised(graph, self_loops)
    identity = np.eye(len(A))
    if name in ("ppr", "heterophily-aware"):
        return (1 - C) * np.linalg.inv(identity - C * A)
    if name == "hop":
        return A
    if name == "overlap":
        norms = np.linalg.norm(A, axis=1, keepdims=True)
        cosine = np.divide(A, norms, out=np.zeros_like(A), where=norms > 0)
        cosine = cosine @ cosine.T
        return np.where(cosine > THRESHOLD, cosine, 0)
    if name == "shared":
        return sum(np.linalg.matrix_power(A, k) for k in range(1, K + 1)) / K
    values, U = np.linalg.eigh(A)
    values = np.where(np.abs(values) < 1e-9, 0, np.clip(values, -1, 1))
    if name == "polynomial":
        root = np.sqrt(1 - C * C)
        weight = np.r_[0, 2 * (1 - C) / root * ((1 - root) / C) ** np.arange(1, K + 1)]
        g = np.polynomial.chebyshev.chebval(values, weight)
    elif name == "heat":
        g = sum(np.exp(-t * values) for t in range(1, K + 1)) / sum(np.exp(t) for t in range(1, K + 1))
    elif name == "bandpass":
        g = (values >= 0).astype(float)
    return (U * g) @ U.T


def _directed(graph, direction, self_loops=False):
    """The adjacency along the edges or against them, from the edges alone."""
    A = np.zeros((graph.n, graph.n))
    rows = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    A[rows, graph.indices] = 1.0 if graph.weights is None else graph.weights
    A = A if direction == "out" else A.T
    return A * (1 - np.eye(len(A))) + self_loops * np.eye(len(A))


def _check(patches, R, atol, reached=1e-6):
    """Check patches against R: the node first, descending scores, ties by id, and no better node left out."""
    n, p = patches.index.shape
    assert patches.index.dtype == np.int32
    assert patches.score.dtype == np.float32
    for v in range(n):
        index, score = patches.index[v], patches.score[v]
        mask = index >= 0
        members = index[mask]
        assert index[0] == v
        assert np.all(mask[:-1] >= mask[1:]), "padding comes last"
        assert np.all(score[~mask] == 0)
        assert len(set(members.tolist())) == len(members)
        np.testing.assert_allclose(score[mask], R[v, members], atol=atol)
        gaps = np.diff(score[mask][1:])
        assert np.all(gaps <= 0), "descending scores"
        assert np.all(np.diff(members[1:])[gaps == 0] > 0), "ties by ascending id"
        # nodes whose score is close to the threshold of being reached may be in the patch or not
        others = np.delete(R[v], v)
        sure = others[np.abs(others) > 3 * reached * np.abs(R[v]).max() + 2 * atol]
        unsure = int((np.abs(others) > 0.3 * reached * np.abs(R[v]).max() - 2 * atol).sum())
        assert min(p - 1, len(sure)) <= len(members) - 1 <= min(p - 1, unsure)
        if len(members) == p:
            left = np.delete(R[v], members)
            left = left[np.abs(left) > 3 * reached * np.abs(R[v]).max()]
            if p > 1 and left.size:
                assert left.max() <= score[-1] + 2 * atol, "a better node was left out"
