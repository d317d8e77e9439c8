"""Encoder and mixer by compiled kernels, against the modules."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gpatcher.graph.split import Split
from gpatcher.kernels.activations import normal_cdf, normal_density, random_words
from gpatcher.kernels.members import find_members
from gpatcher.kernels.product import add_product, transpose, write_product
from gpatcher.model import compiled
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import CHUNK, GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.model.mixer import PatchMixer
from gpatcher.model.views import PatchView
from gpatcher.patches.base import Patches
from gpatcher.training.loop import TrainConfig, fit, predict_logits


def make_patches(b=50, p=12, h=16, seed=0):
    """Rows, and a view of patches with empty positions and one without members."""
    torch.manual_seed(seed)
    rows = torch.randn(90, h, requires_grad=True)
    mask = (torch.rand(b, p) < 0.7).float()
    mask[0] = 0
    return rows, PatchView(torch.randint(90, (b, p)), torch.rand(b, p) * mask, mask)


def make_mixer(p, h, layers=2, skip=False, dropout=0.0):
    mixer = PatchMixer(p, h, layers, dropout, skip)
    for weight in mixer.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return mixer


def assert_close(one, other, relative=5e-5):
    """Compare with the largest value, since sums of many terms are rounded in another order."""
    if not other.numel():
        assert one.shape == other.shape
        return
    torch.testing.assert_close(one, other, rtol=0, atol=relative * (1 + float(other.abs().amax())))


# ------------------------------------------------------------------------------------------------ mixer


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(("p", "h", "layers"), [(12, 16, 2), (32, 16, 2), (5, 24, 3), (16, 7, 1), (1, 1, 2)])
def test_the_mixer_has_the_values_and_gradients_of_the_module(p, h, layers, skip):
    rows, view = make_patches(p=p, h=h)
    mixer = make_mixer(p, h, layers, skip)
    weight = torch.randn(len(view.mask), h)
    results = []
    for function in (lambda: mixer(view.gather(rows), view.mask), lambda: compiled.mix(mixer, view, rows)):
        mixer.zero_grad()
        rows.grad = None
        out = function()
        (out * weight).sum().backward()
        results.append([out.detach(), rows.grad, *(parameter.grad for parameter in mixer.parameters())])
    for module, kernel in zip(*results, strict=True):
        assert_close(kernel, module)
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        assert torch.equal(compiled.mix(mixer, view, rows), results[1][0])


def test_dropout_of_the_mixer_has_the_mean_of_many_masks_and_its_own_gradient():
    p, h = 8, 16
    _, view = make_patches(b=40_000, p=p, h=h)
    # one mixing of positions by which the dropped values are seen: 0.5 through both products
    mixer = make_mixer(p, h, layers=1, skip=True, dropout=0.25).train()
    first, _, _, second = mixer.blocks[0].token_mlp
    with torch.no_grad():
        first.weight.zero_(), first.bias.fill_(50.0)  # gelu(50) = 50
        second.weight.copy_(torch.eye(p)), second.bias.zero_()
        mixer.norm = torch.nn.Identity()
    rows = torch.zeros(90, h)
    view = PatchView(view.index, torch.ones_like(view.score), torch.ones_like(view.mask))
    torch.manual_seed(0)
    with torch.no_grad():
        out = compiled.mix(mixer, view, rows)  # the mean of p values that are 0 or 200 / 3
    kept = out.double() * p / (50 / 0.75)
    torch.testing.assert_close(kept, kept.round(), rtol=0, atol=1e-4)
    assert float(kept.mean()) == pytest.approx(0.75 * p, abs=0.01)
    assert float(kept.var()) == pytest.approx(0.75 * 0.25 * p, rel=0.01)
    for shift in (1, 2, 16):  # neither features nor patches are correlated
        centred = kept - 0.75 * p
        assert abs(float((centred.flatten()[shift:] * centred.flatten()[:-shift]).mean())) < 0.02


def test_the_gradient_is_that_of_the_mask_of_the_forward_pass():
    rows, view = make_patches(b=300, p=8, h=16)
    mixer = make_mixer(8, 16, dropout=0.5).train()
    direction = torch.randn_like(rows)

    def value(step):
        torch.manual_seed(3)
        return compiled.mix(mixer, view, rows + step * direction).double().square().mean()

    value(0.0).backward()
    with torch.no_grad():
        expected = (value(1e-2) - value(-1e-2)) / 2e-2
    assert (rows.grad * direction).sum().item() == pytest.approx(expected.item(), rel=2e-2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_stay_so(bad):
    rows, view = make_patches()
    node = int(view.index[7, 0])
    view.mask[7, 0] = view.score[7, 0] = 1.0
    with torch.no_grad():
        rows[node] = bad
        out = compiled.mix(make_mixer(12, 16), view, rows)
        assert not out[7].isfinite().any()
        encoded = compiled.encode(torch.tensor([[1.0, 2.0], [1.0, bad]]), torch.ones(2, 3), torch.zeros(3), 0.0, 0.0)
    assert encoded[0].tolist() == [3, 3, 3]
    assert encoded[1].isnan().all() if np.isnan(bad) else encoded[1].tolist() == [max(bad, 0)] * 3


# ------------------------------------------------------------------------------------------------ encoder


@pytest.mark.parametrize(("n", "d", "h"), [(100, 128, 64), (33, 5, 7), (1, 1, 1), (0, 3, 4)])
def test_the_encoder_has_the_values_and_gradients_of_the_module(n, d, h):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(n, d), torch.randn(d, h, requires_grad=True), torch.randn(h, requires_grad=True)
    results = []
    for out in (F.relu(x @ weight + bias), compiled.encode(x, weight, bias, 0.0, 0.0)):
        gradients = torch.autograd.grad((out * torch.arange(h)).sum(), (weight, bias))
        results.append([out.detach(), *gradients])
    for module, kernel in zip(*results, strict=True):
        assert_close(kernel, module)


def test_both_dropouts_of_the_encoder():
    torch.manual_seed(0)
    n, d, h = 20_000, 16, 16
    weight, bias = torch.eye(d).requires_grad_(), torch.zeros(h, requires_grad=True)
    out = compiled.encode(torch.ones(n, d), weight, bias, 0.5, 0.2)
    assert torch.unique(out.detach()).tolist() == pytest.approx([0, 2 / 0.8], rel=1e-5)  # p is exact to 2⁻¹⁶
    kept = (out.detach() != 0).float()
    assert float(kept.mean()) == pytest.approx(0.4, abs=5e-3)
    assert float(kept.var()) == pytest.approx(0.24, abs=5e-3)
    centred = kept.flatten() - 0.4
    for shift in (1, 2, 4, 16, 256):
        assert abs(float((centred[shift:] * centred[:-shift]).mean())) < 5e-3
    out.sum().backward()
    # the same masks in the backward pass
    torch.testing.assert_close(weight.grad.diagonal(), out.detach().sum(0), rtol=1e-5, atol=0)
    torch.testing.assert_close(bias.grad, kept.sum(0) / 0.8, rtol=1e-5, atol=0)


# ------------------------------------------------------------------------------------------------ members


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_members_are_sorted_and_found_at_their_positions(n):
    rng = np.random.default_rng(n)
    b, sizes = 20, np.array([7, 1, 4])
    index = rng.integers(0, n, b * sizes.sum())
    mask = (rng.random(index.size) < 0.6).astype(np.float32)
    rows = np.empty_like(index)
    nodes, starts, positions, patches, own = find_members(index, mask, sizes, n, rows)
    np.testing.assert_array_equal(nodes, np.unique(index[mask > 0]))
    np.testing.assert_array_equal(nodes[rows[mask > 0]], index[mask > 0])
    assert not rows[mask == 0].any()
    # patches of the first source, then of the second, ...
    patch = np.concatenate([s * b + np.repeat(np.arange(b), size) for s, size in enumerate(sizes)])
    for i, node in enumerate(nodes):
        found = positions[starts[i] : starts[i + 1]]
        np.testing.assert_array_equal(found, np.flatnonzero((index == node) & (mask > 0)))
        np.testing.assert_array_equal(patches[starts[i] : starts[i + 1]], patch[found])
        first = (found < b * sizes[0]) & (found % sizes[0] == 0)
        np.testing.assert_array_equal(own[starts[i] : starts[i + 1]], np.where(first, patch[found], -1))


def test_patches_without_members_have_no_nodes():
    nodes, starts, *places = find_members(np.zeros(6, int), np.zeros(6, np.float32), np.array([3]), 9, np.empty(6, int))
    assert nodes.size == 0
    assert starts.tolist() == [0]
    assert all(place.size == 0 for place in places)


# ------------------------------------------------------------------------------------------------ seeds and threads


def test_the_seed_decides_and_the_number_of_threads_does_not():
    rows, view = make_patches(b=1000)
    mixer = make_mixer(12, 16, dropout=0.5).train()
    x, weight, bias = torch.randn(3000, 9), torch.randn(9, 20, requires_grad=True), torch.zeros(20)

    def compute():
        mixed, encoded = compiled.mix(mixer, view, rows), compiled.encode(x, weight, bias, 0.5, 0.5)
        loss = mixed.square().sum() + encoded.square().sum()
        return [mixed, encoded, *torch.autograd.grad(loss, (weight, *mixer.blocks.parameters()))]

    threads = torch.get_num_threads()
    results = []
    try:
        for count, seed in ((1, 0), (2, 0), (3, 0), (1, 1)):
            torch.set_num_threads(count)
            torch.manual_seed(seed)
            results.append(compute())
    finally:
        torch.set_num_threads(threads)
    for other in results[1:3]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert not torch.equal(results[0][0], results[3][0])
    assert not torch.equal(results[0][1], results[3][1])


# ------------------------------------------------------------------------------------------------ the model


def make_model(n, p=16, d=8, sources=1, **options):
    """A model and features; every fifth node is isolated, others have empty positions."""
    rng = np.random.default_rng(0)
    modules = []
    for size in (p, 11)[:sources]:
        index = rng.integers(0, n, (n, size)).astype(np.int32)
        index[rng.random((n, size)) < 0.2] = -1
        index[::5] = -1
        index[:, 0] = np.arange(n)
        score = np.where(index >= 0, rng.random((n, size), dtype=np.float32), 0)
        modules.append(Patches(index, score).source())
    torch.manual_seed(0)
    labels = torch.arange(n) % 3 if "labels" in options.get("readout", ()) else None
    model = GPatcher(modules, d, 3, ModelConfig(**{"hidden": 32, **options}), labels)
    return model, FeatureTable(rng.standard_normal((n, d), dtype=np.float32))


def test_only_large_batches_of_large_graphs_are_compiled():
    for n, count, expected in ((CHUNK, 4096, False), (CHUNK + 1, 4096, True), (CHUNK + 1, 100, False)):
        model, x = make_model(n)
        batch = model.fetch(x, torch.arange(count))
        assert [view.compiled for view in batch.views] == [expected]
        assert (batch.members is not None) == expected
        assert not expected or batch.x is x  # rows are read from the whole table


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sources": 2},
        {"hidden": 23, "mixer_hidden": 9, "d": 5},
        {"hidden": 16, "mixer_hidden": None, "skip": True, "selection": True},
        {"readout": ("ego", "mean"), "mean_ego": True, "aggregate": "sum"},
        {"readout": ("mixer",), "layers": 1},
        {"readout": ("mean", "mixer", "labels"), "sources": 2, "head_layers": 2},
    ],
)
def test_the_model_predicts_and_learns_as_with_the_modules(options, monkeypatch):
    model, x = make_model(CHUNK + 1, **options)
    nodes = np.arange(0, CHUNK, 3)
    results = []
    for compiles in (True, False):
        if not compiles:
            monkeypatch.setattr(GPatcher, "compiles", lambda *_: False)
        batch = model.eval().fetch(x, torch.as_tensor(nodes[:4096]))
        assert (batch.members is not None) == compiles
        model.zero_grad()
        F.cross_entropy(model(x, batch), torch.arange(4096) % 3).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        results.append([predict_logits(model, x, nodes, 4096), model(x, batch).detach(), *gradients])
    for kernel, module in zip(*results, strict=True):
        assert_close(kernel, module, 1e-4)


def test_mapped_and_transposed_features_give_the_same_values(tmp_path):
    model, x = make_model(CHUNK + 1)
    np.save(tmp_path / "x.npy", x.matrix())
    mapped = FeatureTable(np.load(tmp_path / "x.npy", mmap_mode="r"))
    turned = FeatureTable(np.asfortranarray(x.matrix()))
    batches = [model.train().fetch(table, torch.arange(4096)) for table in (x, mapped, turned)]
    for batch, table in zip(batches[1:], (mapped, turned), strict=True):
        assert batch.x is not table  # only the rows of the members
        assert batch.x.shape[0] == len(batches[0].members.nodes)
    results = []
    for batch in batches:
        torch.manual_seed(0)
        model.zero_grad()
        out = model(x, batch)
        out.square().sum().backward()
        results.append([out, *(parameter.grad for parameter in model.parameters())])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_step_does_not_depend_on_the_number_of_threads():
    model, x = make_model(CHUNK + 1, sources=2)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            torch.manual_seed(0)
            model.train().zero_grad()
            out = model(x, torch.arange(4096))
            out.square().sum().backward()
            results.append([out, model.weight.grad, model.bias.grad, model.rounds[-1].rows[0].weight.grad])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_features_that_are_not_numbers_reach_the_patches_of_their_node_only():
    model, x = make_model(CHUNK + 1)
    node = 4001
    x.dense[node] = np.nan
    index = model.sources[0].index[:4096]
    touched = (index == node).any(1)
    assert touched.any()
    with torch.no_grad():
        out = model.eval()(x, model.fetch(x, torch.arange(4096)))
    assert out[touched].isnan().all()
    assert out[~touched].isfinite().all()


def test_training_that_was_interrupted_ends_with_the_same_weights(tmp_path):
    nodes = np.arange(CHUNK + 1)
    split = Split(nodes[:8192], nodes[8192:8300], nodes[8300:8400])
    config = TrainConfig(epochs=4, batch_size=4096)
    weights = []
    for interrupted in (False, True):
        checkpoint = tmp_path / "checkpoint" if interrupted else None
        if interrupted:
            model, x = make_model(CHUNK + 1)

            def stop(epoch, metrics):
                if epoch == 2:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                fit(model, x, nodes % 3, split, config, progress=stop, checkpoint=checkpoint, checkpoint_every=1)
            assert checkpoint.exists()
        model, x = make_model(CHUNK + 1)
        assert model.fetch(x, torch.arange(4096)).views[0].compiled
        fit(model, x, nodes % 3, split, config, checkpoint=checkpoint, checkpoint_every=1)
        weights.append(model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


# ------------------------------------------------------------------------------------------------ kernels


def test_products():
    rng = np.random.default_rng(0)
    for rows, inner, columns in ((8, 1, 16), (16, 5, 48), (24, 32, 32)):
        a, b, c = (
            rng.standard_normal(shape).astype(np.float32)
            for shape in ((rows, inner), (inner, columns), (rows, columns))
        )
        for left in (a, np.asfortranarray(a)):
            out = c.copy()
            add_product(left, b, out)
            np.testing.assert_allclose(out, c + a @ b, atol=1e-5)
            write_product(left, b, c[:8], out)  # the rows that it starts from are repeated
            np.testing.assert_allclose(out, np.tile(c[:8], (rows // 8, 1)) + a @ b, atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 32), (32, 64)])
def test_transposes(shape):
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    out = np.empty(shape[::-1], np.float32)
    transpose(a, out)
    np.testing.assert_array_equal(out, a.T)


def test_gelu_to_single_precision():
    x = torch.linspace(-12, 12, 10_001)
    share, density = (np.array([f(value) for value in x.numpy()]) for f in (normal_cdf, normal_density))
    exact = x.double().requires_grad_()
    values = F.gelu(exact)
    values.sum().backward()
    np.testing.assert_allclose(x.numpy() * share, values.detach(), atol=2e-6)
    np.testing.assert_allclose(share + x.numpy() * density, exact.grad, atol=1e-6)
    far = np.float32(1e30)
    assert [far * normal_cdf(far), far * normal_cdf(-far)] == [far, 0]


def test_a_sequence_of_random_words_can_be_read_from_any_position():
    whole, part = np.empty(1000, np.uint64), np.empty(100, np.uint64)
    random_words(np.uint64(5), 0, whole)
    random_words(np.uint64(5), 300, part)
    np.testing.assert_array_equal(part, whole[300:400])
    assert len(np.unique(whole)) == 1000
