"""The baselines by name, their search spaces, and how one is built."""

from __future__ import annotations

import inspect
from collections import UserDict
from importlib import import_module
from typing import Any

import numpy as np

from gpatcher.baselines import baseline_titles
from gpatcher.baselines.base import Baseline
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split


def _load(name: str) -> type[Baseline]:
    """Import the one subclass of `Baseline` that the file of this name defines."""
    module = import_module(f"gpatcher.baselines.{name}")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Baseline) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise TypeError(f"{module.__file__} must define one subclass of Baseline, it has {len(classes)}")
    return classes[0]


class _Baselines(UserDict[str, Any]):
    """The models by name, each imported on first use: most need torch_geometric, which takes as long as torch."""

    def __getitem__(self, name: str) -> type[Baseline]:
        if self.data[name] is None:
            self.data[name] = _load(name)
        model: type[Baseline] = self.data[name]
        return model


BASELINES = _Baselines(dict.fromkeys(baseline_titles()))


def baseline_space(name: str) -> dict[str, list[Any]]:
    """Return the settings of a baseline to tune, by dotted name, and the values to try."""
    return _dotted({"hidden": [64, 32, 128], "dropout": [0.2, 0.5, 0.7], **BASELINES[name].SEARCH})


def baseline_start(name: str) -> dict[str, Any]:
    """Return what the authors of a baseline recommend, by dotted name; empty if it names nothing."""
    return _dotted(BASELINES[name].START)


def _dotted(values: dict[str, Any]) -> dict[str, Any]:
    return {key if "." in key else f"model.{key}": value for key, value in values.items()}


def make_baseline(name: str, graph: Graph, features: int, split: Split, **parameters: Any) -> Baseline:
    """Build a baseline by its name, with its hyper-parameters.

    ``features`` is the number of columns that it will be called with. A model that takes labels gets those of
    ``split.train`` and no others.
    """
    if name not in BASELINES:
        raise InputError(f"unknown baseline {name!r}; choose one of {', '.join(BASELINES)}")
    model = BASELINES[name]
    signature = inspect.signature(model).parameters
    options = [option for option in signature if option not in ("graph", "features", "labels")]
    for parameter in parameters:
        if parameter not in options:
            raise InputError(f"{name} has no parameter {parameter!r}; it has {', '.join(options)}")
    if "labels" in signature:
        parameters["labels"] = np.full(graph.n, -1)
        parameters["labels"][split.train] = graph.labels()[split.train]
    return model(graph, features, **parameters)
