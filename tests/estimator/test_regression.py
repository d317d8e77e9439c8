"""Regressors: numbers to predict, by every kind of model."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone, is_regressor
from sklearn.ensemble import HistGradientBoostingRegressor

from gpatcher import AutoRegressor, GPatcherClassifier, GPatcherRegressor, TableRegressor
from gpatcher.datasets.synthetic import csbm, neighbour_sum
from gpatcher.errors import InputError
from gpatcher.estimator.ensemble import load_model
from gpatcher.estimator.linear import LinearRegressor
from gpatcher.estimator.portfolio import Candidate
from gpatcher.estimator.trees import TreesConfig, TreesRegressor
from gpatcher.graph.split import Split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.aggregates import aggregate
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR, Hop
from gpatcher.training.loop import TrainConfig
from gpatcher.trust.words import column_rows, member_rows, sentences

SHORT = TrainConfig(epochs=15)
PORTFOLIO = (
    Candidate("linear", "linear", {"patches": {"name": "hop", "size": 32}}),
    Candidate("trees", "trees", {"patches": {"name": "hop", "size": 32}, "model": {"iterations": 30}}),
    Candidate(
        "patches",
        "patches",
        {
            "patches": {"name": "ppr", "size": 8},
            "train": {"epochs": 15, "monitor": "accuracy", "class_weights": True, "consistency": 1.0},
        },
    ),
)
MODELS = {
    "patches": GPatcherRegressor(patches=PPR(size=8), train=SHORT),
    "labels": GPatcherRegressor(
        patches=Hop(size=32), model=ModelConfig(readout=("ego", "mean", "labels"), rounds=2), train=SHORT
    ),
    "trees": TreesRegressor(model=TreesConfig(iterations=40)),
    "linear": LinearRegressor(),
    "auto": AutoRegressor(portfolio=PORTFOLIO),
}


@pytest.fixture(scope="module")
def graph():
    made = neighbour_sum(n=300)
    y = 1000 + 50 * made.y
    y[::7] = np.nan
    keep = ~np.isnan(y)
    split = made.splits[0]
    parts = [part[keep[part]] for part in (split.train, split.val, split.test)]
    return replace(made, y=y, splits=()).with_splits([Split(*parts)])


@pytest.fixture(scope="module", params=MODELS)
def fitted(request, graph):
    return clone(MODELS[request.param]).fit(graph)


def test_predictions_are_in_the_unit_of_the_labels(fitted, graph):
    assert is_regressor(fitted)
    predicted = fitted.predict()
    assert predicted.shape == (graph.n,)
    assert abs(predicted.mean() - np.nanmean(graph.y)) < 15
    test = graph.splits[0].test
    y = graph.y[test]
    r2 = 1 - np.square(y - predicted[test]).sum() / np.square(y - y.mean()).sum()
    assert fitted.score() == pytest.approx(r2)
    assert fitted.score() > 0.1


def test_a_saved_model_predicts_the_same(fitted, graph, tmp_path):
    fitted.save(tmp_path)
    loaded = load_model(tmp_path, graph)
    assert type(loaded) is type(fitted)
    assert np.array_equal(loaded.predict(nodes=[3, 7]), fitted.predict(nodes=[3, 7]))
    assert np.array_equal(loaded.predict_interval(nodes=[3], level=0.8), fitted.predict_interval(nodes=[3], level=0.8))


def test_an_explanation_adds_up_in_the_unit_of_the_labels(fitted, graph):
    explanation = fitted.explain(5)
    assert explanation.margin == pytest.approx(fitted.predict(nodes=[5])[0], rel=1e-5)
    total = explanation.start + sum(member.contribution for member in explanation.members)
    assert total + explanation.remainder == pytest.approx(explanation.margin, rel=1e-6)
    assert abs(explanation.remainder) < 1.0
    assert explanation.probability is None
    assert explanation.label == f"{graph.y[5]:.6g}"
    answer, label, _ = sentences(explanation)
    assert float(re.search(r"predicted (\S+),", answer)[1]) == pytest.approx(explanation.margin, rel=1e-3)
    assert explanation.label in label
    # contributions have equal numbers of decimals
    shown = [row[-1] for row in [*member_rows(explanation), *column_rows(explanation)]]
    assert len({len(text.partition(".")[2]) for text in shown}) == 1
    largest = max(abs(member.contribution) for member in explanation.members)
    assert f"{largest:.4g}" in {f"{abs(float(text)):.4g}" for text in shown}


def test_unseen_nodes(fitted, graph):
    rng = np.random.default_rng(1)
    ends = np.array([[graph.n, graph.n, graph.n + 1], [3, 9, 30]])
    unseen = UnseenNodes.join(graph, ends, rng.standard_normal((2, graph.num_features)).astype(np.float32), 2)
    answers = fitted.predict(unseen)
    assert answers.shape == (2,)
    assert fitted.predict_interval(unseen).shape == (2, 2)
    assert np.isfinite(answers).all()


def test_label_columns_are_the_mean_of_labelled_members_without_the_node_itself():
    labels = np.array([9.0, 2.0, np.nan, 4.0])
    weights = sp.csr_array(np.array([[0.0, 0.25, 0.5, 0.25], [0.0, 0.0, 1.0, 0.0]]))
    own = np.arange(4.0)[:, None]
    rows = aggregate(own, [weights], np.array([0, 2]), labels, np.zeros(1, np.float32))
    # own column, mean of the members' columns, mean of their labels (the prior without any), labelled fraction
    assert rows.tolist() == [[0.0, 2.0, 3.0, 0.5], [2.0, 2.0, 0.0, 0.0]]
    labels[0] = -50.0  # its own
    assert np.array_equal(aggregate(own, [weights], np.array([0, 2]), labels, np.zeros(1, np.float32)), rows)


def test_labels_of_the_targets_of_a_step_are_masked(graph):
    model = clone(MODELS["labels"]).fit(graph).model_
    target = torch.as_tensor(graph.splits[0].train[:3].copy())
    known = model.known_labels(target)
    assert not known[target].any()
    others = torch.as_tensor(graph.splits[0].train[3:].copy())
    assert (known[others, 1] > 1).all()  # scaled up to compensate
    assert not model.known_labels()[torch.as_tensor(np.array(graph.splits[0].test))].any()


def test_intervals_cover_as_promised():
    covered = []
    for seed in range(5):
        graph = neighbour_sum(n=600, seed=seed)
        model = LinearRegressor(seed=seed).fit(graph)
        low, high = model.predict_interval(nodes=graph.splits[0].test, level=0.8).T
        y = graph.y[graph.splits[0].test]
        covered.append(((low <= y) & (y <= high)).mean())
    assert 0.74 < np.mean(covered) < 0.87  # 600 test nodes: three standard errors
    assert np.isinf(model.predict_interval(nodes=[0], level=0.9999)).all()


def test_it_beats_boosted_trees_on_the_columns_where_the_neighbours_tell():
    graph = neighbour_sum(n=800, seed=3)
    split = graph.splits[0]
    columns = HistGradientBoostingRegressor(random_state=0).fit(graph.x[split.train], graph.y[split.train])
    alone = columns.score(graph.x[split.test], graph.y[split.test])
    model = AutoRegressor(portfolio=PORTFOLIO).fit(graph)
    assert model.score() > alone + 0.3


def test_the_ensemble_is_weighted_by_squared_error(graph):
    model = clone(MODELS["auto"]).fit(graph)
    held, answers = model.held_out_
    error = np.square(answers[:, 0] - graph.y[held]).mean()
    assert sum(member.weight for member in model.members_) == pytest.approx(1.0)
    assert all(member.temperature == 1.0 for member in model.members_)
    assert error <= min(member.loss for member in model.members_) * 1.02
    best = model.keep_best()
    assert len(best.used) == 1


def test_labels_of_the_other_kind_are_refused(graph):
    with pytest.raises(InputError, match="are numbers, not classes; use a regressor"):
        GPatcherClassifier().fit(graph)
    with pytest.raises(InputError, match="are classes, not numbers"):
        GPatcherRegressor().fit(csbm(n=100, features=4))
    for options in ({"class_weights": True}, {"consistency": 1.0}):
        with pytest.raises(InputError, match=f"{next(iter(options))} is for classes"):
            GPatcherRegressor(patches=PPR(size=4), train=TrainConfig(epochs=1, **options)).fit(graph)


def test_tables(graph):
    import pyarrow as pa

    ids = [f"n{v}" for v in range(graph.n)]
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    nodes = pa.table({"id": ids, "price": pa.array(graph.y, from_pandas=True), "a": graph.x[:, 0], "b": graph.x[:, 1]})
    edges = pa.table({"source": [ids[v] for v in source], "target": [ids[v] for v in graph.indices]})
    model = TableRegressor(label="price", regressor=LinearRegressor()).fit(nodes, edges)
    assert model.predict(["n0", "n7"]).shape == (2,)
    assert model.predict_interval(["n0"], level=0.8).shape == (1, 2)
    assert model.score() > 0.1
    with pytest.raises(InputError, match="TableRegressor is for regression; leave 'task' out"):
        TableRegressor(label="price", tables={"task": "classification"}).fit(nodes, edges)
