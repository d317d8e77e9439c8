"""Training and prediction from a patch table and features on disk: the same numbers as in memory, in bounded memory."""

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
from gpatcher.estimator.classifier import GPatcherClassifier, table_parameters
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import NORMS, FeatureTable, node_features
from gpatcher.patches.store import PatchTable, TablePatches, write_patches
from gpatcher.runs import run as experiment
from gpatcher.runs.predict import prediction_columns, write_predictions
from gpatcher.runs.records import read_records
from gpatcher.runs.run import run_splits

QUICK = {"hidden": 8, "mixer_hidden": 4, "epochs": 4, "batch_size": 16}
GIB = 2**30


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=120, features=6)


@pytest.fixture(scope="module")
def table(graph, tmp_path_factory):
    return write_patches(graph, tmp_path_factory.mktemp("patches"), size=4, shard=50)


@pytest.fixture
def mapped(graph, tmp_path):
    np.save(tmp_path / "x.npy", graph.x)
    return replace(graph, x=np.load(tmp_path / "x.npy", mmap_mode="r"))


def quick(table, **options):
    return GPatcherClassifier(**table_parameters(table), **{**QUICK, **options})


def losses(model):
    return [list(figures.values()) for figures in model.result_.history]


# ------------------------------------------------------------------------------------------ same numbers


@pytest.mark.parametrize("normalise", NORMS)
def test_the_table_and_mapped_features_change_no_number(graph, mapped, table, normalise):
    in_memory = quick(table, normalise=normalise).fit(graph)
    from_disk = quick(table, normalise=normalise).fit(mapped, patches=table)
    assert isinstance(from_disk.model_.patches, TablePatches)
    np.testing.assert_allclose(losses(from_disk), losses(in_memory), atol=1e-6)
    np.testing.assert_allclose(from_disk.predict_proba(), in_memory.predict_proba(), atol=1e-6)
    np.testing.assert_array_equal(from_disk.patches_.index, in_memory.patches_.index)


def test_sparse_features(graph, table):
    sparse = replace(graph, x=sp.csr_array(np.where(graph.x > 0, graph.x, 0)))
    found = [quick(table).fit(sparse, patches=source) for source in (None, table)]
    assert losses(found[0]) == losses(found[1])


def test_reading_ahead_changes_no_number_and_happens_beside(mapped, table, monkeypatch):
    threads = set()
    fetch = GPatcher.fetch

    def noted(self, x, nodes):
        threads.add(threading.current_thread() is threading.main_thread())
        return fetch(self, x, nodes)

    monkeypatch.setattr(GPatcher, "fetch", noted)
    ahead = quick(table).fit(mapped, patches=table)
    assert threads == {False}
    monkeypatch.setattr(GPatcher, "reads_ahead", False)
    threads.clear()
    plain = quick(table).fit(mapped, patches=table)
    assert threads == {True}
    assert losses(ahead) == losses(plain)
    np.testing.assert_array_equal(ahead.predict_proba(nodes=[5, 2]), plain.predict_proba(nodes=[5, 2]))


def test_a_learned_filter_is_not_read_ahead(graph):
    model = GPatcherClassifier(extractor="polynomial", patch_size=4, **QUICK).fit(graph)
    assert not model.model_.reads_ahead


def test_a_batch_holds_the_distinct_nodes_it_meets(mapped, table):
    model = quick(table).fit(mapped, patches=table).model_
    batch = model.fetch(FeatureTable(mapped.x), torch.tensor([3, 3, 7]))
    met = np.unique(np.maximum(table[[3, 7]].index, 0))
    assert batch.x.shape == (len(met), mapped.num_features)
    assert not batch.x.mapped
    np.testing.assert_array_equal(met[batch.index], np.maximum(table[[3, 3, 7]].index, 0))


@pytest.mark.parametrize("size", [1, 7, 64])
def test_gradients_of_batches_add_up_to_that_of_all(mapped, table, size):
    torch.manual_seed(0)
    model = GPatcher(TablePatches(table), 6, 2, hidden=8, dropout=0.0, input_dropout=0.0).train()
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
    model = quick(table, memory=2 * GIB, batch_size=None).fit(bare, patches=table)
    assert model.predict(nodes=[0, 1]).shape == (2,)


