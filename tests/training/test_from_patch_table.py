"""Training and prediction from a patch table and features on disk: the numbers of memory, in bounded memory."""

import json
import pickle
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import NORMALISATIONS, FeatureConfig, FeatureTable, node_features
from gpatcher.patches import PPR, HeatKernel, PolynomialFilter
from gpatcher.patches.store import PatchTable, StoredPatches, write_patches
from gpatcher.runs import predict
from gpatcher.runs.fit import FitOptions, FitProgress, fit_splits
from gpatcher.runs.predict import prediction_columns, write_predictions
from gpatcher.runs.records import read_records
from gpatcher.scale.executors import RayEngine
from gpatcher.training.loop import TrainConfig

EXTRACTOR = PPR(size=4)
MODEL = ModelConfig(hidden=8, mixer_hidden=4)
TRAIN = TrainConfig(epochs=4, batch_size=16)
GIB = 2**30


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=120, features=6)


@pytest.fixture(scope="module")
def table(graph, tmp_path_factory):
    return write_patches(graph, tmp_path_factory.mktemp("patches"), EXTRACTOR, shard=50)


@pytest.fixture
def mapped(graph, tmp_path):
    np.save(tmp_path / "x.npy", graph.x)
    return replace(graph, x=np.load(tmp_path / "x.npy", mmap_mode="r"))


def quick(**options):
    return GPatcherClassifier(**{"patches": EXTRACTOR, "model": MODEL, "train": TRAIN} | options)


def losses(model):
    return [list(figures.values()) for figures in model.result_.history]


# ------------------------------------------------------------------------------------------------ same numbers


@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_the_table_and_mapped_features_give_the_same_numbers(graph, mapped, table, normalise):
    features = FeatureConfig(normalise=normalise)
    in_memory = quick(features=features).fit(graph)
    from_disk = quick(features=features).fit(mapped, patch_table=table)
    assert isinstance(from_disk.model_.sources[0], StoredPatches)
    np.testing.assert_allclose(losses(from_disk), losses(in_memory), atol=1e-6)
    np.testing.assert_allclose(from_disk.predict_proba(), in_memory.predict_proba(), atol=1e-6)
    np.testing.assert_array_equal(from_disk.patches_.index, in_memory.patches_.index)


def test_sparse_features(graph, table):
    sparse = replace(graph, x=sp.csr_array(np.where(graph.x > 0, graph.x, 0)))
    one, two = (quick().fit(sparse, patch_table=source) for source in (None, table))
    assert losses(one) == losses(two)


def test_reading_ahead_gives_the_same_numbers_and_runs_in_a_thread(mapped, table, monkeypatch):
    in_main_thread = set()
    fetch = GPatcher.fetch

    def recorded(self, x, nodes):
        in_main_thread.add(threading.current_thread() is threading.main_thread())
        return fetch(self, x, nodes)

    monkeypatch.setattr(GPatcher, "fetch", recorded)
    ahead = quick().fit(mapped, patch_table=table)
    assert in_main_thread == {False}
    monkeypatch.setattr(GPatcher, "reads_ahead", False)
    in_main_thread.clear()
    plain = quick().fit(mapped, patch_table=table)
    assert in_main_thread == {True}
    assert losses(ahead) == losses(plain)
    np.testing.assert_array_equal(ahead.predict_proba(nodes=[5, 2]), plain.predict_proba(nodes=[5, 2]))


def test_a_learned_filter_is_not_read_ahead(graph):
    assert not quick(patches=PolynomialFilter(size=4)).fit(graph).model_.reads_ahead
    assert not quick(patches=(EXTRACTOR, PolynomialFilter(size=4))).fit(graph).model_.reads_ahead
    assert quick(patches=(EXTRACTOR, HeatKernel(size=4))).fit(graph).model_.reads_ahead


def test_a_batch_holds_the_distinct_members_of_its_patches(mapped, table):
    model = quick().fit(mapped, patch_table=table).model_
    batch = model.fetch(FeatureTable(mapped.x), torch.tensor([3, 3, 7]))
    members = np.unique(np.maximum(table[[3, 7]].index, 0))
    assert batch.x.shape == (len(members), mapped.num_features)
    assert not batch.x.mapped
    [view] = batch.views
    np.testing.assert_array_equal(members[view.index], np.maximum(table[[3, 3, 7]].index, 0))
    np.testing.assert_array_equal(view.mask, table[[3, 3, 7]].index >= 0)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_gradients_of_batches_add_up_to_that_of_all(mapped, table, size):
    torch.manual_seed(0)
    config = ModelConfig(hidden=8, dropout=0.0, input_dropout=0.0)
    model = GPatcher(table.source(), 6, 2, config).train()
    x, y = FeatureTable(mapped.x), torch.as_tensor(mapped.y.copy())
    nodes = torch.randperm(mapped.n)[:100]

    def gradients(parts):
        model.zero_grad()
        for part in parts:
            (F.cross_entropy(model(x, part), y[part]) * len(part) / len(nodes)).backward()
        return torch.cat([p.grad.ravel() for p in model.parameters()])

    np.testing.assert_allclose(gradients(nodes.split(size)), gradients([nodes]), atol=1e-6)


