"""A model that reads patches from several sources: the node once, a mean and a mixed patch per source."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gpatcher.graph.graph import Graph
from gpatcher.model.config import READOUTS, ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.model.views import PatchView, split_views
from gpatcher.patches import PPR, AdaptiveFilter, HeatKernel, PolynomialFilter, SharedFilter
from gpatcher.patches.store import write_patches

N, D, CLASSES = 40, 7, 3
SEVERAL = {
    "two fixed": (PPR(size=4), HeatKernel(size=6, K=4)),
    "fixed and learned": (PPR(size=5), AdaptiveFilter(size=3, K=4)),
    "two learned": (PolynomialFilter(size=4, K=3, exact=True), SharedFilter(size=4, K=3)),
    "the same twice": (AdaptiveFilter(size=4, K=4), AdaptiveFilter(size=4, K=4)),
    "three": (PPR(size=3), PolynomialFilter(size=5, K=3, exact=False), HeatKernel(size=1, K=3)),
    "larger than the graph": (PPR(size=N + 5), AdaptiveFilter(size=N + 2, K=4)),
}
CONFIG = ModelConfig(hidden=8, mixer_hidden=5, dropout=0.0, input_dropout=0.0, ego_gate=0.7, mixer_gate=0.3)


@pytest.fixture(scope="module")
def graph():
    """A random tree and more edges at random; the last two nodes are isolated."""
    rng = np.random.default_rng(0)
    pairs = {(int(rng.integers(0, v)), v) for v in range(1, N - 2)}
    more = np.sort(rng.integers(0, N - 2, (N, 2)), 1).tolist()
    half = np.array(sorted(pairs | {tuple(p) for p in more if p[0] != p[1]})).T
    x = rng.normal(size=(N, D)).astype(np.float32)
    return Graph.from_edge_index(np.hstack([half, half[::-1]]), x=x, y=np.arange(N) % CLASSES)


@pytest.fixture(params=SEVERAL.values(), ids=SEVERAL)
def extractors(request):
    return request.param


def make_sources(graph, extractors):
    return [extractor.source(extractor.prepare(graph)) for extractor in extractors]


def make_model(graph, extractors, config=CONFIG, seed=0):
    sources = make_sources(graph, extractors)
    torch.manual_seed(seed)
    return GPatcher(sources, D, CLASSES, config)


def randomise(model, seed=1):
    """Move every weight, filters too, away from where it starts."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.reselect()


def gathered_first(model, x, nodes):
    """The logits with every patch of every source built from raw features, one node at a time."""
    x = torch.as_tensor(np.asarray(x))
    gates = {"ego": model.config.ego_gate, "mean": 1.0, "mixer": model.config.mixer_gate}
    readouts = []
    for node in nodes.tolist():
        parts = {"ego": [torch.relu(x[node] @ model.weight + model.bias)], "mean": [], "mixer": []}
        for number, source in enumerate(model.sources):
            index, score = (tensor[0] for tensor in source(torch.tensor([node])))
            mask = index >= 0
            h = torch.relu(x[index[mask]] @ model.weight + model.bias)
            weight = score[mask].clone()
            if not model.config.mean_ego:
                weight[0] = 0
            parts["mean"].append((weight / weight.abs().sum().clamp_min(1e-9)) @ h)
            if "mixer" in model.config.readout:
                rows = torch.zeros(len(index), model.config.mixer_hidden)
                scale = score[mask] * mask.sum() / score[mask].abs().sum().clamp_min(1e-9)
                rows[mask] = model.rounds[-1].rows(h) * scale[:, None]
                mixer = model.rounds[-1].mixers[number]
                parts["mixer"].append(mixer.norm(mixer.blocks(rows[None])[0][mask].mean(0)))
        read = [gates[name] * part for name in model.config.readout for part in parts[name]]
        if model.config.selection:
            weights = torch.exp(model.rounds[-1].selection)
            weights = weights / weights.sum()
            read = [
                weight * part / (part**2).sum().sqrt().clamp_min(1e-9)
                for weight, part in zip(weights, read, strict=True)
            ]
        readouts.append(torch.cat(read))
    return model.classifier(torch.stack(readouts))


