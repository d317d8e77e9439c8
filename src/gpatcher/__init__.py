"""Node classification on graphs, whether neighbours agree or not.

The names below load their modules on first use, so that ``import gpatcher`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpatcher.data import load_dataset, load_graph
    from gpatcher.diagnosis import Diagnosis, diagnose
    from gpatcher.graph import Graph, InputError, InputWarning, Split

_HOME = {
    "Diagnosis": "gpatcher.diagnosis",
    "Graph": "gpatcher.graph",
    "InputError": "gpatcher.graph",
    "InputWarning": "gpatcher.graph",
    "Split": "gpatcher.graph",
    "diagnose": "gpatcher.diagnosis",
    "load_dataset": "gpatcher.data",
    "load_graph": "gpatcher.data",
}

__all__ = [
    "Diagnosis",
    "Graph",
    "InputError",
    "InputWarning",
    "Split",
    "diagnose",
    "load_dataset",
    "load_graph",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gpatcher' has no attribute {name!r}")
