"""Fit fixed configurations at fixed seeds and compare their logits with those on record.

    python tools/golden.py            # compare with tests/golden.json; exit code 1 where any hash differs
    python tools/golden.py --write    # make the record anew

Every extractor, tables with all kinds of columns, unseen nodes, a patch table and two baselines. A hash covers the
bits of all logits in one thread; equal hashes mean that a change of the code changed no result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from gpatcher import GPatcherClassifier, Graph, TableClassifier, UnseenNodes
from gpatcher.datasets.synthetic import csbm
from gpatcher.model.config import ModelConfig
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches import PPR, AdaptiveFilter, Extractor, PolynomialFilter, make_extractor
from gpatcher.patches.store import write_patches
from gpatcher.runs.run import Job, run_job
from gpatcher.runs.settings import resolve_settings
from gpatcher.training.loop import TrainConfig, predict_logits

RECORD = Path(__file__).parents[1] / "tests" / "golden.json"
SHORT = TrainConfig(epochs=12)
Logits = Callable[[], Any]


def small_graph() -> Graph:
    """Return the graph that all configurations but the tables are fitted on."""
    return csbm(phi=-0.6, n=600, features=30)


def classifier(patches: Extractor | str, **parameters: Any) -> GPatcherClassifier:
    """Return a classifier with patches of 8 nodes that trains for 12 epochs."""
    patches = make_extractor(patches, {"size": 8}) if isinstance(patches, str) else patches
    return GPatcherClassifier(**({"patches": patches, "train": SHORT} | parameters))


def fitted(patches: Extractor | str, **parameters: Any) -> Logits:
    """Fit on the whole graph."""
    return lambda: classifier(patches, **parameters).fit(small_graph()).decision_function()


def paper() -> Any:
    """Fit a literal reading of the paper (`--preset paper`)."""
    settings, _ = resolve_settings("gpatcher", preset="paper", changes={"patches.size": 8, "train.epochs": 12})
    return GPatcherClassifier.from_settings(settings).fit(small_graph()).decision_function()


def every_parameter() -> Any:
    """Fit with no parameter at its default."""
    model = GPatcherClassifier(
        patches=AdaptiveFilter(size=8, sigma="tanh", c=0.9, self_loops=True),
        features=FeatureConfig(normalise="l2", adjacency_features=True, log_l1_norm=True),
        model=ModelConfig(
            hidden=32,
            mixer_hidden=8,
            layers=1,
            dropout=0.2,
            input_dropout=0.2,
            skip=True,
            readout=("ego", "mixer"),
            ego_gate=0.5,
            mixer_gate=0.1,
            mean_ego=True,
            head_layers=2,
        ),
        train=TrainConfig(
            lr=0.01,
            epochs=12,
            monitor="macro_f1",
            filter_lr=0.3,
            reselect_every=4,
            class_weights=True,
            ema_decay=0.9,
            batch_size=100,
        ),
        seed=3,
    )
    return model.fit(small_graph()).decision_function()


def tables() -> Any:
    """Fit on tables with every kind of column and missing values."""
    rng = np.random.default_rng(0)
    n = 200
    label = rng.integers(0, 3, n)
    nodes = pa.table({
        "id": [f"p{v:03}" for v in range(n)],
        "label": [f"c{y}" if v % 5 else None for v, y in enumerate(label)],
        "number": [None if v % 17 == 0 else float(x) for v, x in enumerate(rng.normal(label, 1.0))],
        "flag": pa.array((rng.random(n) < 0.2 + 0.3 * label).tolist()),
        "kind": [("red", "green", "blue")[k] for k in (label + rng.integers(0, 2, n)) % 3],
        "day": pa.array((np.datetime64("2024-01-01") + rng.integers(0, 400, n)).tolist()),
        "words": [f"word{rng.integers(5)} tale{y} and more of word{rng.integers(50)}" for y in label],
    })  # fmt: skip
    ends = rng.integers(0, n, (2, 600))
    ends = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    edges = pa.table({"source": [f"p{v:03}" for v in ends[0]], "target": [f"p{v:03}" for v in ends[1]]})
    return TableClassifier(classifier=classifier("ppr")).fit(nodes, edges).classifier_.decision_function()


def unseen(patches: Extractor | str, **parameters: Any) -> Logits:
    """Fit, then predict five unseen nodes."""

    def compute() -> Any:
        graph = small_graph()
        model = classifier(patches, **parameters).fit(graph)
        rng = np.random.default_rng(1)
        edges = np.stack([np.repeat(np.arange(600, 605), 6), rng.choice(600, 30, replace=False)])
        x = rng.normal(size=(5, 30)).astype(graph.x.dtype)
        return model.decision_function(UnseenNodes.join(graph, edges, x))

    return compute


def patch_table() -> Any:
    """Fit from a patch table on disk, in batches."""
    with tempfile.TemporaryDirectory() as folder:
        table = write_patches(small_graph(), folder, PPR(size=8), shard=100)
        model = classifier(table.extractor, train=TrainConfig(epochs=12, batch_size=64))
        return model.fit(small_graph(), patch_table=table).decision_function()


def baseline(name: str) -> Logits:
    """Train a baseline."""

    def compute() -> Any:
        graph = small_graph()
        settings = {"features": {"normalise": "l1"}, "model": {"hidden": 16}, "train": {"epochs": 12}}
        run = run_job(Job("golden", "csbm", name, settings, 0, 0), graph, graph.splits[0])
        return predict_logits(run.module, run.x, np.arange(graph.n)).numpy()

    return compute


CONFIGURATIONS: dict[str, Logits] = {
    "heterophily-aware": fitted("heterophily-aware"),
    "polynomial": fitted("polynomial"),
    "polynomial without eigenvectors": fitted("polynomial", memory=1),
    "shared": fitted("shared"),
    "heat": fitted("heat"),
    "bandpass": fitted("bandpass"),
    "ppr": fitted("ppr"),
    "auto": fitted("auto"),
    "paper": paper,
    "every parameter": every_parameter,
    "tables": tables,
    "unseen nodes, ppr": unseen("ppr"),
    "unseen nodes, ppr, adjacency features": unseen("ppr", features=FeatureConfig(adjacency_features=True)),
    "unseen nodes, polynomial without eigenvectors": unseen(PolynomialFilter(size=8, exact=False)),
    "unseen nodes, heterophily-aware": unseen("heterophily-aware"),
    "patch table": patch_table,
    "gcn": baseline("gcn"),
    "h2gcn": baseline("h2gcn"),
}


def main() -> None:
    """Compare with the record, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the record anew")
    write = parser.parse_args().write
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made = {}
    for name, compute in CONFIGURATIONS.items():
        logits = np.ascontiguousarray(compute(), dtype=np.float32)
        digest = hashlib.sha256(logits.tobytes()).hexdigest()[:16]
        made[name] = {"hash": digest, "shape": list(logits.shape), "first": [round(float(v), 4) for v in logits[0]]}
        print(f"{digest}  {name}")
    if write:
        RECORD.write_text(json.dumps(made, indent=1) + "\n")
        return
    known = json.loads(RECORD.read_text())
    differ = [name for name in known if made.get(name) != known[name]]
    print(
        f"{len(known) - len(differ)} of {len(known)} are equal"
        + (f"; not equal: {', '.join(differ)}" if differ else "")
    )
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