# ------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("selection", [False, True])
@pytest.mark.parametrize("readout", [READOUTS, ("mean",), ("mixer", "ego")], ids="+".join)
def test_logits_are_those_of_patches_built_one_by_one(graph, extractors, readout, selection):
    config = ModelConfig(hidden=8, mixer_hidden=5, readout=readout, ego_gate=0.7, mixer_gate=0.3, selection=selection)
    model = make_model(graph, extractors, config).eval()
    randomise(model)
    nodes = torch.tensor([4, 0, N - 1, 17])
    with torch.no_grad():
        logits = model(FeatureTable(graph.x), nodes)
        assert logits.shape == (4, CLASSES)
        np.testing.assert_allclose(logits, gathered_first(model, graph.x, nodes), atol=2e-5)


def test_shapes(graph, extractors):
    model = make_model(graph, extractors)
    count = len(extractors)
    assert [source.size for source in model.sources] == [extractor.size for extractor in extractors]
    assert model.classifier.in_features == 8 + count * 8 + count * 5
    assert len(model.rounds[-1].mixers) == count
    batch = model.fetch(FeatureTable(graph.x), torch.tensor([3, 3, N - 1]))
    assert len(batch.views) == count
    for view, extractor in zip(batch.views, extractors, strict=True):
        for tensor in (view.index, view.score, view.mask):
            assert tensor.shape == (3, extractor.size)
        assert view.mask[2].tolist() == [1.0] + [0.0] * (extractor.size - 1), "an isolated node"
    assert model(FeatureTable(graph.x), batch).shape == (3, CLASSES)


@pytest.mark.parametrize(("head_layers", "selection"), [(1, False), (1, True), (2, False)])
@pytest.mark.parametrize("skip", [True, False])
def test_gradient_reaches_every_parameter(graph, extractors, head_layers, selection, skip):
    size = {"hidden": 8, "mixer_hidden": 5, "head_layers": head_layers}
    config = ModelConfig(**size, dropout=0.0, input_dropout=0.0, selection=selection, skip=skip)
    model = make_model(graph, extractors, config)
    logits = model(FeatureTable(graph.x), torch.arange(N))
    F.cross_entropy(logits, torch.as_tensor(np.array(graph.y))).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        if skip and name.endswith("token_mlp.3.bias"):  # see tests/model/test_gpatcher.py
            assert parameter.grad.abs().max() < 1e-6, name
        else:
            assert parameter.grad.abs().max() > (1e-6 if selection else 1e-5), name


@pytest.mark.parametrize("extractor", [PPR(size=5), AdaptiveFilter(size=5, K=4)], ids=["fixed", "learned"])
def test_selection_starts_equal_has_no_weight_decay_and_reads_unit_rows(graph, extractor):
    config = ModelConfig(hidden=8, mixer_hidden=5, readout=("ego", "mean"), selection=True)
    model = make_model(graph, [extractor], config).eval()
    [round_] = model.rounds
    h = model.encode(FeatureTable(graph.x)).detach()
    index, score = model.sources[0](torch.arange(N))
    view = PatchView(index.clamp_min(0), score, (index >= 0).float())
    read = round_(h, [view]).view(N, 2, 8).norm(dim=2)
    np.testing.assert_allclose(read[:-2].detach(), 0.5, atol=1e-6)
    np.testing.assert_allclose(read[-2:].detach(), [[0.5, 0.0]] * 2, atol=1e-6)  # isolated: nothing to read
    groups = model.parameter_groups(0.01, 0.1, 0.5)
    [decay] = {group["weight_decay"] for group in groups for p in group["params"] if p is round_.selection}
    assert decay == 0
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(map(id, model.parameters()))


def test_consecutive_nodes_are_read_as_a_slice_with_the_same_gradient():
    h, grad = torch.randn(9, 4, requires_grad=True), torch.randn(5, 4)
    index = torch.stack([torch.arange(3, 8), torch.randint(9, (5,))], 1)
    gathered = PatchView(index, torch.ones(5, 2), torch.ones(5, 2))
    sliced = dataclasses.replace(gathered, first=3)
    assert torch.equal(sliced.ego(h), gathered.ego(h))
    (expected,), (got,) = (torch.autograd.grad(view.ego(h), h, grad) for view in (gathered, sliced))
    assert torch.equal(got, expected)


