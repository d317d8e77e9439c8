"""A job becomes a record and a model: every model behind one function, and the ablations."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpatcher.baselines import BASELINES
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, stratified_split
from gpatcher.model.config import ModelConfig
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches import PPR
from gpatcher.patches.base import Patches
from gpatcher.runs.ablations import patch_graph
from gpatcher.runs.records import settings_hash
from gpatcher.runs.run import Cache, Job, mean_response, run_job
from gpatcher.runs.settings import MODELS, PATCHERS
from gpatcher.training.loop import TrainConfig
from gpatcher.training.metrics import measure

QUICK = {"model": {"hidden": 8}, "train": {"epochs": 4}}


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.8, n=90, features=8, degree=6)


def settings(model, /, size=16, **sections):
    """Quick settings; further ones of a section replace them."""
    merged = {name: {**QUICK.get(name, {}), **sections.get(name, {})} for name in {*QUICK, *sections}}
    if model in PATCHERS:
        merged["patches"] = {"name": PATCHERS[model], "size": size, **sections.get("patches", {})}
    return merged


def job(model, /, seed=0, split=0, dataset="csbm", ablation=None, **sections):
    return Job("test", dataset, model, settings(model, **sections), split, seed, ablation=ablation or {})


def run(model, graph, split=None, /, *, cache=None, read_test=True, **about):
    return run_job(job(model, **about), graph, split, cache=cache, read_test=read_test)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_and_repeats(graph, name):
    split = graph.splits[0]
    first = run(name, graph, split, seed=3)
    assert first.record["epochs"] == first.result.epochs == 4
    assert first.record["val"] == first.record["val_accuracy"] == first.result.val_accuracy
    assert first.record["test"] == first.record["test_accuracy"] == first.result.test_accuracy
    assert (first.record["response"] is not None) == (name == "gpatcher")
    assert (first.classifier is not None) == (name in PATCHERS)
    again = run(name, graph, split, seed=3, cache=Cache())
    assert again.result.history == first.result.history
    assert again.record["test"] == first.record["test"]
    predicted = first.predict(split.test)
    assert np.mean(predicted == graph.y[split.test]) == first.record["test"]


@pytest.mark.parametrize("name", ["gcn", "fast", "gpatcher", "bmgcn"])
def test_the_test_nodes_are_not_read_while_settings_are_chosen(graph, name):
    split = graph.splits[0]
    y = graph.y.copy()
    y[split.test] = 1 - y[split.test]
    other = replace(graph, y=y)
    blind = [run(name, g, split, read_test=False) for g in (graph, other)]
    for one in blind:
        assert one.record["test"] is one.record["test_accuracy"] is one.record["metrics"]["test"] is None
        assert one.record["split_sizes"][2] == 0
        assert one.result.test_accuracy is None
    assert blind[0].result.history == blind[1].result.history
    assert blind[0].record["val"] == blind[1].record["val"]
    read = [run(name, g, split) for g in (graph, other)]
    assert read[0].record["test"] == pytest.approx(1 - read[1].record["test"])
    assert read[0].result.history == blind[0].result.history


@pytest.mark.parametrize("name", ["mlp", "fast"])
def test_the_test_nodes_of_a_drawn_split_are_not_read_either(graph, name):
    blind = run(name, graph.with_splits([]), read_test=False)
    assert blind.record["split_sizes"][2] == 0
    assert blind.record["test"] is None


def test_the_figures_are_those_of_the_estimator(graph):
    made = run("fast", graph, seed=5, model={"readout": ["ego", "mean"]})
    alone = GPatcherClassifier(
        patches=PPR(), model=ModelConfig(hidden=8, readout=("ego", "mean")), train=TrainConfig(epochs=4), seed=5
    ).fit(graph)
    assert made.record["test"] == alone.result_.test_accuracy
    assert made.record["val"] == alone.result_.val_accuracy
    np.testing.assert_array_equal(made.predict(np.arange(graph.n)), alone.decision_function().argmax(1))


def test_what_a_record_says_of_its_job(graph):
    made = Job("order", "csbm", "fast", settings("fast"), 0, 7, "shuffled", 12, {"shuffle_patches": True})
    record = run_job(made, graph, memory=2 << 30).record
    assert (record["job"], record["experiment"], record["row"], record["model"]) == (
        made.id,
        "order",
        "shuffled",
        "fast",
    )
    assert (record["split"], record["seed"], record["trials"]) == (0, 7, 12)
    assert record["settings"] == made.settings
    assert record["settings_hash"] == settings_hash(made.settings)
    assert record["ablation"] == {"shuffle_patches": True}
    assert (record["graph"], record["split_hash"]) == (graph.content_hash, graph.splits[0].hash)
    assert record["split_sizes"] == list(graph.splits[0].sizes)
    assert (record["memory"], record["batch_size"]) == (2 << 30, 128)  # the smallest power of 2 that takes all nodes
    assert record["seconds"] >= record["train_seconds"] > 0
    assert record["extractors"] == ["ppr"]
    assert job("gcn").header()["row"] == "gcn"  # without a row of its own


def test_the_id_depends_on_all_that_matters():
    def made(**changes):
        base = {"experiment": "e", "dataset": "d", "model": "m", "settings": {"a": 1, "b": 2}, "split": 0, "seed": 0}
        return Job(**{**base, "row": "r", **changes}).id

    assert made() == made(settings={"b": 2, "a": 1}) == made(trials=5) == made(ablation={})
    changes = [{"experiment": "f"}, {"dataset": "e"}, {"row": "s"}, {"model": "n"}, {"settings": {"a": 2}}]
    changes += [{"split": 1}, {"seed": 1}, {"task": "x"}, {"ablation": {"shuffle_patches": True}}, {}]
    assert len({made(**change) for change in changes}) == len(changes)


def test_splits_of_a_graph(graph):
    several = graph.with_splits([stratified_split(graph.y, 0.5, 0.25, seed=s) for s in range(3)])
    assert run("mlp", several, seed=1).record["split_hash"] == several.splits[0].hash
    assert run_job(job("mlp", split=2), several).record["split_hash"] == several.splits[2].hash
    with pytest.raises(InputError, match="csbm has no split 3; its splits are 0 to 2"):
        run_job(job("mlp", split=3), several)
    # without any, each seed draws its own, the same for every model
    bare = graph.with_splits([])
    hashes = [run(name, bare, seed=seed).record["split_hash"] for name in ("mlp", "fast") for seed in (0, 1)]
    assert hashes[:2] == hashes[2:]
    assert hashes[0] != hashes[1]
    assert hashes[0] == stratified_split(graph.y, 0.6, 0.2, 0).hash


# ------------------------------------------------------------------------------------------------ cache


def test_patches_and_features_are_made_once(graph, monkeypatch):
    made = []
    prepare = GPatcherClassifier.prepare
    monkeypatch.setattr(
        GPatcherClassifier, "prepare", lambda self, *args, **more: made.append(self) or prepare(self, *args, **more)
    )
    cache = Cache()
    for seed in range(3):
        run("fast", graph, seed=seed, cache=cache)
    run("fast", graph, seed=4, cache=cache, ablation={"shuffle_patches": True})
    assert len(made) == 1
    run("fast", graph, cache=cache, size=4)
    assert len(made) == 2
    run("fast", csbm(phi=0.5, n=90, features=8), cache=cache, size=4)
    assert len(made) == 3
    l1, none = FeatureConfig(normalise="l1"), FeatureConfig()
    assert cache.features(graph, l1) is cache.features(graph, l1)
    assert cache.features(graph, l1) is not cache.features(graph, none)


def test_the_heterophily_is_measured_once_per_graph(graph, monkeypatch):
    from gpatcher.runs import run as module

    measured = []
    heterophily = module.heterophily
    monkeypatch.setattr(module, "heterophily", lambda g: measured.append(g) or heterophily(g))
    cache = Cache()
    levels = [run(name, graph, cache=cache).record["node_heterophily"] for name in ("mlp", "fast")]
    assert levels == [round(heterophily(graph).node_heterophily, 4)] * 2
    assert len(measured) == 1
    with pytest.warns(UserWarning, match="no edges"):
        other = Graph.from_edge_index(np.empty((2, 0), np.int64), x=graph.x, y=graph.y, num_nodes=graph.n)
    assert run("mlp", other, cache=cache).record["node_heterophily"] is None  # no node has a neighbour
    monkeypatch.setattr(module, "is_large", lambda _: True)
    assert run("mlp", graph, cache=Cache()).record["node_heterophily"] is None
    assert len(measured) == 2


# ------------------------------------------------------------------------------------------------ metrics


def test_metrics_by_hand():
    y = np.array([0, 0, 1, 1])
    probability = torch.tensor([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0], [0.0, 4.0]]).softmax(1).numpy()
    assert measure("roc_auc", y, probability) == 0.75  # one of four pairs is the wrong way round
    assert measure("accuracy", y, probability) == 0.5
    assert measure("roc_auc", y[:2], probability[:2]) is None
    with pytest.raises(InputError, match="metric 'f1'"):
        measure("f1", y, probability)


def test_the_metric_of_an_unbalanced_data_set(graph):
    """Minesweeper is scored by ROC-AUC; accuracy is on record as well."""
    made = run("mlp", graph, dataset="Minesweeper")
    assert made.record["metric"] == "roc_auc"
    assert made.record["test"] != made.record["test_accuracy"]
    assert made.record["test"] == made.record["metrics"]["test"]["roc_auc"]
    assert made.record["val"] == made.record["metrics"]["validation"]["roc_auc"]
    assert made.record["test_accuracy"] == made.record["metrics"]["test"]["accuracy"] == made.result.test_accuracy
    assert 0 <= made.record["test"] <= 1
    with torch.no_grad():
        nodes = torch.from_numpy(graph.splits[0].test.copy())
        probability = made.module.eval()(made.x, nodes).softmax(1).numpy()
    assert made.record["test"] == pytest.approx(measure("roc_auc", graph.y[nodes], probability))


def test_a_metric_that_is_not_defined_on_validation(graph):
    split = graph.splits[0]
    one_class = Split(split.train, split.val[graph.y[split.val] == 0], split.test)
    with pytest.raises(InputError, match="roc_auc is not defined on the validation nodes of csbm"):
        run("mlp", graph, one_class, dataset="minesweeper")
    assert run("mlp", graph, one_class).record["metric"] == "accuracy"


def test_test_nodes_without_labels_leave_no_result(graph):
    y = graph.y.copy()
    y[graph.splits[0].test] = -1
    with pytest.warns(UserWarning, match="cannot be scored"):
        hidden = replace(graph, y=y, splits=()).with_splits([graph.splits[0]])
    for name in ("mlp", "fast"):
        record = run(name, hidden).record
        assert (record["test"], record["test_accuracy"], record["metrics"]["test"]) == (None, None, None)
        assert record["val"] > 0
    assert record["calibration"]["test_error_after"] is None
    assert 0 <= record["calibration"]["val_error_after"] <= 1


def test_leaky_data_sets_are_marked(graph):
    assert run("mlp", graph, dataset="chameleon").record["leaky"] is True
    assert run("mlp", graph, dataset="chameleon-filtered").record["leaky"] is False


# ------------------------------------------------------------------------------------------------ errors


def test_unknown_names(graph):
    with pytest.raises(InputError, match=r"'nonsense'.*mlp.*gpatcher, fast"):
        run("nonsense", graph)
    with pytest.raises(InputError, match="gcn has no parameter 'nonsense'"):
        run("gcn", graph, model={"nonsense": 1})
    for name in ("gcn", "fast"):
        with pytest.raises(InputError, match=r"train\.nonsense"):
            run(name, graph, train={"nonsense": 1})
        with pytest.raises(InputError, match=r"features\.nonsense"):
            run(name, graph, features={"nonsense": 1})
        with pytest.raises(InputError, match="device 'nowhere' cannot be used"):
            run_job(job(name), graph, device="nowhere")
    with pytest.raises(InputError, match=r"model\.nonsense"):
        run("fast", graph, model={"nonsense": 1})
    with pytest.raises(InputError, match="no parameter 'nonsense'"):
        run("fast", graph, patches={"nonsense": 1})


def test_a_model_may_be_registered_by_hand(graph, monkeypatch):
    """As the how-to page does before the model gets a file."""
    monkeypatch.setitem(BASELINES, "mine", BASELINES["mlp"])
    assert run("mine", graph).record["test"] == run("mlp", graph).record["test"]


# ------------------------------------------------------------------------------------------------ ablations


@pytest.mark.parametrize("name", PATCHERS)
def test_shuffling_reaches_the_mixer_and_nothing_else(graph, name):
    for readout, same in ((["ego", "mean"], True), (["mixer"], False)):
        about = {"size": 6, "model": {"readout": readout}}
        ranked = run(name, graph, **about)
        shuffled = run(name, graph, **about, ablation={"shuffle_patches": True})
        losses = [[epoch["train_loss"] for epoch in made.result.history] for made in (ranked, shuffled)]
        assert np.allclose(*losses, atol=1e-5) == same
        assert shuffled.record["extractors"] == ranked.record["extractors"]


@pytest.mark.parametrize("name", PATCHERS)
def test_shuffled_patches_keep_their_members_and_the_node_first(graph, name):
    def patches(made):
        return (part.detach() for part in made.module.sources[0](torch.arange(graph.n)))

    about = {"seed": 1, "size": 6, "train": {"epochs": 1, "lr": 1e-9}}
    index, score = patches(run(name, graph, **about, ablation={"shuffle_patches": True}))
    ranked, ranked_score = patches(run(name, graph, **about))
    assert (index[:, 0] == torch.arange(graph.n)).all()
    assert (index.sort(1).values == ranked.sort(1).values).all()
    assert (index != ranked).any()
    # each member keeps its own score
    own, ranked_own = score.gather(1, index.argsort(dim=1)), ranked_score.gather(1, ranked.argsort(dim=1))
    torch.testing.assert_close(own, ranked_own, atol=1e-6, rtol=1e-4)


def test_the_order_depends_on_the_seed_alone(graph):
    def order(seed, cache):
        made = run("fast", graph, seed=seed, cache=cache, size=6, ablation={"shuffle_patches": True})
        return made.module.sources[0](torch.arange(graph.n))[0]

    shared = Cache()
    first, second = order(0, shared), order(1, shared)
    assert (first != second).any()
    assert (order(0, shared) == first).all()
    assert (order(1, Cache()) == second).all()


def test_the_response_of_shuffled_patches_is_the_learned_one(graph):
    made = run("gpatcher", graph, ablation={"shuffle_patches": True}, model={"readout": ["mixer"]}, train={"lr": 0.1})
    values = torch.linspace(-1, 1, len(made.record["response"]))
    with torch.no_grad():
        learned = made.module.sources[0].filter(values)
    np.testing.assert_allclose(made.record["response"], learned, atol=1e-4)
    start = made.classifier.filter_response(len(values)).start
    assert not np.allclose(made.record["response"], start, atol=1e-3)


def test_graph_of_the_patches():
    graph = Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], x=np.eye(4), y=[0, 1, 0, 1])
    patches = Patches(np.array([[0, 2, 3], [1, -1, -1], [2, 0, -1], [3, 2, -1]]), np.ones((4, 3), np.float32))
    induced = patch_graph(graph, patches)
    assert [induced.neighbours(v).tolist() for v in range(4)] == [[2, 3], [], [0, 3], [0, 2]]
    assert induced.y.tolist() == [0, 1, 0, 1]
    assert not induced.is_directed


def test_training_on_the_induced_graph_differs(graph):
    ablation = {"induced": settings("gpatcher", size=4)}
    plain, induced = (run("gcn", graph, ablation=given) for given in ({}, ablation))
    assert induced.result.history != plain.result.history
    # what is recorded of the graph is that of the data set
    same = ("graph", "node_heterophily", "split_hash", "split_sizes")
    assert [induced.record[name] for name in same] == [plain.record[name] for name in same]
    mlp = [run("mlp", graph, ablation=given) for given in ({}, ablation)]
    assert mlp[0].result.history == mlp[1].result.history  # it reads no edges


def test_the_induced_graph_depends_on_no_test_label(graph):
    split = graph.splits[0]
    y = graph.y.copy()
    y[split.test] = 1 - y[split.test]
    ablation = {"induced": settings("gpatcher", size=4)}
    histories = [run("gcn", g, split, ablation=ablation).result.history for g in (graph, replace(graph, y=y))]
    assert histories[0] == histories[1]


def test_mean_response_is_that_of_the_eigenvalues():
    # g(λ) = 2 + 2λ: at -1, 0, 1 it is 0, 2, 4
    assert mean_response(np.array([-1.0, 0.0, 0.0, 1.0]), [0.0, 2.0, 4.0]) == pytest.approx(0.5)
    assert mean_response(np.array([-1.0, 1.0]), [-2.0, 0.0, 1.0]) == pytest.approx(-0.25)
