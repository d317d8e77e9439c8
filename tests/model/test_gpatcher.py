"""The model against the literal form of Algorithm 1: gather [n, p, d] first, then mix."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.gpatcher import PATHS, GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.model.mixer import MixerBlock, PatchMixer
from gpatcher.patches.base import FixedPatches, Patches
from gpatcher.patches.extract import extract_patches
from gpatcher.patches.spectral import PairProducts, SpectralPatches
from gpatcher.spectral.filters import Adaptive
from gpatcher.spectral.spectrum import graph_spectrum

N, D, CLASSES, P = 30, 7, 3, 6
COMBINATIONS = [c for r in (1, 2, 3) for c in itertools.combinations(PATHS, r)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


def make_graph(n=N, isolated=2, seed=0):
    """A random tree and some more edges; the last nodes have none."""
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(0, v)), v) for v in range(1, n - isolated)}
    more = np.sort(rng.integers(0, n - isolated, (n, 2)), 1).tolist()
    half = np.array(sorted(pairs | {tuple(p) for p in more if p[0] != p[1]})).T
    x = rng.normal(size=(n, D)).astype(np.float32)
    return Graph.from_edge_index(np.hstack([half, half[::-1]]), x=x, y=np.arange(n) % CLASSES)


def make_source(graph, kind, size=P):
    if kind == "fixed":
        return FixedPatches(extract_patches(graph, "ppr", size))
    filter = Adaptive(K=4, bands=8)
    return SpectralPatches(PairProducts.build(graph_spectrum(graph), filter, 64), filter, size)


def make_model(graph, kind="fixed", seed=0, **options):
    torch.manual_seed(seed)
    return GPatcher(make_source(graph, kind), D, CLASSES, **{"hidden": 8, "mixer_hidden": 5, **options})


def literal(model, x, nodes):
    """Algorithm 1 as printed: build every patch from raw features, then treat its rows one by one."""
    x = torch.as_tensor(x)
    index, score = model.patches(nodes)
    real = index >= 0
    raw = torch.stack([torch.stack([x[u] if u >= 0 else torch.zeros(D) for u in row]) for row in index.tolist()])
    assert raw.shape == (len(nodes), index.shape[1], D)  # [n, p, d]
    rows = torch.relu(raw @ model.weight + model.bias)  # the first feature mixing, row by row
    parts = {"ego": rows[:, 0]}
    weight = score.clone()
    if not model.mean_ego:
        weight[:, 0] = 0
    total = weight.abs().sum(1, keepdim=True)
    weight = torch.where(total > 0, weight / torch.where(total > 0, total, 1.0), 0.0)
    parts["mean"] = (rows * weight[..., None]).sum(1)
    if "mixer" in model.paths:
        scale = score * real.sum(1, keepdim=True) / score.abs().sum(1, keepdim=True)
        z = model.rows(rows) * scale[..., None]
        z = torch.where(real[..., None], z, 0.0)
        z = model.mixer.blocks(z)
        mean = torch.stack([row[:k].mean(0) for row, k in zip(z, real.sum(1).tolist(), strict=True)])
        parts["mixer"] = model.mixer.norm(mean)
    gates = {"ego": model.gates["ego"], "mean": 1.0, "mixer": model.gates["mixer"]}
    return model.classifier(torch.cat([gates[path] * parts[path] for path in model.paths], 1))


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
@pytest.mark.parametrize("paths", COMBINATIONS, ids="+".join)
def test_encoding_before_the_gather_gives_the_numbers_of_the_literal_form(kind, paths):
    graph = make_graph()
    model = make_model(graph, kind, paths=paths, ego_gate=0.7, mixer_gate=0.3).eval()
    nodes = torch.arange(N)
    with torch.no_grad():
        expected = literal(model, graph.x, nodes)
        found = model(FeatureTable(graph.x), nodes)
    assert found.shape == (N, CLASSES)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"mean_ego": True},
        {"skip": False},
        {"layers": 1},
        {"layers": 3},
        {"head_layers": 2},
        {"mixer_hidden": None},
        {"paths": ("mixer",), "skip": False, "head_layers": 2, "mixer_hidden": None},  # the paper's plain reading
    ],
    ids=str,
)
def test_options_of_the_literal_form(options):
    graph = make_graph()
    model = make_model(graph, **options).eval()
    nodes = torch.tensor([4, 0, 29])
    with torch.no_grad():
        np.testing.assert_allclose(model(FeatureTable(graph.x), nodes), literal(model, graph.x, nodes), atol=2e-5)


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
def test_a_small_batch_gives_the_numbers_of_the_whole(kind):
    graph = make_graph()
    model = make_model(graph, kind).eval()
    x = FeatureTable(graph.x)
    with torch.no_grad():
        whole = model(x, torch.arange(N))
        for part in ([3], [29], [7, 7, 2], [11, 28, 0]):
            assert len(part) * P < N  # the way that encodes only the rows it meets
            np.testing.assert_allclose(model(x, torch.tensor(part)), whole[part], atol=2e-6)


def test_a_small_batch_encodes_only_the_nodes_it_meets():
    graph = make_graph()
    model = make_model(graph).eval()
    seen = []
    encode = model.encode
    model.encode = lambda x: seen.append(x.shape[0]) or encode(x)
    model(FeatureTable(graph.x), torch.tensor([28]))  # without neighbours; padding meets node 0
    model(FeatureTable(graph.x), torch.arange(N))
    assert seen == [2, N]


# ---------------------------------------------------------------------------------------------- padding


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
@pytest.mark.parametrize("other", [0, N - 1, 5])
def test_padding_lets_no_other_node_in(kind, other):
    graph = make_graph()
    alone = N - 2  # has no neighbours: all places but the first are padding
    model = make_model(graph, kind).eval()
    nodes = torch.tensor([alone])
    index, score = model.patches(nodes)
    assert index[0].tolist() == [alone] + [-1] * (P - 1)
    assert score[0, 1:].tolist() == [0] * (P - 1)
    changed = graph.x.copy()
    changed[other] += 100.0
    with torch.no_grad():
        for part in (nodes, torch.arange(N)):
            before, after = (model(FeatureTable(x), part)[part == alone] for x in (graph.x, changed))
            np.testing.assert_array_equal(before, after)


def test_places_beyond_the_graph_are_padding_too():
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], x=np.eye(3, D, dtype=np.float32), y=[0, 1, 2])
    for kind in ("fixed", "learnable"):
        torch.manual_seed(0)
        model = GPatcher(make_source(graph, kind, size=8), D, CLASSES, hidden=8).eval()
        index, _ = model.patches(torch.arange(3))
        assert index.shape == (3, 8)
        assert (index[:, 3:] == -1).all()
        with torch.no_grad():
            np.testing.assert_allclose(
                model(FeatureTable(graph.x), torch.arange(3)), literal(model, graph.x, torch.arange(3)), atol=1e-5
            )


def test_members_of_a_patch_do_count():
    """The counterpart: features of a member change the logits."""
    graph = make_graph()
    model = make_model(graph).eval()
    member = int(model.patches(torch.tensor([4]))[0][0, 1])
    changed = graph.x.copy()
    changed[member] += 1.0
    with torch.no_grad():
        before, after = (model(FeatureTable(x), torch.tensor([4])) for x in (graph.x, changed))
    assert (before - after).abs().max() > 1e-4


# ------------------------------------------------------------------------------------------------ mixer


def test_token_mlp_is_over_places_and_channel_mlp_over_features():
    block = MixerBlock(size=4, dim=9, dropout=0.0, skip=True, first=False)
    assert [m.weight.shape for m in block.token_mlp if isinstance(m, torch.nn.Linear)] == [(4, 4), (4, 4)]
    assert [m.weight.shape for m in block.channel_mlp if isinstance(m, torch.nn.Linear)] == [(9, 9), (9, 9)]
    assert MixerBlock(4, 9, 0.0, True, first=True).channel_mlp is None


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_block_is_its_formula(skip, first):
    torch.manual_seed(0)
    block = MixerBlock(size=4, dim=9, dropout=0.5, skip=skip, first=first).eval()
    z = torch.randn(5, 4, 9)

    def mlp(m, t):  # over the last axis
        return F.gelu(t @ m[0].weight.T + m[0].bias) @ m[3].weight.T + m[3].bias

    def add(t, mixed):
        return t + mixed if skip else F.gelu(mixed)

    expected = z
    if not first:
        expected = add(expected, mlp(block.channel_mlp, F.layer_norm(expected, (9,))))
    rows = expected if first else F.layer_norm(expected, (9,))
    mixed = torch.stack([mlp(block.token_mlp, rows[..., f]) for f in range(9)], -1)  # each feature over the places
    np.testing.assert_allclose(block(z).detach(), add(expected, mixed).detach(), atol=1e-5)


def test_one_place_reaches_another_only_by_the_token_mlp():
    torch.manual_seed(0)
    block = MixerBlock(size=4, dim=9, dropout=0.0, skip=True, first=False).eval()
    z = torch.randn(1, 4, 9)
    moved = z.clone()
    moved[0, 2] += torch.randn(9)
    assert (block(z) - block(moved))[0, 0].abs().max() > 1e-4
    for p in block.token_mlp.parameters():
        p.data.zero_()
    assert (block(z) - block(moved))[0, [0, 1, 3]].abs().max() == 0


def test_the_mean_of_a_patch_is_over_the_places_that_are_taken():
    torch.manual_seed(0)
    mixer = PatchMixer(size=4, dim=6, layers=2).eval()
    z = torch.randn(2, 4, 6)
    there = torch.tensor([[1.0, 1, 0, 0], [1, 1, 1, 1]])
    mixed = mixer.blocks(z)
    expected = mixer.norm(torch.stack([mixed[0, :2].mean(0), mixed[1].mean(0)]))
    np.testing.assert_allclose(mixer(z, there).detach(), expected.detach(), atol=1e-6)


# -------------------------------------------------------------------------------------------- contracts


@pytest.mark.parametrize(
    ("kind", "paths"),
    # the node itself says nothing about the filter
    [(k, c) for k in ("fixed", "learnable") for c in COMBINATIONS if (k, c) != ("learnable", ("ego",))],
    ids=lambda v: v if isinstance(v, str) else "+".join(v),
)
@pytest.mark.parametrize("skip", [True, False])
def test_gradient_reaches_every_parameter(kind, paths, skip):
    graph = make_graph()
    model = make_model(graph, kind, paths=paths, skip=skip, dropout=0.0, input_dropout=0.0)
    logits = model(FeatureTable(graph.x), torch.arange(N))
    F.cross_entropy(logits, torch.as_tensor(np.array(graph.y))).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert torch.isfinite(p.grad).all(), name
        assert p.grad.abs().max() > 0, name
    if kind == "learnable":
        assert (model.patches.filter.weight.grad != 0).float().mean() > 0.5


def test_an_isolated_node_has_no_mean_and_no_nan():
    graph = make_graph()
    for kind in ("fixed", "learnable"):
        model = make_model(graph, kind, paths=("mean",))
        logits = model(FeatureTable(graph.x), torch.tensor([N - 1]))
        np.testing.assert_allclose(logits.detach()[0], model.classifier.bias.detach(), atol=1e-6)
        logits.sum().backward()
        assert model.weight.grad.abs().max() == 0


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
def test_same_seed_same_numbers(kind):
    graph = make_graph()
    x = FeatureTable(graph.x)

    def draw(seed):
        model = make_model(graph, kind, seed=seed).train()
        torch.manual_seed(seed)
        return model(x, torch.arange(N)).detach()

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


def test_dropout_acts_in_training_only():
    graph = make_graph()
    x = FeatureTable(graph.x)
    model = make_model(graph)
    nodes = torch.arange(N)
    assert not torch.equal(model.train()(x, nodes), model(x, nodes))
    model.eval()
    assert torch.equal(model(x, nodes), model(x, nodes))


def test_the_scale_of_the_scores_does_not_matter():
    graph = make_graph()
    patches = extract_patches(graph, "ppr", P)
    logits = []
    for factor in (1.0, 1e-3, 50.0):
        torch.manual_seed(0)
        source = FixedPatches(Patches(patches.index, patches.score * np.float32(factor)))
        model = GPatcher(source, D, CLASSES, hidden=8).eval()
        logits.append(model(FeatureTable(graph.x), torch.arange(N)).detach())
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-5)
    np.testing.assert_allclose(logits[2], logits[0], atol=1e-5)


def test_gates_scale_their_paths():
    graph = make_graph()
    x = FeatureTable(graph.x)
    shut = make_model(graph, paths=("ego", "mixer"), mixer_gate=0.0).eval()
    ego_only = make_model(graph, paths=("ego",)).eval()
    with torch.no_grad():
        ego_only.weight.copy_(shut.weight)
        ego_only.bias.copy_(shut.bias)
        ego_only.classifier.weight.copy_(shut.classifier.weight[:, :8])
        ego_only.classifier.bias.copy_(shut.classifier.bias)
        np.testing.assert_allclose(shut(x, torch.arange(N)), ego_only(x, torch.arange(N)), atol=1e-6)


def test_parameter_groups_set_the_filter_apart():
    graph = make_graph()
    model = make_model(graph, "learnable")
    rest, own = model.parameter_groups(0.01, 5e-4, 3.0)
    assert own["params"] == [model.patches.filter.weight]
    assert own["lr"] == pytest.approx(0.03)
    assert own["weight_decay"] == 0
    assert (rest["lr"], rest["weight_decay"]) == (0.01, 5e-4)
    assert len(rest["params"]) + 1 == len(list(model.parameters()))
    assert len(make_model(graph).parameter_groups(0.01, 0.0, 1.0)) == 1


def test_renewing_a_model_renews_its_patches():
    graph = make_graph()
    model = make_model(graph, "learnable")
    before = model.patches.patches().index.copy()
    with torch.no_grad():
        model.patches.filter.weight.copy_(torch.randn_like(model.patches.filter.weight))
    model.renew()
    assert (model.patches.patches().index != before).any()
    fixed = make_model(graph)
    before = fixed.patches.index.clone()
    fixed.renew()
    assert torch.equal(fixed.patches.index, before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"paths": ()}, "got none"),
        ({"paths": ("ego", "nonsense")}, "nonsense"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"head_layers": 3}, "head_layers must be 1 or 2, got 3"),
    ],
)
def test_impossible_models_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        make_model(make_graph(), **options)
