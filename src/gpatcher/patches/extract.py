"""Patches by the name of their extractor."""

from __future__ import annotations

from collections.abc import Callable

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.patches.base import Patches
from gpatcher.patches.ppr import push_patches
from gpatcher.patches.spectral import spectral_patches
from gpatcher.spectral.filters import Adaptive, Bandpass, Heat, LearnableFilter, Polynomial, Shared, response
from gpatcher.spectral.spectrum import graph_spectrum, is_affordable

# the learnable filters: K, c, σ -> module; the fixed ones: K -> response
LEARNABLE: dict[str, Callable[[int, float, str], LearnableFilter]] = {
    "heterophily-aware": lambda K, c, sigma: Adaptive(K=K, c=c, sigma=sigma),
    "polynomial": lambda K, c, sigma: Polynomial(K=K, c=c),
    "shared": lambda K, c, sigma: Shared(K=K),
}


FIXED: dict[str, Callable[[int], Heat | Bandpass]] = {"heat": lambda K: Heat(K=K), "bandpass": lambda K: Bandpass(K=K)}
EXTRACTORS = (*LEARNABLE, *FIXED, "ppr")


def check_extractor(name: str) -> str:
    """Return the name of an extractor, or an error that lists them."""
    if name not in EXTRACTORS:
        raise InputError(f"there is no extractor {name!r}; there are {', '.join(EXTRACTORS)}")
    return name


def extract_patches(
    graph: Graph,
    method: str = "ppr",
    size: int = 32,
    *,
    K: int = 10,
    c: float = 0.5,
    eps: float = 1e-5,
    self_loops: bool = False,
    memory: int | None = None,
) -> Patches:
    """Extract the patch of every node; a learnable filter is taken as it starts, before any training.

    Parameters
    ----------
    method : one of `EXTRACTORS`
    size : p, the node itself included
    K : number of powers, or of times or windows
    c, eps : of personalised PageRank; a learnable filter starts as PageRank with this c
    self_loops : add one to every node
    memory : bytes that eigenvectors may take

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> extract_patches(path, method="ppr", size=2).index
    array([[0, 1],
           [1, 0],
           [2, 1]], dtype=int32)
    """
    if check_extractor(method) == "ppr":
        return push_patches(graph, size, c, eps, self_loops)
    if method == "polynomial" and not is_affordable(graph.n, memory):
        raise InputError(
            f"eigenvectors of {graph.n:,} nodes take more than the memory or ten minutes; before training, a "
            f"polynomial filter ranks as personalised PageRank with c={c}: take method='ppr', or train the "
            "filter without eigenvectors by GPatcherClassifier(extractor='polynomial')"
        )
    spectrum = graph_spectrum(graph, self_loops, memory)
    kind = LEARNABLE[method](K, c, "none") if method in LEARNABLE else FIXED[method](K)
    return spectral_patches(spectrum, response(kind, spectrum.values), size)
