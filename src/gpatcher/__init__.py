"""Node classification on graphs, whether neighbours agree or not.

The public names load their modules on first use, so that ``import gpatcher`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpatcher.datasets.load import load_graph
    from gpatcher.errors import InputError
    from gpatcher.estimator.classifier import GPatcherClassifier, GPatcherRegressor
    from gpatcher.estimator.ensemble import AutoClassifier, AutoRegressor
    from gpatcher.estimator.tables import TableClassifier, TableRegressor
    from gpatcher.graph.graph import Graph
    from gpatcher.graph.split import Split
    from gpatcher.graph.unseen import UnseenNodes
    from gpatcher.model.gpatcher import GPatcher
    from gpatcher.patches.extract import extract_patches
    from gpatcher.patches.pyg import AddPatches
    from gpatcher.spectral.diagnosis import diagnose
    from gpatcher.tables.load import read_tables

_MODULES = {
    "AddPatches": "gpatcher.patches.pyg",
    "AutoClassifier": "gpatcher.estimator.ensemble",
    "AutoRegressor": "gpatcher.estimator.ensemble",
    "GPatcher": "gpatcher.model.gpatcher",
    "GPatcherClassifier": "gpatcher.estimator.classifier",
    "GPatcherRegressor": "gpatcher.estimator.classifier",
    "Graph": "gpatcher.graph.graph",
    "InputError": "gpatcher.errors",
    "Split": "gpatcher.graph.split",
    "TableClassifier": "gpatcher.estimator.tables",
    "TableRegressor": "gpatcher.estimator.tables",
    "UnseenNodes": "gpatcher.graph.unseen",
    "diagnose": "gpatcher.spectral.diagnosis",
    "extract_patches": "gpatcher.patches.extract",
    "load_graph": "gpatcher.datasets.load",
    "read_tables": "gpatcher.tables.load",
}

__all__ = [
    "AddPatches",
    "AutoClassifier",
    "AutoRegressor",
    "GPatcher",
    "GPatcherClassifier",
    "GPatcherRegressor",
    "Graph",
    "InputError",
    "Split",
    "TableClassifier",
    "TableRegressor",
    "UnseenNodes",
    "diagnose",
    "extract_patches",
    "load_graph",
    "read_tables",
]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'gpatcher' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
