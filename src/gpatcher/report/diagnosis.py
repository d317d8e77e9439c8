"""The page of `gpatcher diagnose`: recommendations, data issues, measures and five plots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import counted
from gpatcher.report.page import Figure, Heading, Notes, Part, Table, write_page
from gpatcher.spectral.results import SOURCES, Diagnosis, Heterophily, Probe, SpectralDiagnosis
from gpatcher.trust.palette import BLUE, ORANGE, class_colour

_MAX_CLASSES = 40  # drawn in a figure
_PROBES = {"majority": "accuracy of the most frequent class"} | {
    name: f"accuracy of a linear model of {text}" for name, text in SOURCES.items()
}


def measure_rows(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of each measure as text, for the page and the terminal."""

    def number(value: float | None) -> str:
        return "not defined" if value is None else f"{value:.3f}"

    duplicates = "no test split" if diagnosis.train_duplicates is None else f"{diagnosis.train_duplicates:.1%}"
    undefined = diagnosis.undefined_heterophily
    left_out = f", {counted(undefined, 'node')} left out" if undefined else ""
    edges = "directed in the input, counted as undirected" if diagnosis.directed else "undirected"
    insensitive, informative = map(number, (diagnosis.class_insensitive_homophily, diagnosis.label_informativeness))
    return [
        ("nodes", f"{diagnosis.nodes:,}", f"{diagnosis.labelled:,} with a label"),
        ("edges", f"{diagnosis.edges:,}", edges),
        ("classes, features", f"{diagnosis.classes:,}, {diagnosis.features:,}", ""),
        ("mean, largest degree", f"{diagnosis.mean_degree:.1f}, {diagnosis.max_degree:,}", ""),
        ("components, isolated", f"{diagnosis.components:,}, {diagnosis.isolated:,}", "isolated: without neighbours"),
        ("duplicate edges, self-loops", f"{diagnosis.duplicate_edges:,}, {diagnosis.self_loops:,}", "in the input"),
        ("node heterophily", number(diagnosis.node_heterophily), f"mean fraction of unlike neighbours{left_out}"),
        ("edge homophily", number(diagnosis.edge_homophily), "fraction of edges within a class"),
        ("class-insensitive homophily", insensitive, "above chance, mean over classes"),
        ("adjusted homophily", number(diagnosis.adjusted_homophily), "1: agreement, 0: chance, below 0: disagreement"),
        ("label informativeness", informative, "information in a neighbour's label, 0 to 1"),
        ("label frequency", number(diagnosis.label_frequency), "mean eigenvalue: 1 smooth, -1 alternating"),
        ("test nodes duplicated in train", duplicates, "same neighbours and same label: leakage"),
        *(
            (
                f"{name}: edges, adjusted homophily",
                f"{measured.edges:,}, {number(measured.adjusted_homophily)}",
                "of nodes that share a neighbour" if measured.shared else "of this edge type alone",
            )
            for name, measured in diagnosis.edge_types.items()
        ),
        *(
            (f"{name.replace('_', ' ')} alone", _probe_text(probe), _PROBES[name])
            for name, probe in diagnosis.probes.items()
        ),
    ]


def _probe_text(probe: Probe) -> str:
    return f"{probe.accuracy:.1%} ± {probe.error:.1%}, explains {max(probe.explained, 0):.0%}"


def write_diagnosis(diagnosis: Diagnosis, path: str | Path) -> Path:
    """Write the page of a diagnosis, and return its path."""
    nodes, edges = counted(diagnosis.nodes, "node"), counted(diagnosis.edges, "edge")
    subtitle = f"{nodes}, {edges}, {counted(diagnosis.classes, 'class', 'classes')}"
    parts = [Heading("The graph"), *diagnosis_parts(diagnosis)]
    if diagnosis.spectral is not None and diagnosis.spectral.lemma:
        parts += [Heading("Theory of the paper"), _lemma(diagnosis.spectral)]
    return write_page(path, f"Diagnosis of {diagnosis.name}", subtitle, parts)


def diagnosis_parts(diagnosis: Diagnosis) -> list[Part]:
    """Return the parts of a page that show a diagnosis, without the theory of the paper."""
    measures, spectral = diagnosis.measures, diagnosis.spectral
    parts: list[Part] = [
        Notes("Recommendations", diagnosis.advice),
        Notes("Data issues", diagnosis.problems or ["None detected."]),
        Table("Measures", "", ("measure", "value", "meaning"), measure_rows(diagnosis)),
    ]
    if measures is not None:
        parts.append(_node_heterophily(measures))
    if spectral is not None:
        parts.append(_energy(spectral))
    if diagnosis.degrees is not None:
        parts.append(_degrees(diagnosis.degrees))
    if measures is not None:
        parts.append(_class_balance(measures, diagnosis.class_names))
        parts.append(_compatibility(measures, diagnosis.class_names))
    return parts


def largest_classes(sizes: IntArray) -> tuple[IntArray, str]:
    """Return the classes that a figure draws, largest first, and a sentence on the others."""
    order = np.argsort(-sizes, kind="stable")[:_MAX_CLASSES]
    hidden = len(sizes) - len(order)
    return order, f" {hidden} smaller classes are not drawn." if hidden else ""


