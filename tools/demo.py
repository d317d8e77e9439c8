"""The demo: graphs from homophilous to heterophilous, four models on each, one table and one page.

Block models with the dial φ: at φ > 0 neighbours agree, at φ < 0 they disagree, at 0 only the features tell.
"""

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import networkx as nx
import numpy as np
import plotly.graph_objects as go
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable

from gpatcher.baselines.gcn import GCN
from gpatcher.baselines.mlp import MLP
from gpatcher.datasets.synthetic import csbm
from gpatcher.estimator.classifier import FilterResponse, GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import node_features
from gpatcher.patches.base import Patches
from gpatcher.report.diagnosis import write_diagnosis
from gpatcher.report.page import BLUE, GREY, ORANGE, PURPLE, Figure, Notes, Table, write_page
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.heterophily import heterophily
from gpatcher.training.loop import TrainConfig, fit

DIAL = (-0.9, -0.5, 0.0, 0.5, 0.9)
SEEDS = (0, 1)
NODES, FEATURES, DEGREE = 600, 60, 8.0
TRAIN = {"lr": 0.01, "weight_decay": 5e-4, "epochs": 150, "patience": 25}
PATCHES = {"patch_size": 16, "hidden": 32, "mixer_gate": 0.1, **TRAIN}
MODELS = {"GPatcher": ORANGE, "Fast-GPatcher": BLUE, "GCN": PURPLE, "MLP": GREY}


def make_graph(phi: float, seed: int) -> Graph:
    """Draw one block model."""
    return csbm(phi=phi, n=NODES, features=FEATURES, degree=DEGREE, seed=seed)


def train(phi: float, seed: int) -> tuple[float, dict[str, float], FilterResponse, Patches]:
    """Train all models on one graph; return its heterophily, the accuracies, GPatcher's filter and its patches."""
    torch.set_num_threads(1)  # one process per core: small steps gain nothing from threads
    graph = make_graph(phi, seed)
    x = node_features(graph)
    accuracy = {}
    for name, build in (("GCN", GCN), ("MLP", MLP)):
        torch.manual_seed(seed)
        model = build(graph, x.shape[1], hidden=32)
        result = fit(model, x, graph.labels(), graph.splits[0], TrainConfig(**TRAIN), seed=seed)
        accuracy[name] = float(result.test_accuracy)
    for name, kind in (("Fast-GPatcher", "ppr"), ("GPatcher", "heterophily-aware")):
        fitted = GPatcherClassifier(extractor=kind, seed=seed, **PATCHES).fit(graph)
        accuracy[name] = float(fitted.result_.test_accuracy)
    return heterophily(graph).node_heterophily, accuracy, fitted.filter_response(), fitted.patches_


def accuracy_figure(level: list[float], found: dict[str, np.ndarray]) -> Figure:
    """Draw accuracy over heterophily."""
    plot = go.Figure()
    for name, colour in MODELS.items():
        error = {"type": "data", "array": 100 * found[name].std(axis=1), "thickness": 1}
        plot.add_scatter(x=level, y=100 * found[name].mean(axis=1), name=name, line_color=colour, error_y=error)
    plot.update_layout(height=420)
    plot.update_xaxes(title="node heterophily (share of unlike neighbours)")
    plot.update_yaxes(title="test accuracy, %")
    caption = (
        f"Mean over {len(SEEDS)} graphs per point, bars: standard deviation. In the middle the graph says nothing."
    )
    return Figure("Accuracy over heterophily", caption, plot, wide=True)


def filter_figure(ends: dict[str, FilterResponse]) -> Figure:
    """Draw the learned filters of both ends of the dial."""
    plot = go.Figure()
    for (name, found), colour in zip(ends.items(), (ORANGE, BLUE), strict=True):
        plot.add_scatter(x=found.values, y=found.response, name=name, line_color=colour)
    plot.add_scatter(x=found.values, y=found.start, name="before training", line={"color": GREY, "dash": "dot"})
    plot.update_xaxes(title="eigenvalue λ (low frequency on the left)", range=[1.02, -1.02])
    plot.update_yaxes(title="response g(λ)")
    return Figure("What the filters learned", "How much each frequency counts in the ranking of a patch.", plot)


