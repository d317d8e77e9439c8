"""Diagnosis of a graph: its measures, problems in the data, and which extractor to try."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import Features, FloatArray
from gpatcher.errors import counted, some
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import is_labelled
from gpatcher.kernels.csr import count_components
from gpatcher.spectral.heterophily import edge_type_measures, heterophily, train_duplicates
from gpatcher.spectral.probes import best_source, probe_sources
from gpatcher.spectral.results import Diagnosis, Heterophily, Probe, SpectralDiagnosis, SpectralMeasure, finite
from gpatcher.spectral.spectrum import chebyshev_moments, eigenpairs, measure_exact, measure_from_moments
from gpatcher.spectral.theory import lemma1

EXACT_NODES = 3000  # the eigendecomposition takes seconds; on larger graphs Chebyshev moments are used
DENSE_NODES = 20_000  # beyond this the n × n eigenvectors do not fit into the memory of a typical machine
_BINS = 40
_MOMENTS = 128
_HOMOPHILOUS = 0.4  # adjusted homophily from which a graph counts as homophilous
_INFORMATIVE = 0.05  # label informativeness from which neighbours' labels are useful
_MANY_DUPLICATES = 0.05  # fraction of test nodes that duplicate a training node, from which this is reported
_MEASURES = (
    "node_heterophily",
    "edge_homophily",
    "class_insensitive_homophily",
    "adjusted_homophily",
    "label_informativeness",
)


_QUANTILES = 5  # that numbers to predict are divided into


def diagnose(graph: Graph, *, spectral: bool = True) -> Diagnosis:
    """Measure a graph, list problems in the data and recommend an extractor.

    The cost is O(n + m), plus sorting n hashes to find duplicates. The spectral part is exact up to `EXACT_NODES`
    nodes; larger graphs use Chebyshev moments, O(m) each.

    Parameters
    ----------
    graph : Graph
        Labels, features and splits are optional. Labels that are numbers are divided into five quantiles, as classes.
    spectral : bool
        Whether to measure the energy of the labels over the frequencies.

    Examples
    --------
    >>> ring = Graph.from_edge_index([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]], y=[0, 1, 0, 1])
    >>> result = diagnose(ring)
    >>> result.node_heterophily, result.label_informativeness, round(result.label_frequency, 6)
    (1.0, 1.0, -1.0)
    """
    if graph.is_regression:
        graph = _quantile_classes(graph)
    undirected = graph.undirected()
    degrees = np.diff(undirected.indptr)
    labelled = 0 if graph.y is None else int((graph.y >= 0).sum())
    measures = heterophily(graph) if labelled else None
    values = {name: None if measures is None else finite(getattr(measures, name)) for name in _MEASURES}
    duplicates = train_duplicates(graph) if labelled else None
    energy = _spectral(graph, measures) if spectral and measures is not None else None
    frequency = None if energy is None else energy.labels.mean
    probes = probe_sources(graph)
    source = best_source(probes)
    gain = None
    if source is not None and source != "columns" and graph.is_directed:
        gain = probes[source].accuracy - probe_sources(undirected)[source].accuracy
    extractor, advice = _advice(
        graph.n, values["adjusted_homophily"], values["label_informativeness"], frequency, duplicates
    )
    advice = _source_advice(probes, source, gain) + advice
    return Diagnosis(
        name=graph.name,
        nodes=graph.n,
        edges=graph.m,
        classes=graph.num_classes,
        features=graph.num_features,
        labelled=labelled,
        isolated=int(graph.isolated.size),
        components=int(count_components(undirected.indptr, undirected.indices, np.arange(graph.n))),
        directed=graph.is_directed,
        duplicate_edges=graph.duplicate_edges,
        self_loops=graph.self_loops,
        mean_degree=float(degrees.mean()),
        max_degree=int(degrees.max()),
        **values,
        undefined_heterophily=None if measures is None else measures.undefined,
        train_duplicates=duplicates,
        label_frequency=frequency,
        probes=probes,
        source=source,
        direction_gain=gain,
        extractor=extractor,
        problems=_problems(graph, measures, labelled, duplicates),
        advice=advice,
        edge_types=edge_type_measures(graph),
        class_names=graph.classes,
        measures=measures,
        degrees=degrees,
        spectral=energy,
    )


def _quantile_classes(graph: Graph) -> Graph:
    """Return the graph with classes in place of numbers: their quantiles, named by the upper ends."""
    y = np.asarray(graph.y)
    known = is_labelled(y)
    if not known.any():
        return replace(graph, y=None)
    borders = np.unique(np.quantile(y[known], np.linspace(0, 1, _QUANTILES + 1)[1:]))
    classes = np.where(known, np.searchsorted(borders, y), -1)
    return replace(graph, y=classes, classes=tuple(f"up to {border:.4g}" for border in borders))


def label_signal(graph: Graph) -> FloatArray:
    """Return the one-hot labels minus the class frequencies, 0 for unlabelled nodes; shape (n, C)."""
    y = graph.labels()
    signal = np.zeros((graph.n, graph.num_classes))
    labelled = np.flatnonzero(y >= 0)
    signal[labelled, y[labelled]] = 1.0
    signal[labelled] -= signal[labelled].mean(axis=0)
    return signal


def _spectral(graph: Graph, measures: Heterophily) -> SpectralDiagnosis | None:
    """Measure the energy of labels and heterophily; None without labelled edges or with a single class."""
    labels, h = label_signal(graph), np.nan_to_num(measures.node)
    if not measures.pairs.any() or not labels.any():
        return None
    spectrum = eigenpairs(graph) if graph.n <= EXACT_NODES else None

    def energy(signal: FloatArray) -> SpectralMeasure:
        if spectrum is None:
            return measure_from_moments(chebyshev_moments(graph, signal, _MOMENTS), _BINS)
        return measure_exact(spectrum, signal, _BINS)

    lemma = {}
    if spectrum is not None and h.any():
        values = spectrum.values
        filters = {
            "constant 1/2": np.full(graph.n, 0.5),
            "PPR, c = 0.5": 0.5 / (1.0 - 0.5 * values),
            "sigmoid": 1.0 / (1.0 + np.exp(-values)),
        }
        lemma = {name: lemma1(values, spectrum.transform(h), g) for name, g in filters.items()}
    return SpectralDiagnosis(energy(labels), energy(h) if h.any() else None, lemma)


def _problems(graph: Graph, measures: Heterophily | None, labelled: int, duplicates: float | None) -> list[str]:
    problems = []
    if graph.is_directed:
        problems.append(
            f"{graph.one_way_edges:,} of {graph.stored_edges:,} edges have no reverse edge; the measures here and the "
            "filters use the undirected graph"
        )
    if graph.isolated.size:
        nodes = counted(graph.isolated.size, "node has", "nodes have")
        problems.append(f"{nodes} no neighbours; only the features can tell the class")
    if graph.duplicate_edges:
        problems.append(f"{counted(graph.duplicate_edges, 'duplicate edge was', 'duplicate edges were')} merged")
    if graph.self_loops:
        problems.append(
            f"{counted(graph.self_loops, 'self-loop')}, counted by the measures but not by the normalised adjacency"
        )
    if not labelled:
        problems.append("no node has a label")
    elif labelled < graph.n:
        problems.append(f"{graph.n - labelled:,} of {graph.n:,} nodes have no label; the measures leave them out")
    if measures is not None:
        small = [graph.classes[c] for c in np.flatnonzero(measures.class_sizes < 3)]
        if small:
            problems.append(
                f"{len(small)} of {graph.num_classes} classes have fewer than 3 nodes, too few for train, validation "
                f"and test: {some(small)}"
            )
        largest = measures.class_sizes.max() / max(1, measures.class_sizes.sum())
        if len(measures.class_sizes) > 1 and largest > 0.7:
            problems.append(f"one class has {largest:.0%} of the labels; accuracy alone is misleading")
    if duplicates is not None and duplicates > _MANY_DUPLICATES:
        problems.append(
            f"{duplicates:.1%} of the test nodes duplicate a training node (same neighbours, same label): scores on "
            "these splits reward memorisation; prefer a filtered version of the data"
        )
    if graph.x is None:
        problems.append("the nodes have no features")
    elif zero := _zero_rows(graph.x):
        problems.append(f"{counted(zero, 'node has', 'nodes have')} no feature other than 0")
    return problems


def _zero_rows(x: Features) -> int:
    """Count the rows that are all zero, in blocks for memory-mapped features."""
    if sp.issparse(x):
        return int((np.diff(x.indptr) == 0).sum())
    step = max(1, (1 << 24) // max(1, x.shape[1]))
    return sum(int((~x[a : a + step].any(axis=1)).sum()) for a in range(0, len(x), step))


def _source_advice(probes: dict[str, Probe], source: str | None, gain: float | None) -> list[str]:
    """Say which source of information is most predictive, and how much the direction of the edges adds."""
    if source is None:
        return []
    what = {
        "columns": "the node's own columns tell most. Compare with an MLP to see what the edges add",
        "adjacency": "who the neighbours are tells most. Use models with adjacency rows "
        "(features.adjacency_features=true), as the portfolio of 'gpatcher fit' has",
        "neighbours": "the columns of the neighbours tell most. Use patches of neighbours (ppr, hop)",
        "labels": "the classes of the neighbours tell most. Use the readout labels, or patches of neighbours",
        "two_hop_labels": "the classes of nodes two steps away tell most. Use adjacency rows or patches of wide reach",
    }
    shares = ", ".join(f"{name.replace('_', ' ')} {probe.accuracy:.1%}" for name, probe in probes.items())
    explained = f"It explains most of the classes from {source.replace('_', ' ')} ({probes[source].explained:.0%})"
    lines = [f"A linear model that reads one source alone classifies correctly: {shares}. {explained}: {what[source]}."]
    if gain is not None:
        verb = "gains" if gain > 0 else "loses"
        lines.append(f"By the direction of the edges this source {verb} {100 * abs(gain):.1f} points.")
    return lines


def _advice(
    n: int, adjusted: float | None, informativeness: float | None, frequency: float | None, duplicates: float | None
) -> tuple[str, list[str]]:
    """Return the extractor to try first, and the reasons."""
    large = n > DENSE_NODES
    adaptive = "polynomial" if large else "heterophily-aware"
    size = f"; with {n:,} nodes, eigenvectors are too expensive" if large else ""
    extractor = adaptive
    if adjusted is None or informativeness is None:
        extractor = "ppr"
        why = "Too few labelled edges to compare neighbours: start with the ppr extractor, which needs no labels."
    elif adjusted >= _HOMOPHILOUS:
        extractor = "ppr"
        why = (
            f"Neighbours mostly have the same label (adjusted homophily {adjusted:.2f}): the ppr extractor "
            "(Fast-GPatcher) is accurate and fast."
        )
    elif informativeness >= _INFORMATIVE:
        why = (
            f"Neighbours often have different labels, but these are informative (adjusted homophily {adjusted:.2f}, "
            f"label informativeness {informativeness:.2f}): the {adaptive} extractor can learn which frequencies "
            f"matter{size}."
        )
    else:
        why = (
            f"The labels of neighbours carry little information (label informativeness {informativeness:.2f}): of "
            f"the extractors use {adaptive}, which can learn what the graph adds{size}."
        )
    advice = [why]
    if frequency is not None:
        side = "low" if frequency > 0.25 else "high" if frequency < -0.25 else "both low and high"
        advice.append(f"The energy of the labels lies at {side} frequencies (mean eigenvalue {frequency:+.2f}).")
    if duplicates is not None and duplicates > _MANY_DUPLICATES:
        advice.append("Do not compare models on these splits alone: labels leak from training nodes to duplicates.")
    return extractor, advice