def class_matrix(share: FloatArray, names: Sequence[str], x: str, y: str, **more: Any) -> go.Figure:
    """Plot fractions by class; ``x`` and ``y`` are the titles of the axes."""
    plot = go.Figure(go.Heatmap(z=share, x=names, y=names, zmin=0, zmax=1, **more))
    plot.update_xaxes(type="category", title=x)
    plot.update_yaxes(type="category", title=y, autorange="reversed")
    return plot


def _node_heterophily(measures: Heterophily) -> Figure:
    counts, edges = np.histogram(measures.node[~np.isnan(measures.node)], bins=20, range=(0.0, 1.0))
    plot = go.Figure(
        go.Bar(x=(edges[:-1] + edges[1:]) / 2, y=counts, width=np.diff(edges), marker_color=BLUE, name="nodes")
    )
    plot.add_vline(x=measures.node_heterophily, line_dash="dot", line_color=ORANGE)
    plot.update_xaxes(title="fraction of neighbours with another label, H_i", range=[-0.02, 1.02])
    plot.update_yaxes(title="nodes")
    caption = f"0: all neighbours agree; 1: all disagree. Dotted line: the mean, {measures.node_heterophily:.3f}."
    return Figure("Node heterophily", caption, plot)


def _energy(spectral: SpectralDiagnosis) -> Figure:
    plot = go.Figure()
    curves = (("labels", spectral.labels, BLUE), ("heterophily H", spectral.node_heterophily, ORANGE))
    for name, measure, colour in curves:
        if measure is not None:
            middle = (measure.edges[:-1] + measure.edges[1:]) / 2
            plot.add_bar(x=middle, y=measure.share, name=name, marker_color=colour)
    plot.update_layout(barmode="group", bargap=0.05)
    plot.update_xaxes(title="eigenvalue λ of Ã (low frequency on the left)", range=[1.03, -1.03])
    plot.update_yaxes(title="fraction of the energy", tickformat=".0%")
    method = "exact, from eigenvectors" if spectral.labels.exact else "smoothed, from Chebyshev moments"
    return Figure("Spectral energy", f"The frequencies that a filter must pass to keep the labels; {method}.", plot)


def _degrees(degrees: IntArray) -> Figure:
    edges = np.unique(np.geomspace(1, max(2, int(degrees.max()) + 1), 31).astype(np.int64))
    counts, _ = np.histogram(degrees[degrees > 0], bins=edges)
    text = [f"{a}" if b == a + 1 else f"{a} to {b - 1}" for a, b in pairwise(edges)]
    centre = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1]).astype(float))
    shown = counts > 0
    plot = go.Figure(
        go.Scatter(
            x=centre[shown],
            y=counts[shown],
            mode="markers+lines",
            line_color=BLUE,
            text=[t for t, s in zip(text, shown, strict=True) if s],
            hovertemplate="degree %{text}: %{y} nodes<extra></extra>",
        )
    )
    ticks = [digit * 10**power for power in range(12) for digit in (1, 2, 5)]
    plot.update_xaxes(type="log", title="degree", tickvals=ticks)
    plot.update_yaxes(type="log", title="nodes", tickvals=ticks)
    isolated = int((degrees == 0).sum())
    more = f" Not drawn: {counted(isolated, 'node')} of degree 0." if isolated else ""
    return Figure("Degrees", f"Both axes are logarithmic.{more}", plot)


def _class_balance(measures: Heterophily, names: tuple[str, ...]) -> Figure:
    order, more = largest_classes(measures.class_sizes)
    colours = [class_colour(c) for c in order]
    plot = go.Figure(go.Bar(x=[names[c] for c in order], y=measures.class_sizes[order], marker_color=colours))
    plot.update_xaxes(type="category", title="class")
    plot.update_yaxes(title="labelled nodes")
    return Figure("Class balance", f"Largest first; a class has this colour on every page.{more}", plot)


def _compatibility(measures: Heterophily, names: tuple[str, ...]) -> Figure:
    order = np.sort(largest_classes(measures.class_sizes)[0])
    plot = class_matrix(
        measures.compatibility[np.ix_(order, order)],
        [names[c] for c in order],
        "to class",
        "from class",
        texttemplate="%{z:.2f}" if len(order) <= 10 else None,
        hovertemplate="from %{y} to %{x}: %{z:.3f}<extra></extra>",
    )
    caption = "Fraction of the edges of each class that lead to each class; a dark diagonal means homophily."
    return Figure("Class compatibility", caption, plot)


def _lemma(spectral: SpectralDiagnosis) -> Table:
    rows = [
        (name, f"{c.left:.3f}", f"{c.right:.3f}", f"{c.log_am:.3f}", "yes" if c.holds_as_printed else "no", c.explain())
        for name, c in spectral.lemma.items()
    ]
    first = next(iter(spectral.lemma.values()))
    caption = (
        "The paper's lower bound on the mean response of a filter, evaluated for three filters. Left out: "
        f"{counted(first.zero_components, 'component')} of Ĥ equal to zero. Repeated eigenvalues: "
        f"{first.repeated_eigenvalues}; on these, Ĥ depends on the choice of the eigenvectors."
    )
    return Table("Lemma 1 on this graph", caption, ("filter", "mean g", "bound", "log AM", "holds", "in words"), rows)