def test_edges_are_not_read_after_extraction(graph, table):
    bare = replace(graph, indices=None, weights=None)
    bare.__dict__["fingerprint"] = graph.fingerprint  # as a graph on disk has it stored
    model = quick(memory=2 * GIB, train=replace(TRAIN, batch_size=None)).fit(bare, patch_table=table)
    assert model.predict(nodes=[0, 1]).shape == (2,)


class StopAt(FitProgress):
    """Interrupts a run, and records the epochs before."""

    def __init__(self, at=None):
        self.at, self.epochs = at, []

    def epoch(self, run, runs, epoch, epochs, figures):
        self.epochs.append(epoch)
        if epoch == self.at:
            raise KeyboardInterrupt


def test_an_interrupted_run_of_batches_continues(mapped, table, tmp_path):
    settings = quick(train=replace(TRAIN, epochs=25, patience=25)).settings()
    options = FitOptions(patch_table=table.folder, compare=False)
    [whole] = fit_splits(mapped, "fast", settings, tmp_path / "a", options)
    with pytest.raises(KeyboardInterrupt):
        fit_splits(mapped, "fast", settings, tmp_path / "b", options, progress=StopAt(17))
    progress = StopAt()
    [again] = fit_splits(mapped, "fast", settings, tmp_path / "b", replace(options, resume=True), progress=progress)
    assert progress.epochs[0] == 11
    same = ("val_accuracy", "test_accuracy", "best_epoch", "epochs")
    assert [whole[name] for name in same] == [again[name] for name in same]


# ------------------------------------------------------------------------------------------------ which table


def test_a_table_of_another_graph_is_refused(table):
    with pytest.raises(InputError, match="belongs to another graph"):
        quick().fit(csbm(phi=0.5, n=120, features=6), patch_table=table)


@pytest.mark.parametrize(
    ("patches", "shown"),
    [
        (PPR(size=5), r"PPR\(size=5"),
        (HeatKernel(size=4), r"HeatKernel\(size=4"),
        (PPR(size=4, eps=1e-3), r"eps=0\.001"),
        ((EXTRACTOR, HeatKernel(size=4)), "HeatKernel"),
    ],
    ids=["size", "filter", "eps", "two sources"],
)
def test_a_table_of_another_extractor_is_refused(graph, table, patches, shown):
    with pytest.raises(InputError, match=rf"made with PPR\(size=4, .*{shown}.*patches=table\.extractor"):
        quick(patches=patches).fit(graph, patch_table=table)


def test_a_saved_model_names_its_table(graph, tmp_path):
    write_patches(graph, tmp_path / "patches", EXTRACTOR)
    model = quick().fit(graph, patch_table=tmp_path / "patches")
    model.save(tmp_path / "run")
    loaded = GPatcherClassifier.load(tmp_path / "run", graph)
    assert isinstance(loaded.model_.sources[0], StoredPatches)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    (tmp_path / "patches").rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"patches that the model was trained with does not exist.*--size 4 --c 0\.5"):
        GPatcherClassifier.load(tmp_path / "run", graph)
    moved = GPatcherClassifier.load(tmp_path / "run", graph, patch_table=tmp_path / "moved")
    np.testing.assert_array_equal(moved.predict_proba(), model.predict_proba())


# ------------------------------------------------------------------------------------------------ memory


def test_the_batch_size_follows_from_the_memory(graph, table):
    one_epoch = TrainConfig(epochs=1)
    wide = {"train": one_epoch, "model": replace(MODEL, hidden=512)}
    sizes = [
        quick(**wide, memory=int(memory * GIB)).fit(graph, patch_table=table).batch_size_ for memory in (0.6875, 0.75)
    ]
    assert sizes == [64, 128]  # no more than the graph has nodes
    given = quick(train=replace(one_epoch, batch_size=9), memory=GIB).fit(graph, patch_table=table)
    assert given.batch_size_ == 9
    assert quick(train=one_epoch).fit(graph, patch_table=table).batch_size_ == 4096
    assert quick(train=one_epoch).fit(graph).batch_size_ is None


def test_too_little_memory(graph, table):
    with pytest.raises(
        InputError, match=r"memory=0\.10 GiB is too little: graph and program take about 0\.\d\d GiB"
    ) as refused:
        quick(train=replace(TRAIN, batch_size=None), memory=GIB // 10).fit(graph, patch_table=table)
    # what is done already is not advised
    assert "gpatcher store" in str(refused.value)
    assert "gpatcher patches" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "features", "hidden"), [(1.0, 64, 64), (1.5, 8, 128)])
