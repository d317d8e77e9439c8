"""The model against Algorithm 1 as printed: gather [n, p, d] first, then mix."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.config import READOUTS, ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.model.mixer import MixerBlock, PatchMixer
from gpatcher.patches import PPR, Patches, extract_patches
from gpatcher.patches.spectral import SpectralPatches, spectral_products
from gpatcher.spectral.filters import Adaptive
from gpatcher.spectral.spectrum import graph_spectrum
from gpatcher.training.loop import predict_logits

N, D, CLASSES, P = 30, 7, 3, 6
COMBINATIONS = [c for r in (1, 2, 3) for c in itertools.combinations(READOUTS, r)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


def make_graph(n=N, isolated=2, seed=0):
    """A random tree and more edges at random; the last nodes are isolated."""
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(0, v)), v) for v in range(1, n - isolated)}
    more = np.sort(rng.integers(0, n - isolated, (n, 2)), 1).tolist()
    half = np.array(sorted(pairs | {tuple(p) for p in more if p[0] != p[1]})).T
    x = rng.normal(size=(n, D)).astype(np.float32)
    return Graph.from_edge_index(np.hstack([half, half[::-1]]), x=x, y=np.arange(n) % CLASSES)


def make_source(graph, kind, size=P):
    if kind == "fixed":
        return extract_patches(graph, PPR(size=size)).source()
    filter = Adaptive(K=4, bands=8)
    return SpectralPatches(spectral_products(graph_spectrum(graph), filter, 64), filter, size)


def make_model(graph, kind="fixed", seed=0, **options):
    torch.manual_seed(seed)
    config = ModelConfig(**{"hidden": 8, "mixer_hidden": 5, **options})
    return GPatcher(make_source(graph, kind), D, CLASSES, config)


def as_printed(model, x, nodes):
    """Algorithm 1 as printed: build every patch from raw features, then treat its rows one by one."""
    x = torch.as_tensor(x)
    [source] = model.sources
    index, score = source(nodes)
    mask = index >= 0
    raw = torch.stack([torch.stack([x[u] if u >= 0 else torch.zeros(D) for u in row]) for row in index.tolist()])
    assert raw.shape == (len(nodes), index.shape[1], D)  # [n, p, d]
    rows = torch.relu(raw @ model.weight + model.bias)  # the first feature mixing, row by row
    parts = {"ego": rows[:, 0]}
    weight = score.clone()
    if not model.config.mean_ego:
        weight[:, 0] = 0
    total = weight.abs().sum(1, keepdim=True)
    weight = torch.where(total > 0, weight / torch.where(total > 0, total, 1.0), 0.0)
    parts["mean"] = (rows * weight[..., None]).sum(1)
    if "mixer" in model.config.readout:
        [mixer] = model.rounds[-1].mixers
        scale = score * mask.sum(1, keepdim=True) / score.abs().sum(1, keepdim=True)
        z = model.rounds[-1].rows(rows) * scale[..., None]
        z = torch.where(mask[..., None], z, 0.0)
        z = mixer.blocks(z)
        mean = torch.stack([row[:k].mean(0) for row, k in zip(z, mask.sum(1).tolist(), strict=True)])
        parts["mixer"] = mixer.norm(mean)
    gates = {"ego": model.config.ego_gate, "mean": 1.0, "mixer": model.config.mixer_gate}
    return model.classifier(torch.cat([gates[name] * parts[name] for name in model.config.readout], 1))


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
@pytest.mark.parametrize("readout", COMBINATIONS, ids="+".join)
def test_encoding_before_the_gather_equals_the_algorithm_as_printed(kind, readout):
    graph = make_graph()
    model = make_model(graph, kind, readout=readout, ego_gate=0.7, mixer_gate=0.3).eval()
    nodes = torch.arange(N)
    with torch.no_grad():
        expected = as_printed(model, graph.x, nodes)
        logits = model(FeatureTable(graph.x), nodes)
    assert logits.shape == (N, CLASSES)
    np.testing.assert_allclose(logits, expected, atol=2e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"mean_ego": True},
        {"skip": True},
        {"layers": 1},
        {"layers": 3},
        {"head_layers": 2},
        {"mixer_hidden": None},
        {"readout": ("mixer",), "skip": False, "head_layers": 2, "mixer_hidden": None},  # the paper's plain reading
    ],
    ids=str,
)
def test_options_of_the_algorithm_as_printed(options):
    graph = make_graph()
    model = make_model(graph, **options).eval()
    nodes = torch.tensor([4, 0, 29])
    with torch.no_grad():
        np.testing.assert_allclose(model(FeatureTable(graph.x), nodes), as_printed(model, graph.x, nodes), atol=2e-5)


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
def test_a_small_batch_equals_the_rows_of_the_whole(kind):
    graph = make_graph()
    model = make_model(graph, kind).eval()
    x = FeatureTable(graph.x)
    with torch.no_grad():
        whole = model(x, torch.arange(N))
        for part in ([3], [29], [7, 7, 2], [11, 28, 0]):
            assert len(part) * P < N  # small enough that only the members of patches are encoded
            np.testing.assert_allclose(model(x, torch.tensor(part)), whole[part], atol=2e-6)


def test_a_small_batch_encodes_only_the_members_of_its_patches():
    graph = make_graph()
    model = make_model(graph).eval()
    encoded = []
    encode = model.encode
    model.encode = lambda x, by_kernel: encoded.append(x.shape[0]) or encode(x, by_kernel)
    model(FeatureTable(graph.x), torch.tensor([28]))  # isolated; padding reads node 0
    model(FeatureTable(graph.x), torch.arange(N))
    assert encoded == [2, N]


@pytest.mark.parametrize("count", [4, N])  # the members of few patches, all nodes
@pytest.mark.parametrize("kind", ["fixed", "learnable"])
@pytest.mark.parametrize("readout", COMBINATIONS, ids="+".join)
def test_sparse_products_in_training_have_the_gradients_of_a_gather(readout, kind, count, monkeypatch):
    graph = make_graph()
    model = make_model(graph, kind, readout=readout, dropout=0.0, input_dropout=0.0, mean_ego=count == 4).train()
    x, nodes = FeatureTable(graph.x), torch.arange(N)[-count:]  # the last are isolated
    results = []
    for least in (1 << 40, 0):
        monkeypatch.setattr("gpatcher.model.gpatcher._PRODUCTS", least)
        batch = model.fetch(x, nodes)
        built = [batch.views[0].means is not None, batch.views[0].members is not None]
        assert built == [least == 0 and kind == "fixed" and name in readout for name in ("mean", "mixer")]
        model.zero_grad()
        logits = model(x, batch)
        (logits * torch.arange(1.0, 1 + logits.numel()).view_as(logits)).sum().backward()
        results.append([logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for gathered, product in zip(*results, strict=True):
        np.testing.assert_allclose(product, gathered, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
@pytest.mark.parametrize("readout", COMBINATIONS, ids="+".join)
def test_a_prediction_of_all_nodes_in_batches_encodes_each_node_once(kind, readout):
    graph = make_graph()
    model = make_model(graph, kind, readout=readout).eval()
    x = FeatureTable(graph.x)
    with torch.no_grad():
        whole = model(x, torch.arange(N))
    encoded = []
    encode = model.encode
    model.encode = lambda x, by_kernel: encoded.append(x.shape[0]) or encode(x, by_kernel)
    np.testing.assert_allclose(predict_logits(model, x, np.arange(N), 8), whole, atol=2e-6)
    assert encoded == [N]
    np.testing.assert_allclose(predict_logits(model, x, np.arange(4), 2), whole[:4], atol=2e-6)
    assert len(encoded) == 3  # few nodes: the members of their patches, batch by batch
    assert max(encoded[1:]) < N


# ------------------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize("kind", ["fixed", "learnable"])
@pytest.mark.parametrize("other", [0, N - 1, 5])
def test_padding_does_not_read_another_node(kind, other):
    graph = make_graph()
    alone = N - 2  # isolated: all positions but the first are padding
    model = make_model(graph, kind).eval()
    nodes = torch.tensor([alone])
    index, score = model.sources[0](nodes)
    assert index[0].tolist() == [alone] + [-1] * (P - 1)
    assert score[0, 1:].tolist() == [0] * (P - 1)
    changed = graph.x.copy()
    changed[other] += 100.0
    with torch.no_grad():
        for part in (nodes, torch.arange(N)):
            before, after = (model(FeatureTable(x), part)[part == alone] for x in (graph.x, changed))
            np.testing.assert_array_equal(before, after)


def test_positions_beyond_the_graph_are_padding_too():
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], x=np.eye(3, D, dtype=np.float32), y=[0, 1, 2])
    for kind in ("fixed", "learnable"):
        torch.manual_seed(0)
        model = GPatcher(make_source(graph, kind, size=8), D, CLASSES, ModelConfig(hidden=8)).eval()
        index, _ = model.sources[0](torch.arange(3))
        assert index.shape == (3, 8)
        assert (index[:, 3:] == -1).all()
        with torch.no_grad():
            np.testing.assert_allclose(
                model(FeatureTable(graph.x), torch.arange(3)), as_printed(model, graph.x, torch.arange(3)), atol=1e-5
            )


def test_members_of_a_patch_do_count():
    """The counterpart: features of a member change the logits."""
    graph = make_graph()
    model = make_model(graph).eval()
    member = int(model.sources[0](torch.tensor([4]))[0][0, 1])
    changed = graph.x.copy()
    changed[member] += 1.0
    with torch.no_grad():
        before, after = (model(FeatureTable(x), torch.tensor([4])) for x in (graph.x, changed))
    assert (before - after).abs().max() > 1e-4


# ------------------------------------------------------------------------------------------------ mixer


def test_token_mlp_is_over_positions_and_channel_mlp_over_features():
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
    mixed = torch.stack([mlp(block.token_mlp, rows[..., f]) for f in range(9)], -1)  # each feature over the positions
    np.testing.assert_allclose(block(z).detach(), add(expected, mixed).detach(), atol=1e-5)


def test_one_position_reaches_another_only_by_the_token_mlp():
    torch.manual_seed(0)
    block = MixerBlock(size=4, dim=9, dropout=0.0, skip=True, first=False).eval()
    z = torch.randn(1, 4, 9)
    moved = z.clone()
    moved[0, 2] += torch.randn(9)
    assert (block(z) - block(moved))[0, 0].abs().max() > 1e-4
    for p in block.token_mlp.parameters():
        p.data.zero_()
    assert (block(z) - block(moved))[0, [0, 1, 3]].abs().max() == 0


def test_the_mean_of_a_patch_is_over_positions_with_a_member():
    torch.manual_seed(0)
    mixer = PatchMixer(size=4, dim=6, layers=2).eval()
    z = torch.randn(2, 4, 6)
    mask = torch.tensor([[1.0, 1, 0, 0], [1, 1, 1, 1]])
    mixed = mixer.blocks(z)
    expected = mixer.norm(torch.stack([mixed[0, :2].mean(0), mixed[1].mean(0)]))
    np.testing.assert_allclose(mixer(z, mask).detach(), expected.detach(), atol=1e-6)


# ------------------------------------------------------------------------------------------------ contract


@pytest.mark.parametrize(
    ("kind", "readout"),
    # the node itself does not depend on the filter
    [(k, c) for k in ("fixed", "learnable") for c in COMBINATIONS if (k, c) != ("learnable", ("ego",))],
    ids=lambda v: v if isinstance(v, str) else "+".join(v),
)
@pytest.mark.parametrize("skip", [True, False])
def test_gradient_reaches_every_parameter(kind, readout, skip):
    graph = make_graph()
    model = make_model(graph, kind, readout=readout, skip=skip, dropout=0.0, input_dropout=0.0)
    logits = model(FeatureTable(graph.x), torch.arange(N))
    F.cross_entropy(logits, torch.as_tensor(np.array(graph.y))).backward()
    for name, p in model.named_parameters():
        assert torch.isfinite(p.grad).all(), name
        if skip and name.endswith("token_mlp.3.bias"):
            # with skip connections this bias shifts all channels alike, which every LayerNorm after it removes
            assert p.grad.abs().max() < 1e-6, name
        else:
            assert p.grad.abs().max() > 1e-5, name
    if kind == "learnable":
        assert (model.sources[0].filter.weight.grad != 0).float().mean() > 0.5


def test_an_isolated_node_has_no_mean_and_no_nan():
    graph = make_graph()
    for kind in ("fixed", "learnable"):
        model = make_model(graph, kind, readout=("mean",))
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
    patches = extract_patches(graph, PPR(size=P))
    logits = []
    for factor in (1.0, 1e-3, 50.0):
        torch.manual_seed(0)
        source = Patches(patches.index, patches.score * np.float32(factor)).source()
        model = GPatcher(source, D, CLASSES, ModelConfig(hidden=8)).eval()
        logits.append(model(FeatureTable(graph.x), torch.arange(N)).detach())
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-5)
    np.testing.assert_allclose(logits[2], logits[0], atol=1e-5)


def test_gates_scale_their_readouts():
    graph = make_graph()
    x = FeatureTable(graph.x)
    closed = make_model(graph, readout=("ego", "mixer"), mixer_gate=0.0).eval()
    ego_only = make_model(graph, readout=("ego",)).eval()
    with torch.no_grad():
        ego_only.weight.copy_(closed.weight)
        ego_only.bias.copy_(closed.bias)
        ego_only.classifier.weight.copy_(closed.classifier.weight[:, :8])
        ego_only.classifier.bias.copy_(closed.classifier.bias)
        np.testing.assert_allclose(closed(x, torch.arange(N)), ego_only(x, torch.arange(N)), atol=1e-6)


def test_the_filter_has_its_own_parameter_group():
    graph = make_graph()
    model = make_model(graph, "learnable")
    rest, filters = model.parameter_groups(0.01, 5e-4, 3.0)
    assert filters["params"] == [model.sources[0].filter.weight]
    assert filters["lr"] == pytest.approx(0.03)
    assert filters["weight_decay"] == 0
    assert (rest["lr"], rest["weight_decay"]) == (0.01, 5e-4)
    assert len(rest["params"]) + 1 == len(list(model.parameters()))
    assert len(make_model(graph).parameter_groups(0.01, 0.0, 1.0)) == 1


def test_reselecting_changes_learned_patches_only():
    graph = make_graph()
    model = make_model(graph, "learnable")
    [source] = model.sources
    before = source.patches().index.copy()
    with torch.no_grad():
        source.filter.weight.copy_(torch.randn_like(source.filter.weight))
    model.reselect()
    assert (source.patches().index != before).any()
    fixed = make_model(graph)
    before = fixed.sources[0].index.clone()
    fixed.reselect()
    assert torch.equal(fixed.sources[0].index, before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"readout": ()}, "got none"),
        ({"readout": ("ego", "nonsense")}, "nonsense"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"mixer_hidden": 0}, "mixer_hidden must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"input_dropout": -0.1}, r"input_dropout must lie in \[0, 1\), got -0.1"),
        ({"head_layers": 3}, "head_layers must be 1 or 2, got 3"),
    ],
)
def test_impossible_configurations_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        ModelConfig(**options)


def test_a_mixer_without_blocks_is_refused():
    with pytest.raises(InputError, match="layers must be at least 1, got 0"):
        PatchMixer(size=4, dim=6, layers=0)