def test_an_interrupted_run_of_batches_goes_on(mapped, table, tmp_path):
    options = {**table_parameters(table), **QUICK, "epochs": 25, "patience": 25}
    [whole] = run_splits(mapped, "fast", options, tmp_path / "a", patches=table.folder)

    def stop(run, runs, epoch, most, figures):
        if epoch == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_splits(mapped, "fast", options, tmp_path / "b", patches=table.folder, progress=stop)
    told = []
    [again] = run_splits(
        mapped,
        "fast",
        options,
        tmp_path / "b",
        patches=table.folder,
        resume=True,
        progress=lambda run, runs, epoch, most, figures: told.append(epoch),
    )
    assert told[0] == 11
    same = ("val_accuracy", "test_accuracy", "best_epoch", "epochs")
    assert [whole[name] for name in same] == [again[name] for name in same]


# ------------------------------------------------------------------------------------------ which table


def test_a_table_of_another_graph_is_refused(table):
    with pytest.raises(InputError, match="belongs to another graph"):
        quick(table).fit(csbm(phi=0.5, n=120, features=6), patches=table)


@pytest.mark.parametrize("other", [{"patch_size": 5}, {"extractor": "heat"}, {"eps": 1e-3}])
def test_a_table_made_otherwise_is_refused(graph, table, other):
    model = GPatcherClassifier(**{**table_parameters(table), **QUICK, **other})
    with pytest.raises(InputError, match=f"{next(iter(other))}=.*table_parameters"):
        model.fit(graph, patches=table)


def test_a_saved_model_remembers_its_table(graph, tmp_path):
    table = write_patches(graph, tmp_path / "patches", size=4)
    model = quick(table).fit(graph, patches=tmp_path / "patches")
    model.save(tmp_path / "run")
    loaded = GPatcherClassifier.load(tmp_path / "run", graph)
    assert isinstance(loaded.model_.patches, TablePatches)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    (tmp_path / "patches").rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"patches that the model was trained with is gone.*--size 4 --c 0\.5"):
        GPatcherClassifier.load(tmp_path / "run", graph)
    moved = GPatcherClassifier.load(tmp_path / "run", graph, patches=tmp_path / "moved")
    np.testing.assert_array_equal(moved.predict_proba(), model.predict_proba())


# ------------------------------------------------------------------------------------------ memory


def chosen(model, graph, table):
    return model.fit(graph, patches=table).batch_size_


def test_the_batch_size_follows_from_the_memory(graph, table):
    wide = {"batch_size": None, "epochs": 1, "hidden": 512}
    sizes = [chosen(quick(table, **wide, memory=int(m * GIB)), graph, table) for m in (0.6875, 0.75)]
    assert sizes == [64, 128]  # no more than the graph has nodes
    assert chosen(quick(table, batch_size=9, memory=GIB), graph, table) == 9
    assert chosen(quick(table, batch_size=None), graph, table) == 4096
    assert quick(table, batch_size=None).fit(graph).batch_size_ is None


