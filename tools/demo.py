"""The demo: four models on graphs from heterophily to homophily; a table and two pages.

The graphs are contextual stochastic block models: neighbours agree where φ > 0 and disagree where φ < 0; at φ = 0 only
the features carry information.
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
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.io import make_folder
from gpatcher.model.config import ModelConfig
from gpatcher.model.inputs import node_features
from gpatcher.patches import PPR, AdaptiveFilter, Patches
from gpatcher.report.diagnosis import write_diagnosis
from gpatcher.report.page import Figure, Notes, Table, write_page
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.heterophily import heterophily as measure_heterophily
from gpatcher.spectral.results import FilterResponse
from gpatcher.training.loop import TrainConfig, fit
from gpatcher.trust.palette import BLUE, GREY, ORANGE, class_colour, model_colour

PHIS = (-0.9, -0.5, 0.0, 0.5, 0.9)
SEEDS = (0, 1)
NODES, FEATURES, DEGREE = 600, 60, 8.0
TRAIN = TrainConfig(lr=0.01, weight_decay=5e-4, epochs=150, patience=25)
MODEL = ModelConfig(hidden=32, mixer_gate=0.1)
MODELS = ("GPatcher", "Fast-GPatcher", "GCN", "MLP")


def make_graph(phi: float, seed: int) -> Graph:
    """Sample a contextual stochastic block model."""
    return csbm(phi=phi, n=NODES, features=FEATURES, degree=DEGREE, seed=seed)


def train(phi: float, seed: int) -> tuple[float, dict[str, float], FilterResponse, Patches]:
    """Train all models on one graph.

    Parameters
    ----------
    phi : float
        φ of the block model, in [-1, 1].
    seed : int
        Seed of the graph and of the models.

    Returns
    -------
    heterophily : float
        Node heterophily of the graph.
    accuracy : dict of str to float
        Test accuracy by model.
    response : FilterResponse
        GPatcher's learned filter.
    patches : Patches
        GPatcher's patches.
    """
    torch.set_num_threads(1)  # one process per core: steps this small gain nothing from threads
    graph = make_graph(phi, seed)
    x = node_features(graph)
    accuracy = {}
    for name, build in (("GCN", GCN), ("MLP", MLP)):
        torch.manual_seed(seed)
        model = build(graph, x.shape[1], hidden=32)
        result = fit(model, x, graph.labels(), graph.splits[0], TRAIN, seed=seed)
        accuracy[name] = float(result.test_accuracy)
    for name, extractor in (("Fast-GPatcher", PPR(size=16)), ("GPatcher", AdaptiveFilter(size=16))):
        fitted = GPatcherClassifier(patches=extractor, model=MODEL, train=TRAIN, seed=seed).fit(graph)
        accuracy[name] = float(fitted.result_.test_accuracy)
    return measure_heterophily(graph).node_heterophily, accuracy, fitted.filter_response(), fitted.patches_


def accuracy_figure(heterophily: list[float], accuracy: dict[str, np.ndarray]) -> Figure:
    """Plot accuracy over heterophily; the accuracies have shape (values of φ, seeds)."""
    plot = go.Figure()
    for name in MODELS:
        bars = {"type": "data", "array": 100 * accuracy[name].std(axis=1), "thickness": 1}
        mean = 100 * accuracy[name].mean(axis=1)
        plot.add_scatter(x=heterophily, y=mean, name=name, line_color=model_colour(name), error_y=bars)
    plot.update_layout(height=420)
    plot.update_xaxes(title="node heterophily (fraction of neighbours of another class)")
    plot.update_yaxes(title="test accuracy, %")
    caption = f"Mean and standard deviation over {len(SEEDS)} graphs. In the middle the edges carry no information."
    return Figure("Accuracy over heterophily", caption, plot, wide=True)


def filter_figure(responses: dict[str, FilterResponse]) -> Figure:
    """Plot the learned filters of the most heterophilous and the most homophilous graph."""
    plot = go.Figure()
    for (name, curve), colour in zip(responses.items(), (ORANGE, BLUE), strict=True):
        plot.add_scatter(x=curve.values, y=curve.response, name=name, line_color=colour)
    plot.add_scatter(x=curve.values, y=curve.start, name="before training", line={"color": GREY, "dash": "dot"})
    plot.update_xaxes(title="eigenvalue λ (low frequency on the left)", range=[1.02, -1.02])
    plot.update_yaxes(title="response g(λ)")
    return Figure("What the filters learned", "The weight of each frequency in the ranking of a patch.", plot)


def patch_figure(graph: Graph, patches: Patches) -> Figure:
    """Draw the patch of one node: its members with rank and class, and the edges among them."""
    full = np.flatnonzero((patches.index >= 0).all(axis=1))
    ego = int(full[0]) if full.size else 0
    members = [int(v) for v in patches.index[ego] if v >= 0]
    induced = nx.Graph(graph.to_networkx().subgraph(members))
    position = nx.spring_layout(induced, seed=1, k=0.9)
    plot = go.Figure()
    for edge in induced.edges:
        x, y = zip(*(position[v] for v in edge), strict=True)
        plot.add_scatter(x=x, y=y, mode="lines", line={"color": GREY})
    plot.add_scatter(
        x=[position[v][0] for v in members],
        y=[position[v][1] for v in members],
        mode="markers+text",
        text=[str(i) for i in range(len(members))],
        textfont={"color": "white", "size": 11},
        marker={
            "size": [30] + [22] * (len(members) - 1),
            "color": [class_colour(graph.y[v]) for v in members],
            "line": {"width": [3] + [0] * (len(members) - 1), "color": GREY},
        },
        hovertext=[f"node {v}, score {s:.3f}" for v, s in zip(members, patches.score[ego], strict=False)],
        hoverinfo="text",
    )
    plot.update_layout(showlegend=False)
    plot.update_xaxes(visible=False)
    plot.update_yaxes(visible=False)
    unlike = int((graph.y[members[1:]] != graph.y[ego]).sum())
    adjacent = len(set(members) & set(graph.neighbours(ego).tolist()))
    caption = (
        f"Node {ego} (0, ringed) and the {len(members) - 1} nodes ranked after it, by rank, coloured by class. "
        f"{unlike} are of the other class, {adjacent} are its neighbours: the filter reaches beyond the edges."
    )
    return Figure("One patch on a heterophilous graph", caption, plot)


def main() -> None:
    """Train all models, print the table, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pages")
    out = make_folder(parser.parse_args().out)
    started = time.perf_counter()
    console = Console()
    accuracy = {name: np.zeros((len(PHIS), len(SEEDS))) for name in MODELS}
    heterophily = np.zeros((len(PHIS), len(SEEDS)))
    responses, patches = {}, {}
    jobs = [(row, column) for row in range(len(PHIS)) for column in range(len(SEEDS))]
    with (
        ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool,
        Progress(console=console, transient=True) as bar,
    ):
        task = bar.add_task("training four models on each graph", total=len(jobs))
        futures = {pool.submit(train, PHIS[row], SEEDS[column]): (row, column) for row, column in jobs}
        for future in as_completed(futures):
            cell = futures[future]
            heterophily[cell], scores, responses[cell], patches[cell] = future.result()
            for name, value in scores.items():
                accuracy[name][cell] = value
            bar.advance(task)

    table = RichTable("φ", "heterophily", *MODELS, title="Test accuracy, %", title_justify="left")
    rows = []
    for row, phi in enumerate(PHIS):
        means = [100 * accuracy[name][row].mean() for name in MODELS]
        cells = [f"{m:.1f} ± {100 * accuracy[name][row].std():.1f}" for m, name in zip(means, MODELS, strict=True)]
        rows.append((f"{phi:+.1f}", f"{heterophily[row].mean():.2f}", *cells))
        best = int(np.argmax(means))
        table.add_row(*rows[-1][:2], *(f"[bold]{c}[/]" if i == best else c for i, c in enumerate(cells)))
    console.print(table)
    graph = make_graph(PHIS[0], SEEDS[0])
    extremes = {f"φ = {PHIS[row]:+.1f}": responses[row, 0] for row in (0, len(PHIS) - 1)}
    seconds = time.perf_counter() - started
    page = write_page(
        out / "index.html",
        "From homophily to heterophily",
        f"Block models of {NODES} nodes, mean degree {DEGREE:g}; {len(SEEDS)} graphs for each value of φ.",
        [
            Notes(
                "How to read this",
                [
                    "A GCN averages over neighbours, which helps where they agree and hurts where they disagree.",
                    "An MLP ignores the edges; the further φ is from 0, the less information the features carry.",
                    "GPatcher learns which frequencies matter: low ones where neighbours agree, high ones, with a "
                    "negative sign, where they disagree. Fast-GPatcher ranks by personalised PageRank; its readout "
                    "learns to separate neighbours of the same class from others.",
                ],
                wide=True,
            ),
            accuracy_figure(list(heterophily.mean(axis=1)), accuracy),
            filter_figure(extremes),
            patch_figure(graph, patches[0, 0]),
            Table("Test accuracy, %", "Mean ± standard deviation.", ("φ", "heterophily", *MODELS), rows),
        ],
    )
    write_diagnosis(diagnose(graph), out / "diagnosis.html")
    console.print(f"{page} and {out / 'diagnosis.html'}, in {seconds:.0f} s")


if __name__ == "__main__":
    main()
