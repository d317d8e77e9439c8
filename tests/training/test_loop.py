"""The training loop, with models so small that the expected numbers can be computed in the test."""

import itertools
import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from scipy.special import softmax
from torch import nn

from gpatcher.errors import InputError
from gpatcher.graph.split import Split, stratified_split
from gpatcher.model.inputs import FeatureTable
from gpatcher.training.loop import TrainConfig, disagreement, fit, predict_logits

N, D, CLASSES = 60, 5, 3


class Tiny(nn.Module):
    """A linear classifier with dropout that records its calls."""

    def __init__(self, seed=0, dropout=0.3):
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(0.1 * torch.randn(D, CLASSES))
        self.bias = nn.Parameter(torch.zeros(CLASSES))
        self.dropout = dropout
        self.calls = []

    def forward(self, x, nodes):
        self.calls.append((self.training, nodes.tolist()))
        return x.linear(self.weight, self.dropout if self.training else 0.0, nodes) + self.bias


class Scripted(nn.Module):
    """A model whose logits on validation nodes are given in advance, one row per epoch."""

    def __init__(self, script):
        super().__init__()
        self.p = nn.Parameter(torch.zeros(1))
        self.script = script
        self.step = 0
        self.register_buffer("epoch", torch.zeros(1))

    def forward(self, x, nodes):
        if self.training:
            self.step += 1
            self.epoch.fill_(self.step)
            return torch.zeros(len(nodes), 2) + self.p
        # on all nodes the right class is 0: margin > 0 is right, its size sets the loss
        margin = torch.tensor(self.script[int(self.epoch) - 1])
        rows = margin if len(nodes) == len(margin) else margin[:1].expand(len(nodes))
        return torch.stack([rows, -rows], 1) + 0 * self.p


