"""The page of `gpatcher diagnose`: five plots, the measures, what is wrong, what to try."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from gpatcher.arrays import IntArray
from gpatcher.errors import counted
from gpatcher.report.page import BLUE, ORANGE, Figure, Notes, Part, Table, write_page
from gpatcher.spectral.diagnosis import Diagnosis, SpectralDiagnosis
from gpatcher.spectral.heterophily import Heterophily

_LARGEST_MATRIX = 40  # classes drawn in the compatibility matrix and the class balance


def measure_rows(found: Diagnosis) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of each measure, ready for reading; shared by page and terminal."""

    def number(value: float | None, digits: int = 3) -> str:
        return "not defined" if value is None else f"{value:.{digits}f}"

    twins = "no test split" if found.train_duplicates is None else f"{found.train_duplicates:.1%}"
    left_out = f", {counted(found.undefined_heterophily, 'node')} left out" if found.undefined_heterophily else ""
    return [
        ("nodes", f"{found.nodes:,}", f"{found.labelled:,} with a label"),
        ("edges", f"{found.edges:,}", "undirected" if not found.directed else "given as directed, counted undirected"),
        ("classes, features", f"{found.classes:,}, {found.features:,}", ""),
        ("mean, largest degree", f"{found.mean_degree:.1f}, {found.max_degree:,}", ""),
        ("components, isolated", f"{found.components:,}, {found.isolated:,}", "isolated: no neighbour at all"),
        ("duplicate edges, self-loops", f"{found.duplicate_edges:,}, {found.self_loops:,}", "in the input"),
        ("node heterophily", number(found.node_heterophily), f"mean share of unlike neighbours{left_out}"),
        ("edge homophily", number(found.edge_homophily), "share of edges within a class"),
        ("class-insensitive homophily", number(found.class_insensitive_homophily), "above chance, mean over classes"),
        ("adjusted homophily", number(found.adjusted_homophily), "1 agreement, 0 chance, below 0 avoidance"),
        ("label informativeness", number(found.label_informativeness), "what a neighbour's label tells, 0 to 1"),
        ("label frequency", number(found.label_frequency), "mean eigenvalue: 1 smooth, -1 alternating"),
        ("test nodes with a twin in train", twins, "same neighbours and label: a leak"),
    ]


def write_diagnosis(found: Diagnosis, path: str | Path) -> Path:
    """Write the page of a diagnosis to ``path``."""
    subtitle = ", ".join(
        [counted(found.nodes, "node"), counted(found.edges, "edge"), counted(found.classes, "class", "classes")]
    )
    return write_page(path, f"Diagnosis of {found.name}", subtitle, diagnosis_parts(found))


def diagnosis_parts(found: Diagnosis) -> list[Part]:
    """Return what a page shows of a diagnosis."""
    parts: list[Part] = [
        Notes("What to try", found.advice),
        Notes("What to know about the data", found.problems or ["Nothing out of the ordinary was found."]),
        Table("Measures", "", ("measure", "value", "meaning"), measure_rows(found)),
    ]
    if found.measures is not None:
        parts.append(_node_heterophily(found.measures))
    if found.spectral is not None:
        parts.append(_energy(found.spectral))
    if found.degrees is not None:
        parts.append(_degrees(found.degrees))
    if found.measures is not None:
        parts.append(_class_balance(found.measures, found.class_names))
        parts.append(_compatibility(found.measures, found.class_names))
    if found.spectral is not None and found.spectral.lemma:
        parts.append(_lemma(found.spectral))
    return parts


