"""Importance: informative columns and edges lose accuracy, noise does not."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from gpatcher.datasets.synthetic import csbm
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.ensemble import AutoClassifier
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR
from gpatcher.runs.importance import ALL_COLUMNS, EDGES, _permute, measure_importance
from gpatcher.training.loop import TrainConfig


def test_columns_that_tell_the_class():
    """The first column is the class, the second is noise, and the edges say nothing."""
    rng = np.random.default_rng(0)
    graph = csbm(phi=0.0, n=300, features=2)
    graph = replace(
        graph, x=np.stack([graph.y + 0.2 * rng.normal(size=300), rng.normal(size=300)], 1).astype(np.float32)
    )
    model = GPatcherClassifier(patches=PPR(size=4), model=ModelConfig(hidden=16), train=TrainConfig(epochs=80)).fit(
        graph
    )
    found = {one.name: one for one in measure_importance(model, graph, model.split_.test)}
    assert set(found) == {ALL_COLUMNS, EDGES, "feature 0", "feature 1"}
    assert found["feature 0"].low > 0.2
    assert found[ALL_COLUMNS].low > 0.2
    assert abs(found["feature 1"].lost) < 0.1
    assert found[EDGES].lost < found["feature 0"].lost


def test_an_ensemble_and_edges_that_tell_the_class():
    graph = csbm(phi=-0.95, n=200, features=4)
    model = AutoClassifier(quality="quick").fit(graph)
    found = {one.name: one for one in measure_importance(model, graph, model.split_.test)}
    assert found[EDGES].low > 0.1
    for one in found.values():
        assert one.low <= one.lost <= one.high


def test_columns_are_permuted_together():
    x = np.arange(60.0).reshape(20, 3)
    for given in (x, sp.csr_array(x)):
        made = _permute(given, 1, 3, np.random.default_rng(1))
        made = made.toarray() if sp.issparse(made) else made
        np.testing.assert_array_equal(made[:, 0], x[:, 0])
        np.testing.assert_array_equal(made[:, 2] - made[:, 1], 1)
        assert sorted(made[:, 1]) == sorted(x[:, 1])
        assert not np.array_equal(made, x)