@pytest.mark.parametrize("extractor", [PPR(size=5), AdaptiveFilter(size=5, K=4)], ids=["fixed", "learned"])
def test_one_source_in_a_list_is_the_model_of_that_source(graph, extractor):
    [source] = make_sources(graph, [extractor])
    x, nodes = FeatureTable(graph.x), torch.arange(N)
    torch.manual_seed(0)
    alone = GPatcher(source, D, CLASSES, CONFIG).eval()
    listed = [make_model(graph, [extractor]).eval(), make_model(graph, (extractor,)).eval()]
    for model in listed:
        assert list(model.state_dict()) == list(alone.state_dict())
        for name, value in model.state_dict().items():
            assert torch.equal(value, alone.state_dict()[name]), name
        assert torch.equal(model(x, nodes), alone(x, nodes))


def test_without_weights_on_the_second_source_the_model_is_that_of_the_first(graph):
    one = make_model(graph, [PPR(size=4)]).eval()
    two = make_model(graph, [PPR(size=4), HeatKernel(size=6, K=4)]).eval()
    state = two.state_dict()
    for name, value in one.state_dict().items():
        if name != "classifier.weight":
            state[name].copy_(value)
    # the classifier reads ego (8), two means (8 each), two mixed patches (5 each)
    weight = one.classifier.weight.detach()
    zeros = torch.zeros(CLASSES, 8)
    state["classifier.weight"].copy_(
        torch.cat([weight[:, :8], weight[:, 8:16], zeros, weight[:, 16:], zeros[:, :5]], 1)
    )
    x, nodes = FeatureTable(graph.x), torch.arange(N)
    with torch.no_grad():
        np.testing.assert_allclose(two(x, nodes), one(x, nodes), atol=1e-6)


def test_each_source_reaches_the_logits(graph, extractors):
    """A change to the scores of any one source changes the logits of a node that has neighbours."""
    extractors = [extractor for extractor in extractors if extractor.size > 1]  # a patch of one has no neighbour
    model = make_model(graph, extractors).eval()
    x = FeatureTable(graph.x)
    with torch.no_grad():
        batch = model.fetch(x, torch.tensor([4]))
        h = model.encode(batch.x)
        before = model.classify(h, batch.views)
        for changed in range(len(extractors)):
            views = list(batch.views)
            view = views[changed]
            score = view.score.clone()
            score[:, 1] *= 3
            views[changed] = type(view)(view.index, score, view.mask)
            assert (model.classify(h, views) - before).abs().max() > 1e-5, changed


# ------------------------------------------------------------------------------------------------ batches


def test_a_small_batch_equals_the_rows_of_the_whole(graph, extractors):
    model = make_model(graph, extractors).eval()
    randomise(model)
    x = FeatureTable(graph.x)
    with torch.no_grad():
        whole = model(x, torch.arange(N))
        for part in ([3], [N - 1], [7, 7, 2], list(range(N))[::-1]):
            nodes = torch.tensor(part)
            np.testing.assert_allclose(model(x, nodes), whole[part], atol=5e-6)
            np.testing.assert_allclose(model(x, model.fetch(x, nodes)), whole[part], atol=5e-6)


def test_a_batch_holds_the_distinct_members_of_all_sources(graph):
    model = make_model(graph, SEVERAL["three"])
    x = FeatureTable(graph.x)
    nodes = torch.tensor([4, 4])
    batch = model.fetch(x, nodes)
    members = np.unique(np.concatenate([np.maximum(source(nodes)[0], 0).ravel() for source in model.sources]))
    assert batch.x.shape == (len(members), D)
    for view, source in zip(batch.views, model.sources, strict=True):
        index, score = source(nodes)
        np.testing.assert_array_equal(members[view.index], np.maximum(index, 0))
        np.testing.assert_array_equal(view.mask, index >= 0)
        np.testing.assert_array_equal(view.score.detach(), score.detach())
    np.testing.assert_array_equal(batch.x.rows(torch.arange(len(members))), graph.x[members])
    assert model.fetch(x, torch.arange(N)).x is x, "a large batch encodes all nodes"