def patch_figure(graph: Graph, patches: Patches) -> Figure:
    """Draw the patch of one node: its members, the edges among them, their order and class."""
    full = np.flatnonzero((patches.index >= 0).all(axis=1))
    ego = int(full[0]) if full.size else 0
    members = [int(v) for v in patches.index[ego] if v >= 0]
    inside = nx.Graph(graph.to_networkx().subgraph(members))
    place = nx.spring_layout(inside, seed=1, k=0.9)
    plot = go.Figure()
    for a, b in inside.edges:
        plot.add_scatter(
            x=[place[a][0], place[b][0]], y=[place[a][1], place[b][1]], mode="lines", line={"color": "#c8d0d8"}
        )
    plot.add_scatter(
        x=[place[v][0] for v in members],
        y=[place[v][1] for v in members],
        mode="markers+text",
        text=[str(i) for i in range(len(members))],
        textfont={"color": "white", "size": 11},
        marker={
            "size": [30] + [22] * (len(members) - 1),
            "color": [(BLUE, ORANGE)[graph.y[v]] for v in members],
            "line": {"width": [3] + [0] * (len(members) - 1), "color": "#1d2733"},
        },
        hovertext=[f"node {v}, score {s:.3f}" for v, s in zip(members, patches.score[ego], strict=False)],
        hoverinfo="text",
    )
    plot.update_layout(showlegend=False)
    plot.update_xaxes(visible=False)
    plot.update_yaxes(visible=False)
    unlike = int((graph.y[members[1:]] != graph.y[ego]).sum())
    joined = len(set(members) & set(graph.neighbours(ego).tolist()))
    caption = (
        f"Node {ego} (0, ringed) and the {len(members) - 1} nodes ranked after it, by rank, coloured by class. "
        f"{unlike} are of the other class, {joined} are its neighbours: the filter looks further than the edges."
    )
    return Figure("One patch on a heterophilous graph", caption, plot)


def main() -> None:
    """Train everything, print the table, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pages")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    console = Console()
    found = {name: np.zeros((len(DIAL), len(SEEDS))) for name in MODELS}
    level = np.zeros((len(DIAL), len(SEEDS)))
    filters, patches = {}, {}
    jobs = [(row, column) for row in range(len(DIAL)) for column in range(len(SEEDS))]
    with (
        ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool,
        Progress(console=console, transient=True) as bar,
    ):
        task = bar.add_task("training four models on each graph", total=len(jobs))
        futures = {pool.submit(train, DIAL[row], SEEDS[column]): (row, column) for row, column in jobs}
        for future in as_completed(futures):
            at = futures[future]
            level[at], accuracy, filters[at], patches[at] = future.result()
            for name, value in accuracy.items():
                found[name][at] = value
            bar.advance(task)

    table = RichTable("φ", "heterophily", *MODELS, title="Test accuracy, %", title_justify="left")
    rows = []
    for row, phi in enumerate(DIAL):
        means = [100 * found[name][row].mean() for name in MODELS]
        cells = [f"{m:.1f} ± {100 * found[name][row].std():.1f}" for m, name in zip(means, MODELS, strict=True)]
        rows.append((f"{phi:+.1f}", f"{level[row].mean():.2f}", *cells))
        best = int(np.argmax(means))
        table.add_row(*rows[-1][:2], *(f"[bold]{c}[/]" if i == best else c for i, c in enumerate(cells)))
    console.print(table)
    graph = make_graph(DIAL[0], SEEDS[0])
    ends = {f"φ = {DIAL[row]:+.1f}": filters[row, 0] for row in (0, len(DIAL) - 1)}
    seconds = time.perf_counter() - started
    page = write_page(
        out / "index.html",
        "From homophily to heterophily",
        f"Block models of {NODES} nodes, mean degree {DEGREE:g}; {len(SEEDS)} graphs for each value of φ.",
        [
            accuracy_figure(list(level.mean(axis=1)), found),
            filter_figure(ends),
            patch_figure(graph, patches[0, 0]),
            Table("Test accuracy, %", "Mean ± standard deviation.", ("φ", "heterophily", *MODELS), rows),
            Notes(
                "How to read this",
                [
                    "A GCN averages over neighbours: good where they agree, poor where they disagree.",
                    "An MLP ignores the graph; the further φ is from 0, the less the features tell it.",
                    "GPatcher learns which frequencies matter: low ones where neighbours agree, high ones, with a "
                    "negative sign, where they disagree. Fast-GPatcher ranks by personalised PageRank and leaves "
                    "it to its readout to tell unlike neighbours from like ones.",
                ],
            ),
        ],
    )
    write_diagnosis(diagnose(graph), out / "diagnosis.html")
    console.print(f"{page} and {out / 'diagnosis.html'}, in {seconds:.0f} s")


if __name__ == "__main__":
    main()
