"""Every extractor against the dense matrix R whose largest entries it takes, on graphs small enough to invert."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gpatcher.errors import InputError
from gpatcher.patches import (
    EXTRACTORS,
    PPR,
    AdaptiveFilter,
    AutoExtractor,
    HeatKernel,
    PolynomialFilter,
    extract_patches,
    make_extractor,
)
from gpatcher.patches.extract import extractor_parameters
from gpatcher.patches.spectral import SpectralExtractor

NAMES = [name for name in EXTRACTORS if name != "auto"]
PARAMETERS = {"K": 6, "c": 0.6, "threshold": 0.4}  # those of the dense scores
TINY = 1000  # bytes: too few for any eigenvector


def make(name, **parameters):
    return make_extractor(name, PARAMETERS | parameters)


@pytest.mark.parametrize("size", [1, 2, 8, 40])
@pytest.mark.parametrize("kind", ["connected", "disconnected", "weighted", "directed", "looped", "isolated"])
@pytest.mark.parametrize("name", NAMES)
def test_extractors_take_the_top_of_the_dense_matrix(graphs, dense, name, kind, size):
    graph = graphs.make(kind)
    patches = extract_patches(graph, make(name, size=size, eps=1e-9))
    assert patches.size == size
    dense.check(patches, dense.scores(name, graph), atol=3e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["looped", "isolated", "weighted"])
def test_extractors_with_self_loops(graphs, dense, name, kind):
    graph = graphs.make(kind)
    patches = extract_patches(graph, make(name, size=8, eps=1e-9, self_loops=True))
    dense.check(patches, dense.scores(name, graph, self_loops=True), atol=3e-6)


@pytest.mark.parametrize("size", [1, 8, 40])
@pytest.mark.parametrize("kind", ["connected", "disconnected", "weighted", "directed", "looped", "isolated"])
def test_the_polynomial_filter_without_eigenvectors_takes_the_same_top(graphs, dense, kind, size):
    graph = graphs.make(kind)
    extractor = replace(make("polynomial", size=size, eps=1e-9), exact=False)
    patches = extract_patches(graph, extractor, memory=TINY)
    dense.check(patches, dense.scores("polynomial", graph), atol=3e-6)


def test_a_name_stands_for_the_extractor_with_its_defaults(graphs):
    graph = graphs.make("connected")
    one, two = extract_patches(graph, "heat"), extract_patches(graph, HeatKernel())
    np.testing.assert_array_equal(one.index, two.index)
    assert one.size == 16


# ------------------------------------------------------------------------------------------------ edge cases


@pytest.mark.parametrize("name", NAMES)
def test_patches_in_small_components_are_padded(graphs, name):
    # 0 - 1 - 2, 3 - 4 and 5 alone
    graph = graphs.undirected([[0, 1], [1, 2], [3, 4]], n=6)
    patches = extract_patches(graph, make(name, size=4))
    assert patches.index[5].tolist() == [5, -1, -1, -1]
    assert patches.score[5, 1:].tolist() == [0, 0, 0]
    assert patches.index[3].tolist() == [3, -1 if name == "overlap" else 4, -1, -1]
    assert set(patches.index[0].tolist()) <= {0, 1, 2, -1}
    assert np.isfinite(patches.score).all()


@pytest.mark.parametrize("name", ["ppr", "heterophily-aware"])
def test_the_score_of_an_isolated_node_is_the_closed_form(graphs, name):
    graph = graphs.undirected([[0, 1]], n=3)
    assert extract_patches(graph, make(name, size=2)).score[2, 0] == pytest.approx(1 - PARAMETERS["c"], rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_patch_of_one_is_the_node_itself(graphs, dense, name):
    """Also where a neighbour scores higher than the node: the leaves of a star."""
    star = graphs.undirected([[0, leaf] for leaf in range(1, 31)])
    assert dense.scores("ppr", star)[1, 0] < dense.scores("ppr", star)[0, 0]
    patches = extract_patches(star, make_extractor(name, {"size": 1, "c": 0.9}))
    assert patches.index[:, 0].tolist() == list(range(31))


def test_ties_go_to_the_smaller_id(graphs):
    star = graphs.undirected([[4, leaf] for leaf in (0, 1, 2, 3, 5, 6, 7)])
    patches = extract_patches(star, PPR(size=5))
    assert patches.index[4].tolist() == [4, 0, 1, 2, 3]
    assert patches.index[0].tolist() == [0, 4, 1, 2, 3]
    assert patches.index[6].tolist() == [6, 4, 0, 1, 2]


# ------------------------------------------------------------------------------------------------ invariance


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_edges_does_not_matter(graphs, name):
    rng = np.random.default_rng(2)
    pairs = graphs.random_pairs(30, rng)
    shuffled = rng.permutation(pairs)
    flip = rng.random(len(shuffled)) < 0.5
    shuffled[flip] = shuffled[flip][:, ::-1]
    one, two = (extract_patches(graphs.undirected(p), make(name, size=7)) for p in (pairs, shuffled))
    np.testing.assert_array_equal(one.index, two.index)
    np.testing.assert_array_equal(one.score, two.score)


def test_extracting_does_not_change_the_number_of_threads_nor_load_ray():
    """Numba's parallel kernels share OpenMP with torch; training after them must not run on more threads than set."""
    code = """
import sys, numpy as np, torch
import gpatcher.patches.store
from gpatcher.graph.graph import Graph
from gpatcher.patches import extract_patches, make_extractor
graph = Graph.from_edge_index(np.array([[0, 1], [1, 0]]))
for threads in (1, 2):
    torch.set_num_threads(threads)
    for name in ("ppr", "heat"):
        extract_patches(graph, make_extractor(name, {"size": 2}))
        print(torch.get_num_threads())
assert "ray" not in sys.modules
"""
    variables = {name: value for name, value in os.environ.items() if name != "NUMBA_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables)
    assert done.stdout.split() == ["1", "1", "2", "2"]


# ------------------------------------------------------------------------------------------------ by name


@pytest.mark.parametrize("name", EXTRACTORS)
def test_an_extractor_is_its_name_and_parameters(name):
    extractor = make_extractor(name, {"size": 5, "K": 7, "c": 0.3, "self_loops": True})
    assert type(extractor) is EXTRACTORS[name]
    assert extractor.name == name
    assert extractor.size == 5
    assert extractor.self_loops
    assert make_extractor(name, extractor_parameters(extractor)) == extractor
    assert make_extractor(name) == EXTRACTORS[name]()
    assert len({extractor, make_extractor(name, extractor_parameters(extractor))}) == 1, "hashable"


def test_parameters_of_other_extractors_are_ignored_and_unknown_ones_refused():
    assert make_extractor("ppr", {"K": 3, "sigma": "relu"}) == PPR()
    with pytest.raises(InputError, match=r"no parameter 'sizes'; did you mean 'size'\?"):
        make_extractor("ppr", {"sizes": 3})
    own = "c, direction, edge_type, eps, self_loops, size"
    with pytest.raises(InputError, match=f"no parameter 'nonsense'; ppr has {own}"):
        make_extractor("ppr", {"nonsense": 3})


def test_an_unknown_name_is_an_error_that_lists_the_names(graphs):
    for call in (lambda: make_extractor("nonsense"), lambda: extract_patches(graphs.make("connected"), "nonsense")):
        with pytest.raises(InputError, match=r"'nonsense'.*heterophily-aware.*ppr"):
            call()


# ------------------------------------------------------------------------------------------------ memory


@pytest.mark.parametrize("name", ["heat", "bandpass", "heterophily-aware", "shared"])
def test_too_little_memory_names_the_ways_out(graphs, name):
    graph = graphs.make("connected")
    assert isinstance(make(name), SpectralExtractor)
    with pytest.raises(InputError, match=r"--memory.*--extractor ppr"):
        extract_patches(graph, make(name, size=4), memory=100)
    assert extract_patches(graph, PPR(size=4), memory=100).size == 4


def test_a_polynomial_filter_that_needs_eigenvectors_names_the_ways_out(graphs):
    with pytest.raises(InputError, match=r"use PPR\(c=0\.3\), or train the filter without eigenvectors"):
        extract_patches(graphs.make("connected"), PolynomialFilter(c=0.3), memory=1)
    with pytest.raises(InputError, match="--memory"):
        extract_patches(graphs.make("connected"), PolynomialFilter(exact=True), memory=1)


# ------------------------------------------------------------------------------------------------ auto


def test_auto_compares_a_learned_filter_with_ppr(graphs):
    graph = graphs.make("connected")
    auto = AutoExtractor(size=5, K=4, self_loops=True, c=0.3, candidates=2, sigma="tanh", eps=1e-4)
    ppr = PPR(size=5, c=0.3, eps=1e-4, self_loops=True)
    shared = {"size": 5, "K": 4, "self_loops": True, "c": 0.3, "candidates": 2}
    assert auto.resolve(graph) == (AdaptiveFilter(**shared, sigma="tanh"), ppr)
    assert auto.resolve(graph, memory=TINY) == (PolynomialFilter(**shared, eps=1e-4, exact=False), ppr)


def test_auto_is_not_an_extractor_before_it_is_resolved(graphs):
    for call in (
        lambda: extract_patches(graphs.make("connected"), "auto"),
        lambda: AutoExtractor().prepare_unseen(None),
        lambda: AutoExtractor().response(None),
    ):
        with pytest.raises(InputError, match="auto"):
            call()