def test_the_peak_stays_within_the_memory(tmp_path, memory, features, hidden):
    script = f"""
import json, numpy as np, sys
from gpatcher.datasets.synthetic import rmat
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.memory import peak_rss_mb
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR
from gpatcher.patches.store import write_patches
from gpatcher.training.loop import TrainConfig
graph = rmat(n=60_000, m=200_000, features={features})
table = write_patches(graph, sys.argv[1], PPR(size=16, eps=1e-3))
shape = ModelConfig(hidden={hidden}, mixer_hidden=None)
options = dict(patches=table.extractor, model=shape, train=TrainConfig(epochs=1), memory=int({memory} * 2**30))
model = GPatcherClassifier(**options).fit(graph, patch_table=table)
print(json.dumps([model.batch_size_, peak_rss_mb()]))
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    batch, peak = json.loads(done.stdout)
    assert 32 < batch < 4096
    assert 0.5 * memory * 1024 < peak < memory * 1024


def test_predictions_are_written_in_pieces(graph, table, tmp_path, monkeypatch):
    model = quick().fit(graph, patch_table=table)
    monkeypatch.setattr(predict, "LOGITS", 100 * model.num_outputs)
    monkeypatch.setattr(predict, "ROWS", 50)
    calls = []
    write_predictions(model, graph, tmp_path / "p.parquet", lambda done, total: calls.append((done, total)))
    assert calls == [(50, 120), (100, 120), (120, 120)]
    written = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    for name, values in prediction_columns(model, graph).items():
        if name == "confidence" or name.startswith("probability"):
            np.testing.assert_allclose(written[name].to_numpy(), values, atol=1e-6)
        else:
            assert written[name].to_pylist() == values.tolist()


@pytest.mark.parametrize("kind", ["mapped", "part of a mapped", "dense", "sparse"])
def test_features_in_another_process(mapped, kind):
    x = {
        "mapped": mapped.x,
        "part of a mapped": mapped.x[10:],
        "dense": np.array(mapped.x),
        "sparse": sp.csr_array(np.array(mapped.x)),
    }[kind]
    sent = pickle.dumps(node_features(replace(mapped, x=x), FeatureConfig(normalise="l2")))
    table = pickle.loads(sent)
    assert (len(sent) < 1000) == (kind == "mapped")  # the path of the file is enough
    dense = np.asarray(x.toarray() if sp.issparse(x) else x)
    expected = dense / np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(table.linear(torch.eye(6)), expected, atol=1e-6)


# ------------------------------------------------------------------------------------------------ commands


@pytest.fixture
def command(command_in, tmp_path):
    def call(*arguments, code=0):
        done = command_in(tmp_path, *arguments, code=code)
        return done.stderr if code else done.stdout

    return call


SOURCE = "csbm:phi=-0.5,n=200,features=8"


def test_the_commands_from_graph_to_predictions(command, tmp_path):
    command("patches", SOURCE, "--size", "8", "--out", "patches")
    fit = ("fit", SOURCE, "--model", "fast", "--patches", "patches", "--set", "train.epochs=3", "--memory", "1.5")
    output = command(*fit)
    assert "Peak memory: " in output
    assert "with batches of 256 nodes" in output
    [record] = read_records(tmp_path / "run" / "records.jsonl")
    assert record["settings"]["patches"]["size"] == 8
    assert record["settings"]["train"]["epochs"] == 3
    assert record["batch_size"] == 256
    assert json.loads((tmp_path / "run" / "model.json").read_text())["parameters"]["memory"] == int(1.5 * GIB)
    assert "200 rows" in command("predict", "run", "--out", "p.parquet")
    (tmp_path / "patches").rename(tmp_path / "moved")
    assert "does not exist; make it again" in command("predict", "run", code=2)
    assert "200 rows" in command("predict", "run", "--patches", "moved", "--out", "q.parquet")
    assert PatchTable.open(tmp_path / "moved").n == 200
    assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "q.parquet").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--patches", "patches"], "pass --model fast"),
        (["--patches", "patches", "--model", "fast", "--set", "patches.size=4"], "pass --set patches.size=8"),
        (["--patches", "nowhere", "--model", "fast"], "nowhere has no patch table"),
        (["--engine", "ray", "--model", "fast"], "--engine ray trains from a patch table"),
        (["--workers", "2"], "--workers 2 is for a cluster; pass --engine ray too"),
        (["--engine", "spark"], "there is no engine 'spark'"),
    ],
)
def test_a_mistake_is_one_line(command, arguments, words):
    command("patches", SOURCE, "--size", "8", "--out", "patches")
    assert words in command("fit", SOURCE, *arguments, code=2)


def test_a_cluster_needs_a_table(graph, table, tmp_path):
    with pytest.raises(InputError, match="from a patch table and with a checkpoint"):
        quick().fit(graph, engine=RayEngine(), checkpoint=tmp_path / "c")
    with pytest.raises(InputError, match="from a patch table and with a checkpoint"):
        quick().fit(graph, patch_table=table, engine=RayEngine())
