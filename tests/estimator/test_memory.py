"""Memory, device and patch tables: where arrays live, and how many nodes a step takes."""

import json
import shutil

import numpy as np
import pytest
import torch

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.memory import DEFAULT_BATCH, choose_batch_size, held_bytes, peak_rss_mb, reset_peak
from gpatcher.estimator.prepare import check_device
from gpatcher.patches import PPR, HeatKernel
from gpatcher.patches.store import write_patches
from gpatcher.scale.executors import RayEngine

# ------------------------------------------------------------------------------------------------ memory


def test_without_a_bound_all_nodes_are_in_one_step(graph, quick):
    for name in ("ppr", "heterophily-aware"):
        assert quick(name).fit(graph).batch_size_ is None
    assert quick(train={"batch_size": 7}).fit(graph).batch_size_ == 7
    assert quick("heterophily-aware", train={"batch_size": 7}).fit(graph).batch_size_ == 7


@pytest.mark.parametrize("sources", ["ppr", [{"name": "ppr", "size": 4}, {"name": "heat", "size": 3}]], ids=["1", "2"])
def test_memory_bounds_the_batch(graph, quick, sources):
    model = quick(sources)
    [prepared] = model.prepare(graph)
    module = prepared.build(2, model.model)
    held = held_bytes(prepared)
    assert held > prepared.x.nbytes + sum(data.nbytes for data in prepared.data)
    for batch in (32, 64, 128):  # 128: the next power of two above the 80 nodes
        step = module.step_bytes(batch, prepared.x)
        assert choose_batch_size(module, prepared, held + step) == batch
        assert choose_batch_size(module, prepared, held + 4 * step, passes=4) == batch
    assert choose_batch_size(module, prepared, 1 << 40) == 128
    with pytest.raises(InputError, match=r"too little.*batches of 32 nodes"):
        choose_batch_size(module, prepared, held + module.step_bytes(32, prepared.x) - 1)
    fitted = model.set_params(memory=held + module.step_bytes(32, prepared.x)).fit(graph)
    assert fitted.batch_size_ == 32
    np.testing.assert_allclose(fitted.predict_proba(nodes=[5, 9]), fitted.predict_proba()[[5, 9]], atol=1e-5)


def test_memory_does_not_bound_the_batch_of_a_learned_filter(graph, quick):
    assert quick("heterophily-aware", memory=1 << 40).fit(graph).batch_size_ is None
    mixed = [{"name": "ppr", "size": 4}, {"name": "heterophily-aware", "size": 4}]
    assert quick(mixed, memory=1 << 40).fit(graph).batch_size_ is None


def test_memory_decides_about_eigenvectors(graph, quick):
    with pytest.raises(InputError, match="ppr"):
        quick("heat", memory=10).fit(graph)
    # without a choice of its own, a polynomial filter does without them, and auto compares that one
    [extractor] = quick("polynomial", memory=10).fit(graph).extractors_
    assert extractor.exact is False
    [extractor] = quick("polynomial").fit(graph).extractors_
    assert extractor.exact is True
    options = quick("auto", memory=10).prepare(graph)
    assert [option.extractors[0].name for option in options] == ["polynomial", "ppr"]


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_the_peak_follows_what_is_held():
    reset_peak()
    before = peak_rss_mb()
    assert before > 50
    block = np.ones(512 << 20, np.uint8)  # more than freed memory that the process may still hold
    assert peak_rss_mb() >= before + 40
    del block


# ------------------------------------------------------------------------------------------------ device


