"""Baseline models, one file each; the name of a file is the name of its model.

`baseline_titles` imports neither a model nor torch, so that reports and ``--help`` stay fast. The other names load
torch; a model is imported on its first use.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpatcher.baselines.registry import BASELINES, baseline_space, baseline_start, make_baseline

__all__ = ["BASELINES", "PAPER_BASELINES", "baseline_space", "baseline_start", "baseline_titles", "make_baseline"]

_PAPER_TITLES = {
    "mlp": "MLP",
    "gcn": "GCN",
    "gat": "GAT",
    "graphsage": "GraphSAGE",
    "chebnet": "ChebNet",
    "appnp": "APPNP",
    "jknet": "GCN-JKNet",
    "gprgnn": "GPRGNN",
    "fagcn": "FAGCN",
    "h2gcn": "H2GCN",
    "bmgcn": "BM-GCN",
}
_OTHER_TITLES = {"linkx": "LINKX", "fsgnn": "FSGNN", "dirgnn": "Dir-GNN", "classic": "Classic GNN"}
PAPER_BASELINES = tuple(_PAPER_TITLES)
_NO_MODELS = ("base", "registry")  # modules of this package that define no model


def baseline_titles() -> dict[str, str]:
    """Return the titles of all baselines by name, those of the paper first; one without a title goes by its name.

    Examples
    --------
    >>> baseline_titles()["jknet"]
    'GCN-JKNet'
    """
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NO_MODELS]
    titles = _PAPER_TITLES | _OTHER_TITLES
    return titles | {name: name for name in names if name not in titles}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("gpatcher.baselines.registry"), name)
    raise AttributeError(f"module 'gpatcher.baselines' has no attribute {name!r}")