def test_memory_mapped_features_and_stored_patches_give_the_same_logits(graph, tmp_path):
    np.save(tmp_path / "x.npy", graph.x)
    mapped = FeatureTable(np.load(tmp_path / "x.npy", mmap_mode="r"))
    extractors = (PPR(size=4), HeatKernel(size=6, K=4))
    model = make_model(graph, extractors).eval()
    torch.manual_seed(0)
    table = write_patches(graph, tmp_path / "patches", extractors[0], shard=16)
    stored = GPatcher([table.source(), *make_sources(graph, extractors[1:])], D, CLASSES, CONFIG).eval()
    stored.load_state_dict(model.state_dict())
    with torch.no_grad():
        for nodes in (torch.tensor([5, 0]), torch.arange(N)):
            np.testing.assert_allclose(stored(mapped, nodes), model(FeatureTable(graph.x), nodes), atol=1e-6)


def test_gradients_of_batches_add_up_to_that_of_all(graph, extractors):
    model = make_model(graph, extractors)
    x, y = FeatureTable(graph.x), torch.as_tensor(np.array(graph.y))
    nodes = torch.randperm(N, generator=torch.Generator().manual_seed(0))

    def gradients(parts):
        model.zero_grad()
        for part in parts:
            (F.cross_entropy(model(x, part), y[part]) * len(part) / N).backward()
        return torch.cat([parameter.grad.ravel() for parameter in model.parameters()])

    np.testing.assert_allclose(gradients(nodes.split(3)), gradients([nodes]), atol=2e-6)


def test_views_are_split_by_the_sizes_of_their_sources():
    index = torch.arange(10).view(2, 5)
    score, mask = index / 10, torch.ones(2, 5)
    one, two = split_views(index, score, mask, [2, 3])
    assert one.index.tolist() == [[0, 1], [5, 6]]
    assert two.index.tolist() == [[2, 3, 4], [7, 8, 9]]
    torch.testing.assert_close(two.score, two.index / 10)
    assert two.mask.shape == (2, 3)


# ------------------------------------------------------------------------------------------------ training


def test_only_fixed_sources_can_be_read_ahead(graph, extractors):
    model = make_model(graph, extractors)
    assert model.reads_ahead == all(isinstance(extractor, PPR | HeatKernel) for extractor in extractors)


def test_all_filters_are_in_one_parameter_group(graph):
    model = make_model(graph, SEVERAL["two learned"])
    rest, filters = model.parameter_groups(0.01, 5e-4, 3.0)
    assert [id(p) for p in filters["params"]] == [id(source.filter.weight) for source in model.sources]
    assert filters["lr"] == pytest.approx(0.03)
    assert filters["weight_decay"] == 0
    assert len(rest["params"]) + 2 == len(list(model.parameters()))


def test_the_same_extractor_twice_learns_two_filters(graph):
    model = make_model(graph, SEVERAL["the same twice"])
    one, two = (source.filter.weight for source in model.sources)
    assert one is not two
    F.cross_entropy(model(FeatureTable(graph.x), torch.arange(N)), torch.as_tensor(np.array(graph.y))).backward()
    assert not torch.equal(one.grad, two.grad)


def test_reselecting_reaches_every_learned_source(graph):
    model = make_model(graph, SEVERAL["two learned"])
    before = [source.patches().index.copy() for source in model.sources]
    with torch.no_grad():
        for source in model.sources:
            source.filter.weight.mul_(-1)
    for source, index in zip(model.sources, before, strict=True):
        assert np.array_equal(source.patches().index, index), "not before reselect"
    model.reselect()
    for source, index in zip(model.sources, before, strict=True):
        assert (source.patches().index != index).any()


def test_the_state_restores_weights_and_selections_of_all_sources(graph, extractors):
    model = make_model(graph, extractors).eval()
    randomise(model)
    fresh = make_model(graph, extractors, seed=7).eval()
    fresh.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    x, nodes = FeatureTable(graph.x), torch.arange(N)
    assert torch.equal(fresh(x, nodes), model(x, nodes))


def test_a_step_takes_more_memory_with_more_sources(graph):
    x = FeatureTable(graph.x)
    one = make_model(graph, [PPR(size=4)]).step_bytes(10, x)
    two = make_model(graph, [PPR(size=4), HeatKernel(size=4, K=4)]).step_bytes(10, x)
    wide = make_model(graph, [PPR(size=8)]).step_bytes(10, x)
    assert one < two == wide, "positions of all sources count alike"
