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

from gpatcher.datasets.synthetic import csbm
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.tables import TableClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches.store import write_patches
from gpatcher.runs.models import train_model
from gpatcher.runs.settings import PAPER
from gpatcher.training.loop import predict_logits

RECORD = Path(__file__).parents[1] / "tests" / "golden.json"
SHORT = {"epochs": 12, "patch_size": 8}


def graph() -> Graph:
    return csbm(phi=-0.6, n=600, features=30)


def fitted(**parameters: Any) -> Any:
    return GPatcherClassifier(**(SHORT | parameters)).fit(graph()).decision_function()


def paper() -> Any:
    return fitted(**(PAPER | SHORT))


def everything() -> Any:
    return fitted(
        extractor="heterophily-aware", sigma="tanh", c=0.9, self_loops=True, hidden=32, mixer_hidden=8, layers=1,
        dropout=0.2, input_dropout=0.2, skip=True, paths=("ego", "mixer"), ego_gate=0.5, mixer_gate=0.1,
        mean_ego=True, head_layers=2, normalise="l2", structure=True, mass=True, lr=0.01, stop="macro_f1",
        filter_lr=0.3, renew_every=4, class_weights=True, average=0.9, batch_size=100, seed=3,
    )  # fmt: skip


def tables() -> Any:
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
    ends = ends[:, ends[0] != ends[1]]
    ends = np.unique(ends, axis=1)
    edges = pa.table({"source": [f"p{v:03}" for v in ends[0]], "target": [f"p{v:03}" for v in ends[1]]})
    model = TableClassifier(classifier=GPatcherClassifier(extractor="ppr", **SHORT)).fit(nodes, edges)
    return model.classifier_.decision_function()


def unseen(extractor: str, **parameters: Any) -> Any:
    whole = graph()
    known = GPatcherClassifier(extractor=extractor, **(SHORT | parameters)).fit(whole)
    rng = np.random.default_rng(1)
    ends = np.stack([np.repeat(np.arange(600, 605), 6), rng.choice(600, 30, replace=False)])
    x = rng.normal(size=(5, 30)).astype(whole.x.dtype)
    return known.decision_function_new(UnseenNodes.join(whole, ends, x))


def patch_table() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        table = write_patches(graph(), folder, size=8, shard=100)
        model = GPatcherClassifier(extractor="ppr", batch_size=64, **SHORT).fit(graph(), patches=table)
        return model.decision_function()


def baseline(name: str) -> Any:
    data = graph()
    outcome = train_model(name, data, data.splits[0], 0, {"hidden": 16, "epochs": 12, "normalise": "l1"})
    from gpatcher.model.inputs import node_features

    return predict_logits(outcome.model, node_features(data, "l1"), np.arange(data.n)).numpy()


CONFIGURATIONS: dict[str, Callable[[], Any]] = {
    "heterophily-aware": lambda: fitted(extractor="heterophily-aware"),
    "polynomial": lambda: fitted(extractor="polynomial"),
    "polynomial without eigenvectors": lambda: fitted(extractor="polynomial", memory=1),
    "shared": lambda: fitted(extractor="shared"),
    "heat": lambda: fitted(extractor="heat"),
    "bandpass": lambda: fitted(extractor="bandpass"),
    "ppr": lambda: fitted(extractor="ppr"),
    "auto": lambda: fitted(extractor="auto"),
    "paper": paper,
    "every parameter": everything,
    "tables": tables,
    "unseen nodes, ppr": lambda: unseen("ppr"),
    "unseen nodes, ppr, adjacency features": lambda: unseen("ppr", structure=True),
    "unseen nodes, polynomial without eigenvectors": lambda: unseen("polynomial", memory=1),
    "unseen nodes, heterophily-aware": lambda: unseen("heterophily-aware"),
    "patch table": patch_table,
    "gcn": lambda: baseline("gcn"),
    "h2gcn": lambda: baseline("h2gcn"),
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
