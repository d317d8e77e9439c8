"""Estimates: small work is measured, large work is scaled; nothing is written."""

from dataclasses import replace

import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm, rmat
from gpatcher.graph.split import Split
from gpatcher.patches.ppr import PPR
from gpatcher.runs.estimate import Estimate, _fold, estimate_fit, estimate_patches
from gpatcher.runs.fit import FitOptions
from gpatcher.runs.settings import resolve_settings


def test_a_patch_table_takes_what_its_rows_take():
    graph = rmat(n=5000, m=20_000)
    estimate = estimate_patches(graph, PPR(size=16), threads=1)
    assert estimate.disk == 5000 * 16 * 8
    assert 0 < estimate.seconds < 60
    assert estimate_patches(graph, PPR(size=16), threads=1, spent=100).seconds > 100
    assert estimate.memory > graph.nbytes


def test_more_epochs_take_longer():
    graph = csbm(phi=0.5, n=200, features=4)
    few, many = (
        estimate_fit(graph, "fast", resolve_settings("fast", changes={"train.epochs": epochs})[0], FitOptions())
        for epochs in (1, 500)
    )
    assert few.seconds < many.seconds
    assert few.disk == many.disk > graph.nbytes


def test_a_large_graph_is_folded_with_its_degrees():
    graph = csbm(phi=0.5, n=6000, features=4)
    small, scale = _fold(graph, 4000)
    assert (small.n, scale) == (4000, 1.5)
    assert small.x.shape == (4000, 4)
    degree, mean = (np.diff(g.indptr).mean() for g in (small, graph))
    assert degree == pytest.approx(mean, rel=0.1)
    assert sum(small.splits[0].sizes) == pytest.approx(sum(graph.splits[0].sizes) / 1.5, rel=0.1)


@pytest.mark.parametrize("given", [True, False])
def test_a_large_graph_with_few_labels(given):
    graph = csbm(phi=0.5, n=6000, features=4)
    y = np.full(graph.n, -1)
    y[:60] = graph.y[:60]
    split = Split(np.arange(30), np.arange(30, 45), np.arange(45, 60))
    graph = replace(graph, y=y, splits=(split,) if given else ())
    for most in (500, 4000):
        small, _ = _fold(graph, most)
        assert small.n == most
        assert 16 <= (small.y >= 0).sum() <= 60
    settings = resolve_settings("fast", changes={"train.epochs": 5})[0]
    assert estimate_fit(graph, "fast", settings, FitOptions()).seconds > 0


def test_in_words():
    assert str(Estimate(30, 2**30, 2**20)).startswith("about 30 s, 1.0 GiB of memory and 1 MiB of disk")
    assert str(Estimate(600, 2**30, 2**31)).startswith("about 10 min, 1.0 GiB of memory and 2.0 GiB of disk")
    assert str(Estimate(9000, 2**30, 2**20)).startswith("about 2.5 h")


def test_the_commands_write_nothing(command_in, tmp_path):
    shown = command_in(tmp_path, "fit", "csbm:n=150,features=4", "--model", "fast", "--dry-run").stdout
    assert "would take about" in shown
    shown = command_in(tmp_path, "patches", "rmat:n=2000,m=5000", "--dry-run").stdout
    assert "'gpatcher patches' would take about" in shown
    assert not [path for path in tmp_path.iterdir() if path.name != "cache"]
