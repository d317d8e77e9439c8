"""Classifiers with rounds that read the labels of members: saved, interrupted, on unseen nodes, from a table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.prepare import prepare, training_labels
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches import PPR, AdaptiveFilter, Hop, Overlap
from gpatcher.patches.store import StoredPatches, write_patches
from gpatcher.training.loop import TrainConfig, predict_logits

SOURCES = {
    "one": (Hop(size=6),),
    "two": (PPR(size=4, direction="out"), Hop(size=4, direction="in")),
    "overlap": (Hop(size=4), Overlap(size=3, threshold=0.2, direction="in")),
    "learned": (Hop(size=4), AdaptiveFilter(size=3, K=4)),
}


@pytest.fixture(params=SOURCES.values(), ids=SOURCES)
def sources(request):
    return request.param


@pytest.fixture(scope="module")
def directed():
    """A directed graph of three classes, some nodes without a label."""
    rng = np.random.default_rng(5)
    pairs = np.unique(rng.integers(0, 70, (240, 2)), axis=0)
    y = rng.integers(0, 3, 70)
    x = (rng.normal(size=(70, 5)) + np.eye(3, 5)[y]).astype(np.float32)
    y[rng.choice(70, 5, replace=False)] = -1
    return Graph.from_edge_index(pairs[pairs[:, 0] != pairs[:, 1]].T, x=x, y=y, num_nodes=70)


def deep(sources, *, rounds=2, norm="batch", residual=True, selection=False, structure=(), **train):
    return GPatcherClassifier(
        patches=sources,
        features=FeatureConfig(structure=structure),
        model=ModelConfig(
            hidden=8,
            mixer_hidden=4,
            rounds=rounds,
            norm=norm,
            residual=residual,
            selection=selection,
            jump=True,
            readout=("ego", "mean", "mixer", "labels"),
        ),
        train=TrainConfig(**{"epochs": 4, "lr": 0.02, "filter_lr": 10.0, "reselect_every": 3, **train}),
    )


@pytest.mark.parametrize(
    "options",
    [{"norm": "layer"}, {"norm": "batch"}, {"norm": "batch", "residual": False}, {"selection": True}],
    ids=str,
)
def test_a_loaded_model_predicts_the_same(directed, sources, options, tmp_path):
    model = deep(sources, **options).fit(directed)
    model.save(tmp_path)
    loaded = GPatcherClassifier.load(tmp_path, directed)
    assert (loaded.extractors_, loaded.model) == (model.extractors_, model.model)
    np.testing.assert_array_equal(loaded.decision_function(), model.decision_function())
    np.testing.assert_allclose(model.decision_function(nodes=[7, 3]), model.decision_function()[[7, 3]], atol=1e-6)


def join(graph):
    """Three unseen nodes: joined to the graph and one another in both directions, the last without an edge."""
    n = graph.n
    edges = [[n, 3, n + 1, 8, n + 1, 12], [3, n, 5, n + 1, n, n]]
    return UnseenNodes.join(graph, edges, np.random.default_rng(3).normal(size=(3, 5)).astype(np.float32))


def logits_on_the_extended_graph(model, unseen):
    """The answer of a model with the same weights, prepared on the whole extended graph."""
    extended = unseen.extended()
    prepared = prepare(extended, model.extractors_, model.features)
    labels = np.full(extended.n, -1)
    labels[model.split_.train] = unseen.graph.labels()[model.split_.train]
    pairs = zip(model.extractors_, prepared.data, strict=True)
    made = [extractor.source(data) for extractor, data in pairs]
    other = GPatcher(made, prepared.x.shape[1], len(model.classes_), model.model, torch.from_numpy(labels))
    weights = {name: w for name, w in model.model_.state_dict().items() if not name.endswith(".members")}
    other.load_state_dict(weights, strict=False)
    other.reselect()
    return predict_logits(other, prepared.x, unseen.nodes).numpy()


@pytest.mark.parametrize(
    "options", [{"rounds": 1}, {"rounds": 2}, {"rounds": 2, "residual": False}, {"selection": True}], ids=str
)
@pytest.mark.parametrize("structure", [(), ("degree", "clustering")], ids=["features", "structure"])
def test_unseen_nodes_get_the_answer_of_the_extended_graph(directed, sources, options, structure, tmp_path):
    model = deep(sources, structure=structure, **options).fit(directed)
    before = model.decision_function()
    unseen = join(directed)
    logits = model.decision_function(unseen)
    np.testing.assert_allclose(logits, logits_on_the_extended_graph(model, unseen), atol=2e-4)
    # labels reach them, and the model itself is as before
    other = replace(directed, y=np.where(directed.y < 0, -1, (directed.y + 1) % 3))
    model.save(tmp_path)
    changed = GPatcherClassifier.load(tmp_path).decision_function(replace(unseen, graph=other))
    assert np.abs(changed - logits).max() > 1e-3
    np.testing.assert_array_equal(model.decision_function(), before)


def test_only_training_labels_are_read(directed):
    model = deep(SOURCES["two"]).fit(directed)
    labels = training_labels(directed.labels(), model.split_.train)
    assert torch.equal(model.model_.labels, labels)
    assert set(np.flatnonzero(labels >= 0)) == set(model.split_.train)


@pytest.mark.parametrize(("kind", "batch_size"), [("two", None), ("learned", 16)])
def test_an_interrupted_run_continues_with_the_same_numbers(directed, kind, batch_size, tmp_path):
    def stop(epoch, figures):
        if epoch == 12:
            raise KeyboardInterrupt

    sources, options = SOURCES[kind], {"epochs": 14, "patience": 14, "batch_size": batch_size}
    whole = deep(sources, **options).fit(directed)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        deep(sources, **options).fit(directed, checkpoint=path, progress=stop)
    epochs = []
    again = deep(sources, **options).fit(directed, checkpoint=path, progress=lambda epoch, _: epochs.append(epoch))
    assert epochs[0] == 11
    assert again.result_.history == whole.result_.history
    np.testing.assert_array_equal(again.decision_function(), whole.decision_function())


def test_a_patch_table_gives_the_numbers_of_memory(directed, tmp_path):
    [extractor] = sources = (PPR(size=4, direction="out"),)
    table = write_patches(directed, tmp_path / "patches", extractor, shard=30)
    in_memory = deep(sources).fit(directed)
    from_disk = deep(sources).fit(directed, patch_table=table)
    assert isinstance(from_disk.model_.sources[0], StoredPatches)
    assert from_disk.result_.history == in_memory.result_.history
    np.testing.assert_array_equal(from_disk.decision_function(), in_memory.decision_function())
    from_disk.save(tmp_path / "run")
    loaded = GPatcherClassifier.load(tmp_path / "run", directed)
    np.testing.assert_array_equal(loaded.decision_function(), in_memory.decision_function())