def data(seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % CLASSES
    x = rng.normal(size=(N, D)).astype(np.float32) + 2 * np.eye(CLASSES, D, dtype=np.float32)[y]
    return FeatureTable(x), y, stratified_split(y, 0.5, 0.25, seed=0)


def scripted(script, monitor="loss", patience=50, val=2):
    split = Split(train=[0, 1], val=list(range(2, 2 + val)), test=[9])
    model = Scripted(script)
    config = TrainConfig(epochs=len(script), patience=patience, monitor=monitor)
    return fit(model, FeatureTable(np.zeros((10, 1), np.float32)), np.r_[0, 1, np.zeros(8, int)], split, config), model


# ------------------------------------------------------------------------------------------------ learning


def test_any_model_is_trained():
    x, y, split = data()
    model = Tiny()
    result = fit(model, x, y, split, TrainConfig(epochs=150, lr=0.05))
    assert result.history[-1]["train_loss"] < 0.8 * result.history[0]["train_loss"]
    assert result.val_accuracy > 0.5
    logits = predict_logits(model, x, split.test)
    assert result.test_accuracy == float((logits.argmax(1).numpy() == y[split.test]).mean())
    assert result.epochs == len(result.history)
    assert result.seconds > 0


def test_an_epoch_is_one_step_of_adam():
    x, y, split = data()
    model, other = Tiny(dropout=0.0), Tiny(dropout=0.0)
    config = TrainConfig(epochs=3, lr=0.05, weight_decay=0.01)
    result = fit(model, x, y, split, config)
    optimiser = torch.optim.Adam(other.parameters(), lr=0.05, weight_decay=0.01)
    target, train, val = torch.as_tensor(y), torch.tensor(split.train), torch.tensor(split.val)
    val_losses = []
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(other(x, train), target[train]).backward()
        optimiser.step()
        with torch.no_grad():
            val_losses.append(float(F.cross_entropy(other(x, val), target[val])))
    assert [h["val_loss"] for h in result.history] == pytest.approx(val_losses, rel=1e-4)
    assert result.best_epoch == 3
    np.testing.assert_allclose(model.weight.detach(), other.weight.detach(), atol=1e-5)


def test_one_batch_of_all_nodes_is_the_same_as_none():
    x, y, split = data()
    histories = [
        fit(Tiny(), x, y, split, TrainConfig(epochs=8, batch_size=size)).history
        for size in (None, len(split.train), 10_000)
    ]
    assert histories[0] == histories[1] == histories[2]


def test_batches_cover_the_training_nodes_once_an_epoch_in_a_new_order():
    x, y, split = data()
    model = Tiny()
    fit(model, x, y, split, TrainConfig(epochs=2, batch_size=8))
    steps = [nodes for training, nodes in model.calls if training]
    per_epoch = math.ceil(len(split.train) / 8)
    assert len(steps) == 2 * per_epoch
    assert {len(s) for s in steps[: per_epoch - 1]} == {8}
    one, two = (list(itertools.chain(*part)) for part in (steps[:per_epoch], steps[per_epoch:]))
    assert sorted(one) == sorted(two) == split.train.tolist()
    assert one != two
    # validation uses the same batch size
    assert max(len(nodes) for training, nodes in model.calls if not training) <= 8


def test_the_training_loss_is_the_mean_over_nodes():
    x, y, split = data()
    result = fit(Tiny(dropout=0.0), x, y, split, TrainConfig(epochs=1, lr=1e-12, batch_size=8, weight_decay=0.0))
    fresh = Tiny(dropout=0.0)
    train = torch.tensor(split.train)
    expected = F.cross_entropy(fresh(x, train), torch.as_tensor(y)[train]).item()
    assert result.history[0]["train_loss"] == pytest.approx(expected, rel=1e-4)


# ------------------------------------------------------------------------------------------------ stopping


def test_the_best_weights_are_restored():
    x, y, split = data()
    weights = []

    class Watched(Tiny):
        def forward(self, x, nodes):
            if not self.training:
                weights.append(self.weight.detach().clone())
            return super().forward(x, nodes)

    model = Watched()
    # a learning rate that overshoots soon
    result = fit(model, x, y, split, TrainConfig(epochs=60, lr=0.5, patience=60))
    assert 1 <= result.best_epoch < 60
    losses = [h["val_loss"] for h in result.history]
    assert result.best_epoch == int(np.argmin(losses)) + 1
    assert result.val_loss == min(losses)
    assert torch.equal(model.weight, weights[result.best_epoch - 1])
    assert not torch.equal(model.weight, weights[59])
    again = F.cross_entropy(predict_logits(model, x, split.val), torch.as_tensor(y[split.val])).item()
    assert again == pytest.approx(result.val_loss, rel=1e-6)


def test_monitoring_the_loss_or_the_accuracy():
    # the second epoch has the smaller loss, the third the higher accuracy
    script = [[1.0, -0.2], [4.0, -0.1], [0.1, 0.1]]
    by_loss, _ = scripted(script, "loss")
    by_accuracy, _ = scripted(script, "accuracy")
    losses = [np.mean(np.log1p(np.exp(-2 * np.array(m)))) for m in script]
    assert [h["val_loss"] for h in by_loss.history] == pytest.approx(losses, rel=1e-4)
    assert [h["val_accuracy"] for h in by_loss.history] == [0.5, 0.5, 1.0]
    assert by_loss.best_epoch == int(np.argmin(losses)) + 1 == 2
    assert by_accuracy.best_epoch == 3
    assert by_accuracy.val_accuracy == 1.0
    assert by_accuracy.val_loss == pytest.approx(losses[2], rel=1e-4)


def test_equal_accuracies_go_to_the_smaller_loss_and_equal_epochs_to_the_first():
    result, _ = scripted([[0.5, 0.5], [2.0, 2.0], [1.0, 1.0]], "accuracy")
    assert result.best_epoch == 2
    for monitor in ("loss", "accuracy"):
        result, _ = scripted([[0.5, 0.5], [2.0, 2.0], [2.0, 2.0]], monitor)
        assert result.best_epoch == 2


@pytest.mark.parametrize(
    ("monitor", "best"), [("accuracy", 3), ("balanced_accuracy", 2), ("macro_f1", 2), ("roc_auc", 3)]
)
def test_monitoring_metrics_that_weigh_classes_alike(monitor, best):
    # margins towards class 0 of three nodes of class 0 and one of class 1
    script = [
        [1.0, 1.0, 1.0, 1.0],  # all class 0
        [1.0, 1.0, -1.0, -2.0],  # one node of class 0 wrong, the one of class 1 right; ranked well
        [0.3, 0.3, 0.3, 0.2],  # all class 0; ranked well, with the smallest loss
    ]
    y, split = np.array([0, 1, 0, 0, 0, 1]), Split(train=[0, 1], val=[2, 3, 4, 5], test=[])
    x = FeatureTable(np.zeros((6, 1), np.float32))
    assert fit(Scripted(script), x, y, split, TrainConfig(epochs=3, monitor=monitor)).best_epoch == best


def test_a_metric_that_needs_two_classes_is_an_error_where_validation_has_one():
    with pytest.raises(InputError, match="monitor=roc_auc needs two classes"):
        scripted([[1.0, 1.0]], "roc_auc")


@pytest.mark.parametrize("patience", [1, 3])
def test_patience_counts_epochs_without_a_better_one(patience):
    script = [[1.0, 1.0], [2.0, 2.0], *[[0.5, 0.5]] * 20]
    result, model = scripted(script, patience=patience)
    assert result.best_epoch == 2
    assert result.epochs == 2 + patience
    assert int(model.epoch) == 2  # buffers are restored too


def test_training_ends_after_the_last_epoch():
    result, _ = scripted([[0.1 * k, 0.1 * k] for k in range(1, 8)], patience=3)
    assert result.epochs == result.best_epoch == 7


def test_patches_are_selected_again_every_few_epochs():
    x, y, split = data()

    class Reselecting(Tiny):
        reselected = ()

        def reselect(self):
            self.reselected = (*self.reselected, sum(training for training, _ in self.calls))

    model = Reselecting()
    fit(model, x, y, split, TrainConfig(epochs=10, reselect_every=4))
    assert model.reselected == (4, 8)


def test_parameter_groups_of_the_model_are_used():
    x, y, split = data()

    class Grouped(Tiny):
        arguments = None

        def parameter_groups(self, lr, weight_decay, filter_lr):
            self.arguments = (lr, weight_decay, filter_lr)
            return [{"params": [self.weight], "lr": lr}]

    model = Grouped()
    fit(model, x, y, split, TrainConfig(epochs=3, lr=0.1, weight_decay=0.2, filter_lr=0.3))
    assert model.arguments == (0.1, 0.2, 0.3)
    assert torch.equal(model.bias, torch.zeros(CLASSES))  # in no group


def test_an_extra_loss_of_the_model_is_added():
    x, y, split = data()

    class Regularised(Tiny):
        def extra_loss(self, x, nodes, target):
            assert target.tolist() == y[nodes].tolist()
            return 10 * self.bias.square().sum() + 3.0

    config = TrainConfig(epochs=1)
    plain, extra = (fit(model(dropout=0.0), x, y, split, config).history[0] for model in (Tiny, Regularised))
    assert extra["train_loss"] == pytest.approx(plain["train_loss"] + 3.0, rel=1e-5)


# ------------------------------------------------------------------------------------------------ test nodes


@pytest.mark.parametrize("batch_size", [None, 7])
def test_the_test_nodes_are_read_once_at_the_end(batch_size):
    x, y, split = data()
    model = Tiny()
    result = fit(model, x, y, split, TrainConfig(epochs=12, batch_size=batch_size))
    test = set(split.test.tolist())
    reads = [k for k, (_, nodes) in enumerate(model.calls) if test & set(nodes)]
    assert reads == list(range(len(model.calls)))[-len(reads) :]
    assert sorted(itertools.chain(*(model.calls[k][1] for k in reads))) == split.test.tolist()
    assert not any(model.calls[k][0] for k in reads)  # without dropout
    right = predict_logits(model, x, split.test).argmax(1).numpy() == y[split.test]
    assert result.test_accuracy == right.mean()


def test_unlabelled_test_and_validation_nodes_are_not_scored():
    x, y, split = data()
    hidden = y.copy()
    hidden[split.val[:5]] = -1
    hidden[split.test[:5]] = -1
    result = fit(Tiny(), x, hidden, split, TrainConfig(epochs=5))
    labelled = fit(Tiny(), x, y, Split(split.train, split.val[5:], split.test[5:]), TrainConfig(epochs=5))
    assert result.history == labelled.history
    assert result.test_accuracy == labelled.test_accuracy
    hidden[split.test] = -1
    assert fit(Tiny(), x, hidden, split, TrainConfig(epochs=5)).test_accuracy is None
    assert fit(Tiny(), x, y, Split(split.train, split.val, []), TrainConfig(epochs=5)).test_accuracy is None


# ------------------------------------------------------------------------------------------------ determinism


@pytest.mark.parametrize("batch_size", [None, 8])
def test_same_seed_same_history(batch_size):
    x, y, split = data()
    config = TrainConfig(epochs=10, batch_size=batch_size)
    one, two, other = (fit(Tiny(), x, y, split, config, seed=seed) for seed in (1, 1, 2))
    assert one.history == two.history
    assert one.history != other.history


# ------------------------------------------------------------------------------------------------ class weights


def test_class_weights_are_inverse_to_class_sizes():
    x, _, _ = data()
    y = np.r_[np.zeros(40, int), np.ones(12, int), np.full(8, 2)]
    split = stratified_split(y, 0.5, 0.25, seed=0)
    result = fit(Tiny(dropout=0.0), x, y, split, TrainConfig(epochs=1, class_weights=True))
    counts = np.bincount(y[split.train])
    weight = torch.tensor(counts.sum() / (len(counts) * counts), dtype=torch.float32)  # scikit-learn's "balanced"
    fresh = Tiny(dropout=0.0)
    logits = fresh(x, torch.tensor(split.train)).detach()
    log_p = logits.log_softmax(1)[np.arange(len(split.train)), y[split.train]]
    w = weight[y[split.train]]
    assert result.history[0]["train_loss"] == pytest.approx(float(-(w * log_p).sum() / w.sum()), rel=1e-4)
    plain = fit(Tiny(dropout=0.0), x, y, split, TrainConfig(epochs=1))
    assert plain.history[0]["train_loss"] == pytest.approx(float(-log_p.mean()), rel=1e-4)


def test_class_weights_with_a_class_missing_from_train():
    x, y, split = data()
    train = split.train[y[split.train] != 2]
    result = fit(Tiny(), x, y, Split(train, split.val, split.test), TrainConfig(epochs=3, class_weights=True))
    assert all(math.isfinite(h["val_loss"]) for h in result.history)


# ------------------------------------------------------------------------------------------------ moving average


def test_the_moving_average_is_validated_and_kept():
    x, y, split = data()
    decay, epochs = 0.7, 12
    model = Tiny(dropout=0.0)
    result = fit(model, x, y, split, TrainConfig(epochs=epochs, lr=0.05, ema_decay=decay, weight_decay=0.0))
    other = Tiny(dropout=0.0)
    optimiser = torch.optim.Adam(other.parameters(), lr=0.05)
    mean = {name: p.detach().clone() for name, p in other.named_parameters()}
    target, train, val = torch.as_tensor(y), torch.tensor(split.train), torch.tensor(split.val)
    losses = []
    for epoch in range(epochs):
        optimiser.zero_grad()
        F.cross_entropy(other(x, train), target[train]).backward()
        optimiser.step()
        current = min(decay, (1 + epoch) / (10 + epoch))
        mean = {name: current * mean[name] + (1 - current) * p.detach() for name, p in other.named_parameters()}
        logits = x.linear(mean["weight"], rows=val) + mean["bias"]
        losses.append(float(F.cross_entropy(logits, target[val])))
    assert [h["val_loss"] for h in result.history] == pytest.approx(losses, rel=1e-4)
    assert result.best_epoch == epochs
    np.testing.assert_allclose(model.weight.detach(), mean["weight"], atol=1e-5)
    assert (model.weight - other.weight).abs().max() > 1e-4


# ------------------------------------------------------------------------------------------------ consistency


def test_the_consistency_loss_is_the_distance_to_the_sharpened_mean_where_it_is_sure():
    logits = torch.randn(2, 20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    p = softmax(logits.detach().numpy(), axis=2)
    mean = p.mean(0)
    sure = (mean.max(1) > 1 / 3 + 0.3 * 2 / 3)[:, None]
    assert 5 < sure.sum() < 15
    q = mean**2 / (mean**2).sum(1, keepdims=True)
    loss = disagreement(logits)
    assert loss.item() == pytest.approx((sure * (p - q) ** 2).sum(2).mean())
    loss.backward()
    inner = 2 * sure * (p - q) / p[..., 0].size  # no gradient through q
    np.testing.assert_allclose(logits.grad, p * (inner - (inner * p).sum(2, keepdims=True)), atol=1e-12)


def test_a_step_with_a_consistency_loss():
    x, y, split = data()
    model, other = Tiny(dropout=0.0), Tiny(dropout=0.0)
    fit(model, x, y, split, TrainConfig(epochs=3, lr=0.05, weight_decay=0.0, consistency=0.7))
    optimiser = torch.optim.Adam(other.parameters(), lr=0.05)
    target, train = torch.as_tensor(y), torch.tensor(split.train)
    rest = torch.tensor(np.setdiff1d(np.arange(N), split.train))
    for _ in range(3):
        optimiser.zero_grad()
        loss = F.cross_entropy(other(x, train), target[train])
        (loss + 0.7 * disagreement(other(x, rest)[None])).backward()  # without dropout both passes are equal
        optimiser.step()
    np.testing.assert_allclose(model.weight.detach(), other.weight.detach(), atol=1e-5)
    plain = Tiny(dropout=0.0)
    fit(plain, x, y, split, TrainConfig(epochs=3, lr=0.05, weight_decay=0.0))
    assert (plain.weight - model.weight).abs().max() > 1e-3


def test_a_consistency_loss_reads_two_passes_and_no_other_labels():
    x, y, split = data()
    model, other = Tiny(), Tiny()
    config = TrainConfig(epochs=4, batch_size=8, consistency=1.0, monitor="last")
    fit(model, x, y, split, config)
    steps = [nodes for training, nodes in model.calls if training]
    assert steps[::2] == steps[1::2]
    assert len({tuple(nodes[8:]) for nodes in steps}) > 4, "the nodes are drawn anew in every step"
    for nodes in steps:
        own = [node for node in nodes if node in split.train]
        assert own == nodes[: len(own)]
        assert len(nodes) - len(own) == 8
    hidden = np.where(np.isin(np.arange(N), split.train), y, (y + 1) % CLASSES)
    fit(other, x, hidden, split, config)
    assert torch.equal(model.weight, other.weight)


def test_a_consistency_loss_without_other_nodes_adds_nothing():
    x, y, _ = data()
    none = np.empty(0, np.int64)
    config = TrainConfig(epochs=3, monitor="last", consistency=1.0)
    one, two = Tiny(dropout=0.0), Tiny(dropout=0.0)
    for model, weight in ((one, 1.0), (two, 0.0)):
        fit(model, x, y, Split(np.arange(N), none, none), replace(config, consistency=weight))
    np.testing.assert_allclose(one.weight.detach(), two.weight.detach(), atol=1e-6)


# ------------------------------------------------------------------------------------------------ checkpoints


class Interrupt(Exception):  # noqa: N818
    pass


def stop_at(epoch):
    def progress(number, figures):
        assert set(figures) == {"train_loss", "val_loss", "val_accuracy"}
        if number == epoch:
            raise Interrupt

    return progress


class Selecting(Tiny):
    """A model with a buffer that changes on reselect, as the selection of a learned filter does."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.register_buffer("shift", torch.zeros(1, dtype=torch.int32))

    def reselect(self):
        self.shift += 1

    def forward(self, x, nodes):
        return super().forward(x, nodes) * (1 + 0.1 * self.shift)


@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.9}, {"consistency": 1.0}])
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("at", [1, 10, 25, 30])
def test_continuing_after_an_interruption_gives_the_same_numbers(tmp_path, options, batch_size, at):
    x, y, split = data()
    config = TrainConfig(epochs=30, lr=0.05, batch_size=batch_size, reselect_every=7, **options)
    whole_model = Selecting()
    whole = fit(whole_model, x, y, split, config, seed=5)
    path = tmp_path / "run.safetensors"
    with pytest.raises(Interrupt):
        fit(Selecting(), x, y, split, config, seed=5, checkpoint=path, progress=stop_at(at))
    assert path.exists() == (at > 10)
    torch.manual_seed(99)  # whatever happened in between
    model = Selecting(seed=123)
    epochs = []
    rest = fit(model, x, y, split, config, seed=5, checkpoint=path, progress=lambda number, _: epochs.append(number))
    assert epochs[0] == (at - 1) // 10 * 10 + 1, "training continues from the last checkpoint"
    if at > 10:
        assert rest.history == whole.history
        assert (rest.best_epoch, rest.val_loss, rest.test_accuracy) == (
            whole.best_epoch,
            whole.val_loss,
            whole.test_accuracy,
        )
        nodes = np.arange(N)
        assert torch.equal(predict_logits(model, x, nodes), predict_logits(whole_model, x, nodes))
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"], "no draft is left"


def test_a_finished_checkpoint_is_not_trained_again(tmp_path):
    x, y, split = data()
    config = TrainConfig(epochs=13)
    path = tmp_path / "run.safetensors"
    one = fit(Tiny(), x, y, split, config, checkpoint=path)
    model = Tiny(seed=3)
    two = fit(model, x, y, split, config, checkpoint=path)
    assert not any(training for training, _ in model.calls)
    assert (one.history, one.test_accuracy) == (two.history, two.test_accuracy)


def test_no_bit_of_a_checkpoint_can_change_unnoticed(tmp_path):
    x, y, split = data()
    path = tmp_path / "checkpoint"
    fit(Tiny(), x, y, split, TrainConfig(epochs=5), checkpoint=path)
    whole = path.read_bytes()
    for bit in np.random.default_rng(0).integers(len(whole) * 8, size=60):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"checkpoint .*damaged"):
            fit(Tiny(), x, y, split, TrainConfig(epochs=5), checkpoint=path)


def test_an_interrupted_save_keeps_the_earlier_checkpoint(tmp_path, monkeypatch):
    x, y, split = data()
    path = tmp_path / "run.safetensors"
    with pytest.raises(Interrupt):
        fit(Tiny(), x, y, split, TrainConfig(epochs=30), checkpoint=path, progress=stop_at(15))
    before = path.read_bytes()

    def interrupt(handle):  # the draft is written, but not flushed and not renamed
        raise Interrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(Interrupt):
        fit(Tiny(), x, y, split, TrainConfig(epochs=30), checkpoint=path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def saved(tmp_path):
    x, y, split = data()
    path = tmp_path / "run.safetensors"
    with pytest.raises(Interrupt):
        fit(Tiny(), x, y, split, TrainConfig(epochs=30), checkpoint=path, progress=stop_at(15))
    return path


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "no history", "no metadata", "other names"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    path = saved(tmp_path)
    whole = path.read_bytes()
    tensors = safetensors.torch.load_file(path)
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "text":
        path.write_text("not a checkpoint at all")
    elif damage == "no history":
        safetensors.torch.save_file(tensors, path, metadata={"run": json.dumps({"best_epoch": 1})})
    elif damage == "no metadata":
        safetensors.torch.save_file(tensors, path)
    else:
        safetensors.torch.save_file({"weight": torch.zeros(2)}, path, metadata={"run": "{}"})
    x, y, split = data()
    with pytest.raises(InputError, match=r"run\.safetensors.*delete it"):
        fit(Tiny(), x, y, split, TrainConfig(epochs=30), checkpoint=path)


def test_the_checkpoint_of_another_model_is_refused(tmp_path):
    path = saved(tmp_path)
    x, y, split = data()
    with pytest.raises(InputError, match="does not belong to this run"):
        fit(Selecting(), x, y, split, TrainConfig(epochs=30), checkpoint=path)


@pytest.mark.parametrize("other", ["split", "seed", "config"])
def test_the_checkpoint_of_another_run_is_refused(tmp_path, other):
    """Weights of another split were trained on test nodes of this one."""
    path = saved(tmp_path)
    x, y, split = data()
    seed, config = 0, TrainConfig(epochs=30)
    if other == "split":
        split = stratified_split(y, 0.5, 0.25, seed=1)
    elif other == "seed":
        seed = 1
    else:
        config = TrainConfig(epochs=30, lr=0.5)
    with pytest.raises(InputError, match="does not belong to this run"):
        fit(Tiny(), x, y, split, config, seed=seed, checkpoint=path)


# ------------------------------------------------------------------------------------------------ errors


def test_no_validation_nodes():
    x, y, split = data()
    with pytest.raises(InputError, match="no validation nodes"):
        fit(Tiny(), x, y, Split(split.train, [], split.test), TrainConfig(epochs=3))


def test_no_validation_node_with_a_label():
    x, y, split = data()
    y = y.copy()
    y[split.val] = -1
    with pytest.raises(InputError, match="validation"):
        fit(Tiny(), x, y, split, TrainConfig(epochs=3))


def test_a_loss_that_is_not_finite_is_an_error():
    x, y, split = data()
    with pytest.raises(InputError, match=r"not finite after epoch \d+.*lr=1e\+30"):
        fit(Tiny(), x, y, split, TrainConfig(epochs=50, lr=1e30))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": 0.0}, "lr must be above 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be above 0, got nan"),
        ({"epochs": 0}, "epochs must be above 0, got 0"),
        ({"patience": -1}, "patience.*-1"),
        ({"reselect_every": 0}, "reselect_every.*0"),
        ({"monitor": "never"}, "loss, accuracy, .*, got 'never'"),
        ({"ema_decay": 1.0}, r"ema_decay.*\[0, 1\), got 1.0"),
        ({"consistency": -1.0}, r"consistency must be at least 0, got -1.0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"weight_decay": -1.0}, "weight_decay.*-1.0"),
    ],
)
def test_impossible_configurations_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        TrainConfig(**options)
