"""What somebody should know about a graph before choosing a model: `diagnose`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError, counted, some
from gpatcher.graph.graph import Graph
from gpatcher.kernels.csr import count_components
from gpatcher.spectral.heterophily import Heterophily, heterophily, train_duplicates
from gpatcher.spectral.spectrum import (
    SpectralMeasure,
    chebyshev_moments,
    eigenpairs,
    measure_exact,
    measure_from_moments,
)
from gpatcher.spectral.theory import Lemma1, lemma1

EXACT_NODES = 3000  # up to here the eigendecomposition takes a few seconds; beyond it, moments
DENSE_NODES = 20_000  # beyond this an n × n array of eigenvectors no longer fits a common machine
_BINS = 40
_MOMENTS = 128
_HOMOPHILOUS = 0.4  # adjusted homophily from which neighbours can be said to agree
_INFORMATIVE = 0.05  # label informativeness from which a neighbour's label is worth having


@dataclass(frozen=True)
class SpectralDiagnosis:
    """Where the labels and the heterophily lie over the frequencies, and Lemma 1 for three filters."""

    labels: SpectralMeasure
    node_heterophily: SpectralMeasure | None
    lemma: dict[str, Lemma1]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The findings about one graph; `to_dict` for machines, `gpatcher diagnose` for people.

    A measure that is not defined on this graph (no labels, no split, one class) is None.
    """

    name: str
    nodes: int
    edges: int
    classes: int
    features: int
    labelled: int
    isolated: int
    components: int
    directed: bool
    duplicate_edges: int
    self_loops: int
    mean_degree: float
    max_degree: int
    node_heterophily: float | None
    undefined_heterophily: int | None
    edge_homophily: float | None
    class_insensitive_homophily: float | None
    adjusted_homophily: float | None
    label_informativeness: float | None
    train_duplicates: float | None
    label_frequency: float | None
    extractor: str
    problems: list[str]
    advice: list[str]
    # what the page draws
    class_names: tuple[str, ...] = field(default=(), repr=False)
    measures: Heterophily | None = field(default=None, repr=False)
    degrees: IntArray | None = field(default=None, repr=False)
    spectral: SpectralDiagnosis | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain numbers, strings and lists, ready for JSON."""
        drawn = {"class_names", "measures", "degrees", "spectral"}
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in drawn}
        if self.spectral is not None:
            plain["label_energy"] = _plain(self.spectral.labels)
            if self.spectral.node_heterophily is not None:
                plain["heterophily_energy"] = _plain(self.spectral.node_heterophily)
            plain["lemma1"] = {
                name: {"left": check.left, "right": _number(check.right), "log_am": _number(check.log_am)}
                | {"holds_as_printed": check.holds_as_printed, "follows": check.follows}
                | {"zero_components": check.zero_components, "repeated_eigenvalues": check.repeated_eigenvalues}
                for name, check in self.spectral.lemma.items()
            }
        return plain


def diagnose(graph: Graph, *, spectral: bool = True) -> Diagnosis:
    """Measure a graph: what is in it, how heterophilous it is, what is wrong with it, what to try.

    Without the spectral part the cost is O(n + m), plus a sort of n hashes for the twins. The spectral part is
    exact up to `EXACT_NODES` nodes and from Chebyshev moments, O(m) each, beyond.

    Examples
    --------
    >>> ring = Graph.from_edge_index([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]], y=[0, 1, 0, 1])
    >>> found = diagnose(ring)
    >>> found.node_heterophily, found.label_informativeness, round(found.label_frequency, 6)
    (1.0, 1.0, -1.0)
    """
    both = graph.undirected()
    degrees = np.diff(both.indptr)
    labelled = 0 if graph.y is None else int((graph.y >= 0).sum())
    known = heterophily(graph) if labelled else None
    paired = known is not None and known.pairs.sum() > 0
    twins = train_duplicates(graph) if labelled else None
    isolated = int(graph.isolated.size)
    return _advised(
        Diagnosis(
            name=graph.name,
            nodes=graph.n,
            edges=graph.m,
            classes=graph.num_classes,
            features=graph.num_features,
            labelled=labelled,
            isolated=isolated,
            components=int(count_components(both.indptr, both.indices, np.arange(graph.n))),
            directed=graph.is_directed,
            duplicate_edges=graph.duplicate_edges,
            self_loops=graph.self_loops,
            mean_degree=float(degrees.mean()),
            max_degree=int(degrees.max()),
            node_heterophily=_number(known.node_heterophily) if known else None,
            undefined_heterophily=known.undefined if known else None,
            edge_homophily=_number(known.edge_homophily) if known else None,
            class_insensitive_homophily=_number(known.class_insensitive_homophily) if known else None,
            adjusted_homophily=_number(known.adjusted_homophily) if known else None,
            label_informativeness=_number(known.label_informativeness) if known else None,
            train_duplicates=twins,
            label_frequency=_label_frequency(graph) if spectral and paired else None,
            extractor="",
            problems=_problems(graph, known, isolated, labelled, twins),
            advice=[],
            class_names=graph.classes,
            measures=known,
            degrees=degrees,
            spectral=_spectral(graph, known) if spectral and known is not None and paired else None,
        )
    )


def label_signal(graph: Graph) -> FloatArray:
    """Return the labels as a signal: one-hot rows less the share of each class, 0 where unknown; shape (n, C)."""
    y = graph.labels()
    signal = np.zeros((graph.n, graph.num_classes))
    there = np.flatnonzero(y >= 0)
    signal[there, y[there]] = 1.0
    signal[there] -= signal[there].mean(axis=0)
    return signal


def _label_frequency(graph: Graph) -> float | None:
    """Mean eigenvalue of the label signal: one product with Ã."""
    try:
        return measure_from_moments(chebyshev_moments(graph, label_signal(graph), count=2), bins=1).mean
    except InputError:
        return None  # a single class: the centred signal is zero


def _spectral(graph: Graph, known: Heterophily) -> SpectralDiagnosis | None:
    labels, h = label_signal(graph), np.nan_to_num(known.node)
    if not labels.any():
        return None
    if graph.n > EXACT_NODES:
        first = measure_from_moments(chebyshev_moments(graph, labels, _MOMENTS), _BINS)
        second = measure_from_moments(chebyshev_moments(graph, h, _MOMENTS), _BINS) if h.any() else None
        return SpectralDiagnosis(first, second, {})
    spectrum = eigenpairs(graph)
    values = spectrum.values
    # three fixed filters between 0 and 1: constant, personalised PageRank with c = 0.5, a sigmoid
    filters = {
        "constant 1/2": np.full(graph.n, 0.5),
        "PPR, c = 0.5": 0.5 / (1.0 - 0.5 * values),
        "sigmoid": 1.0 / (1.0 + np.exp(-values)),
    }
    lemma = {name: lemma1(values, spectrum.transform(h), g) for name, g in filters.items()} if h.any() else {}
    return SpectralDiagnosis(
        measure_exact(spectrum, labels, _BINS), measure_exact(spectrum, h, _BINS) if h.any() else None, lemma
    )


def _problems(graph: Graph, known: Heterophily | None, isolated: int, labelled: int, twins: float | None) -> list[str]:
    found = []
    if graph.is_directed:
        found.append(
            f"{graph.one_way_edges:,} of {graph.stored_edges:,} edges run one way only; "
            "the measures here and the filters see them as running both ways"
        )
    if isolated:
        found.append(f"{counted(isolated, 'node has', 'nodes have')} no neighbour; only features can tell the class")
    if graph.duplicate_edges:
        found.append(f"{counted(graph.duplicate_edges, 'edge')} repeated another one, merged with it")
    if graph.self_loops:
        found.append(f"{counted(graph.self_loops, 'edge joins', 'edges join')} a node to itself")
    if not labelled:
        found.append("no node has a label")
    elif labelled < graph.n:
        found.append(f"{graph.n - labelled:,} of {graph.n:,} nodes have no label; the measures leave them out")
    if known is not None:
        small = [graph.classes[c] for c in np.flatnonzero(known.class_sizes < 3)]
        if small:
            found.append(
                f"{len(small)} of {graph.num_classes} classes have fewer than 3 nodes, too few for train, validation "
                f"and test: {some(small)}"
            )
        largest = known.class_sizes.max() / max(1, known.class_sizes.sum())
        if len(known.class_sizes) > 1 and largest > 0.7:
            found.append(f"one class holds {largest:.0%} of the labels; accuracy alone will mislead")
    if twins is not None and twins > 0.05:
        found.append(
            f"{twins:.1%} of the test nodes have a twin in train (same neighbours, same label): scores on this "
            "split reward memory; prefer a filtered version of the data"
        )
    empty = _empty_rows(graph)
    if empty:
        found.append(f"{counted(empty, 'node has', 'nodes have')} no feature other than 0")
    if graph.x is None:
        found.append("there are no features")
    return found


def _empty_rows(graph: Graph) -> int:
    if graph.x is None:
        return 0
    if sp.issparse(graph.x):
        return int((np.diff(graph.x.indptr) == 0).sum())
    step = max(1, (1 << 24) // max(1, graph.num_features))
    return sum(int((~graph.x[a : a + step].any(axis=1)).sum()) for a in range(0, graph.n, step))


def _advised(found: Diagnosis) -> Diagnosis:
    """Fill in which extractor to try and why."""
    large = found.nodes > DENSE_NODES
    adaptive = "polynomial" if large else "heterophily-aware"
    size = f"; with {found.nodes:,} nodes, eigenvectors are out of reach" if large else ""
    adjusted, told = found.adjusted_homophily, found.label_informativeness
    if adjusted is None or told is None:
        extractor = "ppr"
        why = "Too few labelled edges to tell how neighbours relate: start with the ppr extractor, which needs none."
    elif adjusted >= _HOMOPHILOUS:
        extractor = "ppr"
        why = (
            f"Neighbours mostly agree (adjusted homophily {adjusted:.2f}): the ppr extractor (Fast-GPatcher) is "
            "strong and quick."
        )
    elif told >= _INFORMATIVE:
        extractor = adaptive
        why = (
            f"Neighbours disagree, but in a way that tells (adjusted homophily {adjusted:.2f}, label "
            f"informativeness {told:.2f}): the {adaptive} extractor can learn which frequencies matter{size}."
        )
    else:
        extractor = adaptive
        why = (
            f"A neighbour's label says little here (label informativeness {told:.2f}): expect most from the features, "
            f"compare with a plain MLP, and let the {adaptive} extractor find what the graph adds{size}."
        )
    advice = [why]
    if found.label_frequency is not None:
        at = found.label_frequency
        side = "low" if at > 0.25 else "high" if at < -0.25 else "both low and high"
        advice.append(f"The labels live in {side} frequencies (mean eigenvalue {at:+.2f} in [-1, 1]).")
    if found.train_duplicates is not None and found.train_duplicates > 0.05:
        advice.append("Do not compare models on these splits alone: twins leak from train into test.")
    return replace(found, extractor=extractor, advice=advice)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(measure: SpectralMeasure) -> dict[str, Any]:
    share = [round(float(v), 6) for v in measure.share]
    return {"mean": measure.mean, "exact": measure.exact, "bins": len(share), "share": share}