def test_the_device_is_checked_and_saved(graph, quick, tmp_path):
    assert check_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="nonsense"):
        check_device("nonsense")
    model = quick(device="cpu").fit(graph)
    assert model.features_.device == torch.device("cpu")
    model.save(tmp_path)
    assert json.loads((tmp_path / "model.json").read_text())["parameters"]["device"] == "cpu"
    # what was prepared on one device does not serve another
    [prepared] = model.prepare(graph)
    assert prepared.fits(graph, model.extractors_, model.features, "cpu")
    assert not prepared.fits(graph, model.extractors_, model.features, "meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_missing_is_named(graph, quick):
    with pytest.raises(InputError, match="'cuda'"):
        quick(device="cuda").fit(graph)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("sources", ["ppr", "heterophily-aware", [{"name": "ppr"}, {"name": "heterophily-aware"}]])
def test_a_gpu_gives_the_answers_of_the_cpu(graph, quick, sources):
    quiet = {"dropout": 0.0, "input_dropout": 0.0, "skip": True}
    one, other = (quick(sources, model=quiet, device=device).fit(graph) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(other.predict_proba(), one.predict_proba(), atol=1e-2)


# ------------------------------------------------------------------------------------------------ patch tables


@pytest.fixture
def table(graph, tmp_path):
    return write_patches(graph, tmp_path / "patches", PPR(size=4), shard=24)


def test_patches_from_disk_give_the_same_model(graph, quick, table):
    expected = quick().fit(graph)
    for given in (table, table.folder, str(table.folder)):
        model = quick().fit(graph, patch_table=given)
        assert model.batch_size_ == DEFAULT_BATCH
        assert model.extractors_ == (PPR(size=4),)
        np.testing.assert_allclose(model.predict_proba(), expected.predict_proba(), atol=1e-6)
        np.testing.assert_array_equal(model.patches_.index, expected.patches_.index)
        np.testing.assert_array_equal(model.filter_response().response, expected.filter_response().response)
        for member, other in zip(model.explain(3).members, expected.explain(3).members, strict=True):
            assert (member.node, member.position) == (other.node, other.position)
            assert member.contribution == pytest.approx(other.contribution, abs=1e-5)


def test_what_was_prepared_from_a_table_is_shared(graph, quick, table):
    model = quick()
    [prepared] = model.prepare(graph, table)
    assert prepared.from_disk
    assert prepared.table == table.folder
    assert model.fit(graph, prepared=(prepared,))._prepared is prepared
    assert model.set_params(patches__size=3).fit(graph, prepared=(prepared,)).patches_.size == 3


def test_a_table_of_another_extractor_or_graph_is_refused(graph, quick, table):
    with pytest.raises(InputError, match=r"PPR\(size=4.*PPR\(size=5"):
        quick(patches={"size": 5}).fit(graph, patch_table=table)
    with pytest.raises(InputError, match=r"PPR\(size=4.*HeatKernel"):
        GPatcherClassifier(patches=HeatKernel()).fit(graph, patch_table=table)
    with pytest.raises(InputError, match=r"table\.extractor"):  # a table holds the patches of one source
        GPatcherClassifier(patches=(PPR(size=4), PPR(size=4))).fit(graph, patch_table=table)
    other = csbm(phi=-0.5, n=80, features=6, seed=1)
    with pytest.raises(InputError, match=f"{graph.fingerprint}.*{other.fingerprint}"):
        quick().fit(other, patch_table=table)
    with pytest.raises(InputError, match="no patch table"):
        quick().fit(graph, patch_table=table.folder / "nowhere")


def test_a_saved_model_knows_its_table(graph, quick, table, tmp_path):
    model = GPatcherClassifier(**{**quick().get_params(deep=False), "patches": table.extractor})
    model.fit(graph, patch_table=table)
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "model.json").read_text())["details"]["patch_table"] == str(table.folder)
    loaded = GPatcherClassifier.load(tmp_path / "model", graph)
    assert loaded._prepared.from_disk
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    # where it has moved
    moved = tmp_path / "moved"
    shutil.move(table.folder, moved)
    with pytest.raises(InputError, match=r"does not exist.*--size 4 --c 0.5 --eps 1e-05.*--patches"):
        GPatcherClassifier.load(tmp_path / "model", graph)
    loaded = GPatcherClassifier.load(tmp_path / "model", graph, patch_table=moved)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    loaded.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "model.json").read_text())["details"]["patch_table"] == str(moved)


def test_a_cluster_needs_a_table_and_a_checkpoint(graph, quick, table, tmp_path):
    with pytest.raises(InputError, match=r"patch_table="):
        quick().fit(graph, checkpoint=tmp_path / "state.safetensors", engine=RayEngine())
    with pytest.raises(InputError, match="checkpoint"):
        quick().fit(graph, patch_table=table, engine=RayEngine())