def _node_heterophily(known: Heterophily) -> Figure:
    counts, edges = np.histogram(known.node[~np.isnan(known.node)], bins=20, range=(0.0, 1.0))
    plot = go.Figure(
        go.Bar(x=(edges[:-1] + edges[1:]) / 2, y=counts, width=np.diff(edges), marker_color=BLUE, name="nodes")
    )
    plot.add_vline(x=known.node_heterophily, line_dash="dot", line_color=ORANGE)
    plot.update_xaxes(title="share of neighbours with another label, H_i", range=[-0.02, 1.02])
    plot.update_yaxes(title="nodes")
    caption = f"Left: neighbours agree; right: they disagree. Dotted: the mean, {known.node_heterophily:.3f}."
    return Figure("Heterophily of the nodes", caption, plot)


def _energy(spectral: SpectralDiagnosis) -> Figure:
    plot = go.Figure()
    for name, measure, colour in (
        ("labels", spectral.labels, BLUE),
        ("heterophily H", spectral.node_heterophily, ORANGE),
    ):
        if measure is not None:
            middle = (measure.edges[:-1] + measure.edges[1:]) / 2
            plot.add_bar(x=middle, y=measure.share, name=name, marker_color=colour)
    plot.update_layout(barmode="group", bargap=0.05)
    plot.update_xaxes(title="eigenvalue λ of Ã (low frequency on the left)", range=[1.03, -1.03])
    plot.update_yaxes(title="share of the energy", tickformat=".0%")
    how = "exact, by eigenvectors" if spectral.labels.exact else "smoothed, by Chebyshev moments"
    return Figure("Energy over the frequencies", f"Where a filter must let the labels through; {how}.", plot)


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
    plot.update_xaxes(type="log", title="degree", dtick=1)
    plot.update_yaxes(type="log", title="nodes", dtick=1)
    alone = int((degrees == 0).sum())
    return Figure("Degrees", f"Both axes logarithmic; {counted(alone, 'node')} of degree 0 not drawn.", plot)


def _class_balance(known: Heterophily, names: tuple[str, ...]) -> Figure:
    order = np.argsort(-known.class_sizes, kind="stable")[:_LARGEST_MATRIX]
    plot = go.Figure(go.Bar(x=[names[c] for c in order], y=known.class_sizes[order], marker_color=BLUE))
    plot.update_xaxes(type="category", title="class")
    plot.update_yaxes(title="labelled nodes")
    rest = len(names) - len(order)
    return Figure("Class balance", "Largest first." + (f" {rest} smaller classes are not drawn." if rest else ""), plot)


def _compatibility(known: Heterophily, names: tuple[str, ...]) -> Figure:
    order = np.sort(np.argsort(-known.class_sizes, kind="stable")[:_LARGEST_MATRIX])
    values = known.compatibility[np.ix_(order, order)]
    labels = [names[c] for c in order]
    plot = go.Figure(
        go.Heatmap(
            z=values,
            x=labels,
            y=labels,
            zmin=0,
            zmax=1,
            colorscale="Blues",
            texttemplate="%{z:.2f}" if len(order) <= 10 else None,
            hovertemplate="from %{y} to %{x}: %{z:.3f}<extra></extra>",
        )
    )
    plot.update_xaxes(type="category", title="to class")
    plot.update_yaxes(type="category", title="from class", autorange="reversed")
    caption = "Share of each class's edges that lead to each class; a dark diagonal is homophily."
    return Figure("Compatibility of the classes", caption, plot)


def _lemma(spectral: SpectralDiagnosis) -> Table:
    rows = [
        (name, f"{c.left:.3f}", f"{c.right:.3f}", f"{c.log_am:.3f}", "yes" if c.holds_as_printed else "no", c.explain())
        for name, c in spectral.lemma.items()
    ]
    first = next(iter(spectral.lemma.values()))
    caption = (
        "The paper's lower bound on a filter's mean response, evaluated for three filters. "
        f"{first.zero_components} components of Ĥ are zero and left out; {first.repeated_eigenvalues} eigenvalues are "
        "repeated, and within those Ĥ depends on the choice of the eigenvectors."
    )
    return Table("Lemma 1 on this graph", caption, ("filter", "mean g", "bound", "log AM", "holds", "in words"), rows)
