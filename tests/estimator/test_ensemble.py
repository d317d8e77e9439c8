"""The ensemble of a portfolio."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator import members
from gpatcher.estimator.ensemble import AutoClassifier, load_model
from gpatcher.estimator.members import choose_jobs, choose_seeds
from gpatcher.estimator.onnx import TOLERANCE, export_onnx, serving_inputs
from gpatcher.estimator.portfolio import KINDS, Candidate
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.runs.run import AutoOptions, Job, run_job
from gpatcher.runs.settings import resolve_settings
from gpatcher.scale.executors import ProcessEngine

TRAIN = {"epochs": 25, "lr": 0.02}
PORTFOLIO = (
    Candidate(
        "patches",
        "patches",
        {
            "patches": {"name": "ppr", "size": 8},
            "model": {"hidden": 8, "readout": ["ego", "mean"], "input_dropout": 0.0},
            "train": TRAIN,
        },
    ),
    Candidate(
        "rounds",
        "patches",
        {
            "patches": [{"name": "hop", "size": 64, "direction": d} for d in ("out", "in")],
            "model": {"hidden": 8, "readout": ["ego", "mean"], "rounds": 2, "aggregate": "sum", "input_dropout": 0.0},
            "train": TRAIN,
        },
    ),
    Candidate("trees", "trees", {"patches": [{"name": "hop", "size": 64}], "model": {"iterations": 20}}, cost=2.0),
    Candidate("linear", "linear", {"patches": [{"name": "hop", "size": 64}], "model": {"strengths": [1.0]}}),
)


def auto(**parameters):
    return AutoClassifier(portfolio=PORTFOLIO, **parameters)


@pytest.fixture(scope="module")
def graph():
    """A graph whose last 40 nodes have no label, without a split."""
    whole = csbm(phi=-0.7, n=200, features=8)
    y = whole.labels().copy()
    y[160:] = -1
    return replace(whole, y=y, splits=())


@pytest.fixture(scope="module")
def fitted(graph):
    return auto().fit(graph)


def test_members_are_weighed_by_what_they_add(graph, fitted):
    weights = np.array([member.weight for member in fitted.members_])
    assert weights.sum() == pytest.approx(1)
    assert [member.candidate.name for member in fitted.members_] == ["patches", "rounds", "trees", "linear"]
    assert fitted.used[0].weight == weights.max()
    assert all(len(member.final) == 3 for member in fitted.used)  # seeds
    assert all(not member.final for member in fitted.members_ if member.weight == 0)
    assert all(len(member.models) == 3 for member in fitted.members_)  # folds: there are few validation nodes
    assert all(member.seeds == 1 for member in fitted.members_)
    held, logits = fitted.held_out_
    development = np.sort(np.concatenate([fitted.split_.train, fitted.split_.val]))
    np.testing.assert_array_equal(np.sort(held), development)
    assert fitted.validation_score() == np.mean(logits.argmax(1) == graph.labels()[held])
    assert fitted.score() > 0.6


def test_labelled_nodes_are_predicted_by_models_that_did_not_see_test_labels(graph, fitted):
    y = graph.labels().copy()
    test = fitted.split_.test
    y[test] = 1 - y[test]
    other = auto().fit(replace(graph, y=y), fitted.split_, refit=True, cross_validate=True)
    np.testing.assert_array_equal(other.decision_function(nodes=test), fitted.decision_function(nodes=test))
    unlabelled = np.arange(160, 200)
    assert (other.decision_function(nodes=unlabelled) != fitted.decision_function(nodes=unlabelled)).any()


def test_a_given_split_is_kept(graph, fitted):
    model = auto().fit(graph, fitted.split_)
    assert all(len(member.models) == member.seeds == 3 and not member.final for member in model.members_)
    np.testing.assert_array_equal(model.held_out_[0], fitted.split_.val)
    for member in model.members_:
        np.testing.assert_array_equal(member.models[0].split.train, fitted.split_.train)


def test_a_member_is_the_mean_over_its_seeds(graph, fitted):
    split = fitted.split_
    model = AutoClassifier(portfolio=PORTFOLIO[:1], seed=5).fit(graph, split)
    [member] = model.members_
    seeds = choose_seeds(graph, 5, 3)
    alone = [PORTFOLIO[0].make(seed=seed).fit(graph, split).decision_function(nodes=split.val) for seed in seeds]
    assert not np.allclose(alone[0], alone[1])
    np.testing.assert_allclose(member.held_out, np.mean(alone, 0), rtol=1e-5)
    np.testing.assert_allclose(model.member_logits(member, split.val), np.mean(alone, 0), rtol=1e-5)
    one = copy(model).keep_best()
    assert [(len(m.models), m.seeds) for m in one.members_] == [(1, 1)]
    scaled = alone[0] / one.members_[0].temperature
    np.testing.assert_allclose(one.decision_function(nodes=split.val), scaled, rtol=1e-5)


def test_seeds_on_small_graphs_only(graph):
    large = replace(graph, indptr=np.arange(graph.n + 1) * 100, indices=np.tile(np.arange(100), graph.n))
    assert choose_seeds(graph, 7, 1) == choose_seeds(large, 7, 3) == (7,)
    assert choose_seeds(graph, 7, 3)[:2] == choose_seeds(graph, 7, 2)
    assert len({seed for first in range(10) for seed in choose_seeds(graph, first, 3)}) == 30


def test_same_seed_same_numbers_saved_and_loaded(graph, fitted, tmp_path):
    again = auto().fit(graph)
    np.testing.assert_array_equal(again.decision_function(), fitted.decision_function())
    fitted.save(tmp_path)
    loaded = load_model(tmp_path, graph)
    np.testing.assert_array_equal(loaded.decision_function(), fitted.decision_function())
    np.testing.assert_array_equal(loaded.predict_sets(level=0.8), fitted.predict_sets(level=0.8))
    assert [m.weight for m in loaded.members_] == [m.weight for m in fitted.members_]
    assert loaded.validation_score() == fitted.validation_score()
    next((tmp_path / "members").iterdir()).rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"members.* is missing.*train again"):
        load_model(tmp_path, graph)


def test_unseen_nodes(graph, fitted):
    unseen = UnseenNodes.join(graph, np.array([[200, 200], [3, 8]]), np.ones((1, 8), np.float32))
    parts = [
        member.weight / member.temperature / 3 * KINDS[saved.kind].restore(saved).decision_function(unseen)
        for member in fitted.used
        for saved in member.final
    ]
    np.testing.assert_allclose(fitted.decision_function(unseen), sum(parts), rtol=1e-5)


def test_explanations_sum_to_the_decision(graph, fitted):
    for node in (0, 170):  # with a label, and without
        made = fitted.explain(node)
        logits = np.sort(fitted.decision_function(nodes=[node])[0])[::-1]
        assert made.margin == pytest.approx(logits[0] - logits[1], abs=1e-4)
        total = made.start + sum(member.contribution for member in made.members) + made.remainder
        assert total == pytest.approx(made.margin, abs=1e-6)
        assert abs(made.remainder) < 0.02
        assert len({member.node for member in made.members}) == len(made.members)
        assert sum(column.contribution for column in made.columns) == pytest.approx(made.own(), abs=0.05)


def test_the_best_member_alone(fitted):
    model = copy(fitted).keep_best()
    assert [member.weight for member in model.used] == [1.0]
    assert model.used[0].candidate == fitted.used[0].candidate


def test_the_best_member_alone_is_saved_and_answers(graph, fitted, tmp_path):
    model = copy(fitted).keep_best()
    model.save(tmp_path)
    assert [path.name for path in (tmp_path / "members").iterdir()] == [members.slug(model.used[0].candidate.name)]
    loaded = load_model(tmp_path, graph)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    made = loaded.explain(3)
    total = made.start + sum(member.contribution for member in made.members) + made.remainder
    assert total == pytest.approx(made.margin, abs=1e-6)
    unseen = UnseenNodes.join(graph, np.array([[graph.n, graph.n], [0, 1]]), np.asarray(graph.x)[:1], 1)
    np.testing.assert_array_equal(loaded.predict_proba(unseen), model.predict_proba(unseen))


@pytest.mark.parametrize("candidate", PORTFOLIO[:2], ids=lambda candidate: candidate.name)
def test_the_best_member_is_exported_if_it_is_a_patch_model(graph, tmp_path, candidate):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = AutoClassifier(portfolio=[candidate]).fit(graph).keep_best()
    assert model.used[0].temperature != 1
    assert export_onnx(model, tmp_path / "model.onnx") < TOLERANCE
    network, _ = model.only_model()
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    nodes = np.arange(graph.n)  # with several rounds, the whole graph
    inputs = {key: value.numpy() for key, value in serving_inputs(network, nodes).items()}
    logits, probability = session.run(None, inputs)
    new = nodes[160:]  # without a label: predicted by the model that was trained on all labels
    np.testing.assert_allclose(logits[new], model.decision_function(nodes=new), atol=TOLERANCE)
    np.testing.assert_allclose(probability[new], model.predict_proba(nodes=new), atol=TOLERANCE)
    assert not np.allclose(logits, network.decision_function(nodes=nodes), atol=TOLERANCE)  # the ensemble's temperature


def test_other_ensembles_are_not_exported(graph, fitted, tmp_path):
    with pytest.raises(InputError, match=r"of its own: .*\(.*gpatcher serve.*--model fast.*--keep-best"):
        export_onnx(fitted, tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"kind 'trees'.*gpatcher serve.*--model fast"):
        export_onnx(AutoClassifier(portfolio=PORTFOLIO[2:3]).fit(graph).keep_best(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_an_interrupted_fit_continues_with_the_members_that_are_done(graph, fitted, tmp_path, monkeypatch):
    trained = []
    train = members._train

    def counting(task, graph):
        trained.append(task.candidate.name)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return train(task, graph)

    monkeypatch.setattr(members, "_train", counting)
    with pytest.raises(KeyboardInterrupt):
        auto().fit(graph, folder=tmp_path)
    assert trained == ["patches", "trees", "rounds"]  # the first, then the longest
    model = auto().fit(graph, folder=tmp_path)
    assert trained[3:5] == ["rounds", "linear"]
    np.testing.assert_array_equal(model.decision_function(), fitted.decision_function())
    other = replace(graph, x=graph.x + 1)
    auto().fit(other, folder=tmp_path)  # members of another graph are not taken
    assert trained.count("patches") >= 2


def test_a_budget_skips_members_and_says_so(graph):
    model = auto(budget=1e-3).fit(graph)
    assert len(model.members_) == 1
    assert set(model.skipped_) == {"rounds", "trees", "linear", "training on every label"}
    assert all("budget" in reason for reason in model.skipped_.values())


def test_quick_trains_the_first_configuration_alone(graph):
    model = auto(quality="quick").fit(graph)
    assert [member.candidate.name for member in model.members_] == ["patches"]


def test_members_may_be_trained_in_processes(graph, monkeypatch):
    pools = []
    start = ProcessEngine._new_pool
    monkeypatch.setattr(ProcessEngine, "_new_pool", lambda engine: pools.append(engine) or start(engine))
    alone, model = (
        AutoClassifier(portfolio=PORTFOLIO[::3], jobs=jobs).fit(graph, refit=True, cross_validate=False)
        for jobs in (1, 2)
    )
    # the processes that train the members train them on every label too
    assert [engine.processes for engine in pools] == [2]
    assert all(member.final for member in model.used)
    assert [member.name for member in PORTFOLIO[::3]] == ["patches", "linear"]
    # arrays that were sent lie elsewhere in memory, which changes the last bits of sums
    np.testing.assert_allclose(model.predict_proba(), alone.predict_proba(), atol=2e-3)


def test_directions_of_an_undirected_graph_are_one_source(graph):
    candidate = PORTFOLIO[1].adapted(graph)
    assert candidate.settings["patches"] == [{"name": "hop", "size": 64}]
    arrows = csbm(phi=0.5, n=60, features=4)
    directed = replace(arrows, indptr=np.arange(arrows.n + 1), indices=np.roll(np.arange(arrows.n), 1), splits=())
    assert PORTFOLIO[1].adapted(directed) == PORTFOLIO[1]


def test_sources_without_members_are_left_out(graph):
    sources = [{"name": "hop", "size": 64}, {"name": "overlap", "size": 8}]
    candidate = Candidate("same neighbours", "patches", {"patches": sources})
    assert candidate.adapted(graph).settings["patches"] == sources[:1]
    only = Candidate("same neighbours", "patches", {"patches": sources[1:] * 2})
    assert only.adapted(graph).settings["patches"] == sources[1:]
    pairs = np.arange(1, 60)
    star = replace(csbm(phi=0.5, n=60), indptr=np.r_[0, 59, 59 + pairs], indices=np.r_[pairs, np.zeros(59, int)])
    assert candidate.adapted(star).settings["patches"] == sources


def test_what_is_refused(graph, tmp_path):
    with pytest.raises(InputError, match=r"quality must be one of quick, good, best, got 'perfect'"):
        auto(quality="perfect").fit(graph)
    with pytest.raises(InputError, match="budget must be above 0"):
        auto(budget=0).fit(graph)
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        choose_jobs(graph, 0)
    with pytest.raises(NotFittedError):
        auto().predict(graph)


def test_a_graph_without_features():
    bare = replace(csbm(phi=-0.7, n=80), x=None, splits=())  # small: each node is a column
    model = auto().fit(bare)
    assert model.decision_function().shape == (80, 2)
    assert not model.skipped_


def test_a_job_of_the_bench(graph, fitted):
    settings = resolve_settings("auto", changes={"auto.quality": "quick"})[0]
    split = fitted.split_
    run = run_job(Job("fit", "csbm", "auto", settings, 0, 0), graph.with_splits([split]), auto=AutoOptions())
    [member] = run.record["members"]["trained"]
    assert (member["weight"], member["folds"], member["refit"]) == (1.0, 1, False)
    assert run.record["test"] == np.mean(run.predict(split.test) == graph.labels()[split.test])
    with pytest.raises(InputError, match=r"unknown setting 'auto.nonsense'.*quality"):
        resolve_settings("auto", changes={"auto.nonsense": 1})
