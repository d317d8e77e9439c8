"""Configurations that ship with the package: the paper's plain reading, and what validation chose per data set."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from gpatcher.errors import InputError

MODELS = {"gpatcher": "heterophily-aware", "fast": "ppr"}  # the extractor that each name stands for


# NOTE[DIFF] rows are scaled by their scores here too: without it no gradient would reach the filter.
PAPER: dict[str, Any] = {
    "patch_size": 32,
    "filters": 10,
    "c": 0.5,
    "hidden": 64,
    "mixer_hidden": None,
    "layers": 2,
    "dropout": 0.5,
    "input_dropout": 0.0,
    "skip": False,
    "paths": ("mixer",),
    "head_layers": 2,
    "normalise": "standard",
    "lr": 0.005,
    "weight_decay": 5e-4,
    "epochs": 500,
    "patience": 50,
    "stop": "loss",
}


def shipped() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the presets found by validation: data set → model → parameters."""
    found: dict[str, dict[str, dict[str, Any]]] = json.loads((files("gpatcher") / "presets.json").read_text())
    return found


def parameters(model: str, dataset: str, preset: str | None = None) -> dict[str, Any]:
    """Return the parameters of the estimator for a model on a data set.

    Parameters
    ----------
    model : gpatcher or fast
    dataset : the key of a named data set, or anything else
    preset : ``paper``, ``default``, the name of a data set, or None for that of ``dataset`` where there is one
    """
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}; there are {', '.join(MODELS)}")
    base: dict[str, Any] = {"extractor": MODELS[model]}
    if preset == "paper":
        return base | PAPER
    if preset == "default":
        return base
    known = shipped()
    if preset is not None and preset.lower() not in known:
        raise InputError(f"there is no preset {preset!r}; there are paper, default, {', '.join(known)}")
    chosen = known.get((preset or dataset).lower(), {}).get(model, {})
    return base | {name: tuple(value) if name == "paths" else value for name, value in chosen.items()}
