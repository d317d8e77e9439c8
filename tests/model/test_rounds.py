"""Several rounds and the labels of members, against the formulas written out."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model import gpatcher as module
from gpatcher.model.config import ModelConfig, count_parameters
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.patches import PPR, AdaptiveFilter, Hop, Overlap
from gpatcher.training.loop import TrainConfig, fit, train

SOURCES = {
    "one": (PPR(size=5),),
    "two": (Hop(size=6), PPR(size=4, direction="out")),
    "learned": (AdaptiveFilter(size=5, K=4), Hop(size=4)),
}


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.4, n=60, features=6)


def build(graph, extractors, labels=None, **options):
    torch.manual_seed(3)
    sources = [extractor.source(extractor.prepare(graph)) for extractor in extractors]
    config = ModelConfig(**{"hidden": 8, "mixer_hidden": 4, "readout": ("ego", "mean"), **options})
    model = GPatcher(sources, graph.num_features, graph.num_classes, config, labels)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def weights(source, n):
    """The matrix of the score-weighted mean without the node itself, entry by entry."""
    matrix = torch.zeros(n, n)
    index, score = source(torch.arange(n))
    for v in range(n):
        total = sum(abs(float(score[v, j])) for j in range(1, index.shape[1]) if index[v, j] >= 0)
        for j in range(1, index.shape[1]):
            if index[v, j] >= 0 and total > 0:
                matrix[v, index[v, j]] = score[v, j] / total
    return matrix


@pytest.mark.parametrize(("norm", "jump"), [("layer", False), ("batch", True), ("none", False), ("unit", True)])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("kind", SOURCES)
def test_rounds_are_the_formula(graph, kind, residual, norm, jump):
    model = build(graph, SOURCES[kind], rounds=3, norm=norm, residual=residual, jump=jump).eval()
    x = FeatureTable(graph.x)

    with torch.no_grad():
        means = [weights(source, graph.n) for source in model.sources]
        h = torch.relu(torch.as_tensor(np.array(graph.x)).float() @ model.weight + model.bias)
        passed = [h]
        for round_, update in zip(model.rounds[:2], model.updates, strict=True):
            z = round_.norm(h) if residual else h
            read = update(torch.cat([z] + [mean @ z for mean in means], 1))
            h = h + torch.relu(read) if residual else torch.relu(round_.norm(read))
            passed.append(h)
        z = torch.cat(passed, 1) if jump else h
        z = model.rounds[2].norm(z) if residual else z
        expected = model.classifier(torch.cat([z] + [mean @ z for mean in means], 1))
        torch.testing.assert_close(model(x, torch.arange(graph.n)), expected, atol=1e-5, rtol=1e-4)
        some = torch.tensor([7, 3])
        torch.testing.assert_close(model(x, some), expected[some], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("ego", [False, True])
def test_the_sum_takes_the_scores_as_they_are(graph, rounds, ego):
    model = build(graph, SOURCES["one"], rounds=rounds, aggregate="sum", mean_ego=ego, readout=("mean",), norm="none")
    index, score = model.eval().sources[0](torch.arange(graph.n))
    step = torch.zeros(graph.n, graph.n)
    for v, j in (index >= 0).nonzero().tolist():
        step[v, index[v, j]] = score[v, j] if j or ego else 0
    with torch.no_grad():
        h = torch.relu(torch.as_tensor(np.array(graph.x)).float() @ model.weight + model.bias)
        for update in model.updates:
            h = h + torch.relu(update(step @ h))
        logits = model(FeatureTable(graph.x), torch.arange(graph.n))
        torch.testing.assert_close(logits, model.classifier(step @ h), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("kind", SOURCES)
def test_chunks_change_neither_logits_nor_gradients(graph, monkeypatch, kind, residual):
    results = []
    for chunk in (1 << 16, 17):
        monkeypatch.setattr(module, "CHUNK", chunk)
        shape = {"rounds": 3, "readout": ("ego", "mean", "mixer"), "jump": True, "residual": residual, "norm": "batch"}
        model = build(graph, SOURCES[kind], dropout=0.0, input_dropout=0.0, **shape)
        logits = model(FeatureTable(graph.x), torch.arange(graph.n))
        logits.square().sum().backward()
        results.append([logits.detach()] + [p.grad for p in model.parameters() if p.grad is not None])
    assert len(results[0]) > 10
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-3)


def test_patches_that_are_mostly_empty_are_read_as_a_sparse_matrix(graph, monkeypatch):
    sources = (Hop(size=60), PPR(size=4))  # 60 positions of which few are filled, and 4 that all are
    model = build(graph, sources, readout=("ego", "mean")).eval()
    assert model.reads_all(graph.n)
    assert not build(graph, sources[1:], readout=("ego", "mean")).reads_all(graph.n)
    x, nodes = FeatureTable(graph.x), torch.arange(10)
    with torch.no_grad():
        product = model(x, nodes)
        monkeypatch.setattr(module, "_SPARSE", 0.0)
        assert not model.reads_all(graph.n)
        torch.testing.assert_close(model(x, nodes), product, atol=1e-5, rtol=1e-4)


def test_one_round_has_no_norm_and_no_update(graph):
    model = build(graph, SOURCES["one"], norm="batch")
    assert isinstance(model.rounds[0].norm, torch.nn.Identity)
    assert len(model.updates) == 0


# ------------------------------------------------------------------------------------------------ labels


def labels_of(graph, train):
    labels = torch.full((graph.n,), -1)
    labels[train.copy()] = torch.as_tensor(np.array(graph.labels())[train]).long()
    return labels


@pytest.mark.parametrize("rounds", [1, 3])
def test_labels_are_the_histogram_of_the_other_members(graph, rounds):
    train = np.arange(0, 60, 2)
    labels = labels_of(graph, train)
    model = build(graph, SOURCES["two"], labels, rounds=rounds, readout=("ego", "mean", "labels")).eval()
    with torch.no_grad():
        one_hot = F.one_hot(labels + 1, 3)[:, 1:].float()
        histogram = torch.cat([weights(source, graph.n) @ one_hot for source in model.sources], 1)
        h = model.encode(FeatureTable(graph.x))
        views = model._views(torch.arange(graph.n))
        h = model.propagate(h, [[views]] * (rounds - 1)) if rounds > 1 else h
        plain = model.rounds[-1](model.rounds[-1].norm(h), views)
        expected = model.classifier(torch.cat([plain, histogram], 1))
        torch.testing.assert_close(model(FeatureTable(graph.x), torch.arange(graph.n)), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_own_label_never_reaches_the_prediction(graph, rounds):
    labels = labels_of(graph, np.arange(60))
    x, nodes = FeatureTable(graph.x), torch.arange(60)
    options = {"readout": ("ego", "mean", "labels"), "mean_ego": True, "aggregate": "sum"}
    model = build(graph, SOURCES["two"], labels, rounds=rounds, **options).eval()
    with torch.no_grad():
        before = model(x, nodes)
        for v in (0, 11, 42):
            model.labels = labels.clone()
            model.labels[v] = 1 - model.labels[v]
            after = model(x, nodes)
            torch.testing.assert_close(after[v], before[v], atol=0, rtol=0)
            assert (after != before).any(), "other nodes do read it"


def test_a_step_sees_no_label_of_its_targets(graph):
    labels = labels_of(graph, np.arange(60))
    model = build(graph, SOURCES["one"], labels, readout=("ego", "mean", "labels"), dropout=0.0, input_dropout=0.0)
    targets = torch.arange(0, 60, 2)
    known = model.fetch(FeatureTable(graph.x), targets).labels
    model.labels = labels.clone()
    model.labels[targets] = 1 - model.labels[targets]
    torch.testing.assert_close(model.fetch(FeatureTable(graph.x), targets).labels, known, atol=0, rtol=0)
    # as many labels as there were, in the mean: half of them, doubled
    assert float(known.sum()) == pytest.approx(60)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("source", [Hop(size=12), Overlap(size=12, self_loops=True)], ids=["hop", "overlap"])
@pytest.mark.parametrize("kind", ["cliques", "random"])
def test_random_labels_without_features_cannot_be_learned(kind, source, rounds):
    """In a clique the other labels are the total minus the own one: leaving out the own label alone would leak it."""
    rng = np.random.default_rng(1)
    n, size = 240, 12
    if kind == "cliques":
        pairs = [(i, j) for c in range(0, n, size) for i in range(c, c + size) for j in range(c, c + size) if i != j]
    else:
        pairs = [tuple(pair) for pair in rng.integers(0, n, (3 * n, 2)).tolist() if pair[0] != pair[1]]
        pairs = sorted({*pairs, *((j, i) for i, j in pairs)})
    y = rng.integers(0, 2, n)
    graph = Graph.from_edge_index(np.array(pairs).T, x=np.ones((n, 1), np.float32), y=y, num_nodes=n)
    order = rng.permutation(n)
    split = Split(np.sort(order[:120]), np.sort(order[120:]), np.array([], int))
    model = build(graph, (source,), labels_of(graph, split.train), rounds=rounds, readout=("ego", "mean", "labels"))
    run = train(
        model, FeatureTable(graph.x), y, split, TrainConfig(epochs=200, patience=200, weight_decay=0.0, lr=0.02)
    )
    share = y[split.train].mean()
    entropy = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    assert np.mean([figures["train_loss"] for figures in run.history[-50:]]) > entropy - 0.03
    accuracy = np.mean([figures["val_accuracy"] for figures in run.history])
    assert abs(accuracy - 0.5) < 3 * 0.5 / np.sqrt(120)


def test_labels_help_where_the_features_say_nothing():
    graph = csbm(phi=1.0, n=400, features=4)
    graph = graph.with_features(np.ones((400, 1), np.float32))
    split = graph.splits[0]
    results = {}
    for readout in (("ego", "mean"), ("ego", "mean", "labels")):
        labels = labels_of(graph, split.train) if "labels" in readout else None
        model = build(graph, (PPR(size=32, c=0.9),), labels, readout=readout, dropout=0.2)
        results[readout] = fit(model, FeatureTable(graph.x), graph.labels(), split, TrainConfig(epochs=150, lr=0.02))
    assert results["ego", "mean"].val_accuracy < 0.65
    assert results["ego", "mean", "labels"].val_accuracy > 0.8


def test_a_class_without_training_labels_and_a_graph_without_edges(graph):
    train = np.flatnonzero(np.array(graph.labels()) == 0)[:5]
    options = {"rounds": 3, "norm": "batch", "readout": ("ego", "mean", "labels")}
    model = build(graph, SOURCES["two"], labels_of(graph, train), **options)
    assert torch.isfinite(model(FeatureTable(graph.x), torch.from_numpy(train))).all()
    with pytest.warns(InputWarning, match="no edges"):
        lone = Graph.from_edge_index(np.zeros((2, 0), int), x=graph.x, y=graph.labels(), num_nodes=60)
    model = build(lone, (Hop(size=4),), labels_of(lone, train), **options)
    assert torch.isfinite(model(FeatureTable(lone.x), torch.arange(60))).all()
    with pytest.raises(InputError, match="needs the labels of the members"):
        model.classify(torch.zeros(60, 8), model._views(torch.arange(60)))


def test_bad_settings_are_named(graph):
    with pytest.raises(InputError, match="some of ego, mean, mixer, and labels beside them, got labels"):
        ModelConfig(readout=("labels",))
    with pytest.raises(InputError, match="norm must be one of none, layer, batch, unit, got 'group'"):
        ModelConfig(norm="group")
    with pytest.raises(InputError, match="rounds must be at least 1, got 0"):
        ModelConfig(rounds=0)
    with pytest.raises(InputError, match="needs the training labels"):
        build(graph, SOURCES["one"], readout=("mean", "labels"))


@pytest.mark.parametrize("readout", [("ego",), ("mean", "mixer"), ("ego", "mean", "mixer", "labels")])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rounds": 3},
        {"rounds": 3, "jump": True, "norm": "none", "layers": 3},
        {"rounds": 3, "jump": True, "residual": False},
        {"mixer_hidden": None, "head_layers": 2},
        {"rounds": 2, "selection": True},
        {"rounds": 3, "selection": True, "jump": True, "norm": "unit", "residual": False},
    ],
)
def test_parameters_are_counted_before_the_model_is_built(graph, readout, options):
    labels = labels_of(graph, np.arange(20))
    model = build(graph, SOURCES["two"], labels, readout=readout, **options)
    sizes = [source.size for source in model.sources]
    columns = len(sizes) * graph.num_classes * ("labels" in readout)
    counted = count_parameters(model.config, sizes, graph.num_features, graph.num_classes, columns)
    assert counted == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ["hidden", "mixer_hidden", "layers", "rounds"])
def test_a_model_that_cannot_fit_is_refused_before_it_is_built(graph, name):
    with pytest.raises(InputError, match=r"parameters would take about .* GiB of memory, and .* GiB are free; lower"):
        build(graph, SOURCES["one"], readout=("ego", "mixer"), **{name: 10**12})


def test_what_training_takes_is_checked_too(graph):
    model = build(graph, SOURCES["one"])
    with pytest.raises(InputError, match=r"training .* parameters on 1,000,000,000,000 nodes at once would take about"):
        model.check_training_memory(10**12)
    model.check_training_memory(graph.n)