def test_too_little_memory(graph, table):
    with pytest.raises(InputError, match=r"memory=0\.10 GiB is too little: graph and program take about 0\.\d\d GiB"):
        quick(table, batch_size=None, memory=GIB // 10).fit(graph, patches=table)


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "features", "hidden"), [(1.0, 64, 64), (1.5, 8, 128)])
def test_the_peak_stays_within_the_memory(tmp_path, memory, features, hidden):
    script = f"""
import json, numpy as np, sys
from gpatcher.datasets.synthetic import rmat
from gpatcher.patches.store import write_patches
from gpatcher.estimator.classifier import GPatcherClassifier, table_parameters
from gpatcher.runs.records import peak_rss_mb
graph = rmat(n=60_000, m=200_000, features={features})
table = write_patches(graph, sys.argv[1], size=16, eps=1e-3)
options = table_parameters(table) | dict(hidden={hidden}, mixer_hidden=None, epochs=1, memory=int({memory} * 2**30))
model = GPatcherClassifier(**options).fit(graph, patches=table)
print(json.dumps([model.batch_size_, peak_rss_mb()]))
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    batch, peak = json.loads(done.stdout)
    assert 32 < batch < 4096
    assert 0.5 * memory * 1024 < peak < memory * 1024


def test_predictions_are_written_in_pieces(graph, table, tmp_path, monkeypatch):
    model = quick(table).fit(graph, patches=table)
    monkeypatch.setattr(experiment, "_ROWS", 50)
    told = []
    write_predictions(model, graph, tmp_path / "p.parquet", lambda done, total: told.append((done, total)))
    assert told == [(50, 120), (100, 120), (120, 120)]
    found = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    for name, values in prediction_columns(model, graph).items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found[name].to_numpy(), values, atol=1e-6)
        else:
            assert found[name].to_pylist() == values.tolist()


@pytest.mark.parametrize("kind", ["mapped", "part of a mapped", "dense", "sparse"])
def test_features_in_another_process(mapped, kind):
    x = {
        "mapped": mapped.x,
        "part of a mapped": mapped.x[10:],
        "dense": np.array(mapped.x),
        "sparse": sp.csr_array(np.array(mapped.x)),
    }[kind]
    sent = pickle.dumps(node_features(replace(mapped, x=x), "l2"))
    table = pickle.loads(sent)
    assert (len(sent) < 1000) == (kind == "mapped")  # the place of the file is enough
    dense = np.asarray(x.toarray() if sp.issparse(x) else x)
    expected = dense / np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(table.linear(torch.eye(6)), expected, atol=1e-6)


# ------------------------------------------------------------------------------------------ as a command


@pytest.fixture
def command(command_in, tmp_path):
    def call(*arguments, code=0):
        shown = command_in(tmp_path, *arguments, code=code)
        return shown.stderr if code else shown.stdout

    return call


SOURCE = "csbm:phi=-0.5,n=200,features=8"


def test_the_commands_from_graph_to_predictions(command, tmp_path):
    command("patches", SOURCE, "--size", "8", "--out", "patches")
    shown = command("fit", SOURCE, "--model", "fast", "--patches", "patches", "--epochs", "3", "--memory", "1.5")
    assert "Peak memory: " in shown
    assert "with batches of 256 nodes" in shown
    [record] = read_records(tmp_path / "run" / "records.jsonl")
    assert record["config"]["patch_size"] == 8
    assert record["config"]["memory"] == int(1.5 * GIB)
    assert "200 rows" in command("predict", "run", "--out", "p.parquet")
    (tmp_path / "patches").rename(tmp_path / "moved")
    assert "is gone; make it again" in command("predict", "run", code=2)
    assert "200 rows" in command("predict", "run", "--patches", "moved", "--out", "q.parquet")
    assert PatchTable.open(tmp_path / "moved").n == 200
    assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "q.parquet").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--patches", "patches"], "pass --model fast"),
        (["--patches", "patches", "--model", "fast", "--patch-size", "4"], "pass --patch-size 8"),
        (["--patches", "nowhere", "--model", "fast"], "nowhere holds no patch table"),
        (["--engine", "ray", "--model", "fast"], "--engine ray trains from a patch table"),
        (["--workers", "2"], "--workers 2 is for a cluster; pass --engine ray too"),
        (["--engine", "spark"], "there is no engine 'spark'"),
    ],
)
def test_a_mistake_gets_one_line(command, arguments, words):
    command("patches", SOURCE, "--size", "8", "--out", "patches")
    assert words in command("fit", SOURCE, *arguments, code=2)


def test_a_cluster_needs_a_table(graph, table, tmp_path):
    from gpatcher.scale.executors import RayEngine

    with pytest.raises(InputError, match="from a patch table and with a checkpoint"):
        quick(table).fit(graph, engine=RayEngine(), checkpoint=tmp_path / "c")
    with pytest.raises(InputError, match="from a patch table and with a checkpoint"):
        quick(table).fit(graph, patches=table, engine=RayEngine())
