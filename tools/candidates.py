"""The pool of configurations that `tools/portfolio.py` learns a portfolio from."""

from __future__ import annotations

from typing import Any

from gpatcher.estimator.portfolio import Candidate

Settings = dict[str, Any]
EGO_MEAN = ["ego", "mean"]
BOTH: Settings = {"name": "hop", "size": 512}
OUT: Settings = {**BOTH, "direction": "out"}
IN: Settings = {**BOTH, "direction": "in"}
SAME: list[Settings] = [{"name": "overlap", "size": 64, "direction": direction} for direction in ("out", "in")]
ADJACENCY: Settings = {"normalise": "l2", "adjacency_features": True}


def _patches(name: str, patches: Any, features: Settings, model: Settings, train: Settings) -> Candidate:
    return Candidate(name, "patches", {"patches": patches, "features": features, "model": model, "train": train})


def _ppr(**parameters: Any) -> Settings:
    return {"name": "ppr", **parameters}


def _rounds(rounds: int, norm: str, **model: Any) -> Settings:
    shape = {"rounds": rounds, "norm": norm, "aggregate": "sum", "readout": EGO_MEAN, "input_dropout": 0.2}
    return {**shape, **model}


POOL = (
    _patches("adjacency, PageRank", _ppr(size=32), ADJACENCY, {"hidden": 128, "readout": EGO_MEAN},
             {"weight_decay": 2e-3}),
    _patches("smooth PageRank", _ppr(size=64, c=0.9, self_loops=True), {"normalise": "l1"},
             {"readout": EGO_MEAN, "ego_gate": 0.1, "mean_ego": True}, {"lr": 0.01}),
    _patches("smooth PageRank, consistent", _ppr(size=64, c=0.9, self_loops=True), {"normalise": "l1"},
             {"readout": EGO_MEAN, "ego_gate": 0.1, "mean_ego": True}, {"lr": 0.01, "consistency": 2.0}),
    _patches("node first", _ppr(size=8), {},
             {"hidden": 256, "input_dropout": 0.2, "readout": EGO_MEAN, "head_layers": 2},
             {"lr": 0.01, "weight_decay": 5e-3, "ema_decay": 0.95}),
    _patches("four rounds, accuracy", BOTH, {}, _rounds(4, "batch"),
             {"lr": 0.01, "monitor": "accuracy", "patience": 100}),
    _patches("four rounds", BOTH, {}, _rounds(4, "batch"), {"lr": 0.01}),
    _patches("two directed rounds", [OUT, IN], {}, _rounds(2, "layer", input_dropout=0.5), {"lr": 0.01}),
    _patches("four directed rounds, accuracy", [OUT, IN], {}, _rounds(4, "layer"),
             {"lr": 0.01, "monitor": "accuracy", "patience": 100}),
    _patches("two smooth rounds", {**BOTH, "self_loops": True}, {"normalise": "l1"},
             _rounds(2, "layer", readout=["mean"], mean_ego=True, input_dropout=0.5), {"lr": 0.01}),
    _patches("ten rounds, accuracy", BOTH, {}, _rounds(10, "batch", dropout=0.2, input_dropout=0.0),
             {"lr": 0.01, "weight_decay": 0.0, "monitor": "accuracy", "patience": 100}),
    _patches("twelve rounds, no residual", BOTH, {},
             _rounds(12, "batch", residual=False, dropout=0.2, input_dropout=0.0),
             {"lr": 0.01, "weight_decay": 0.0, "monitor": "accuracy", "patience": 100}),
    _patches("adjacency, neighbours", BOTH, ADJACENCY, {"readout": EGO_MEAN, "aggregate": "sum"},
             {"lr": 0.01, "weight_decay": 5e-3}),
    _patches("labels, PageRank", [_ppr(size=32), BOTH], {"normalise": "l2"},
             {"readout": [*EGO_MEAN, "labels"], "input_dropout": 0.2}, {"lr": 0.01, "weight_decay": 2e-3}),
    _patches("mixer", _ppr(size=16), {"normalise": "l2"}, {"hidden": 128, "layers": 1},
             {"lr": 0.01, "weight_decay": 5e-3}),
    _patches("learned filter", {"name": "heterophily-aware", "size": 16}, {}, {}, {}),
    _patches("selection, rounds along the edges", OUT, {},
             _rounds(4, "unit", residual=False, jump=True, readout=["mean"], selection=True, dropout=0.0,
                     input_dropout=0.0, head_layers=2),
             {"lr": 0.01, "weight_decay": 0.0, "epochs": 1500, "patience": 200, "monitor": "accuracy"}),
    _patches("selection, same neighbours", [OUT, IN, *SAME], {},
             {"aggregate": "sum", "readout": [*EGO_MEAN, "labels"], "selection": True, "dropout": 0.2,
              "input_dropout": 0.0, "head_layers": 2},
             {"lr": 0.01, "weight_decay": 2e-3, "epochs": 1500, "patience": 100}),
    Candidate("trees", "trees", {"features": {"structure": ["degree", "clustering"]}}),
    Candidate("trees, adjacency, same neighbours", "trees",
              {"features": {"adjacency_features": True, "structure": ["degree", "clustering"]},
               "patches": [OUT, IN, _ppr(size=64, c=0.9), *SAME]}),
    Candidate("linear", "linear", {"features": {"normalise": "l2"}}),
    Candidate("linear, adjacency", "linear", {"features": ADJACENCY, "patches": [OUT, IN, _ppr(size=64, c=0.9)]}),
)  # fmt: skip
