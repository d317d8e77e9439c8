"""Node classification on graphs, whether neighbours agree or not.

The names below load their modules on first use, so that ``import gpatcher`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpatcher.data import load_dataset, load_graph, open_graph, read_tables, save_graph, store_tables
    from gpatcher.diagnosis import Diagnosis, diagnose
    from gpatcher.estimator import GPatcherClassifier
    from gpatcher.explain import Explanation
    from gpatcher.export import export_onnx
    from gpatcher.graph import Graph, InputError, InputWarning, Split
    from gpatcher.model import FixedPatches, GPatcher, PatchMixer
    from gpatcher.newcomers import Newcomers
    from gpatcher.patches import Patches, SpectralPatches, extract_patches
    from gpatcher.table import PatchTable, write_patches
    from gpatcher.tabular import TableClassifier
    from gpatcher.transforms import AddPatches

_HOME = {
    "AddPatches": "gpatcher.transforms",
    "Diagnosis": "gpatcher.diagnosis",
    "Explanation": "gpatcher.explain",
    "FixedPatches": "gpatcher.model",
    "GPatcher": "gpatcher.model",
    "GPatcherClassifier": "gpatcher.estimator",
    "Graph": "gpatcher.graph",
    "InputError": "gpatcher.graph",
    "InputWarning": "gpatcher.graph",
    "Newcomers": "gpatcher.newcomers",
    "PatchMixer": "gpatcher.model",
    "PatchTable": "gpatcher.table",
    "Patches": "gpatcher.patches",
    "SpectralPatches": "gpatcher.patches",
    "Split": "gpatcher.graph",
    "TableClassifier": "gpatcher.tabular",
    "diagnose": "gpatcher.diagnosis",
    "export_onnx": "gpatcher.export",
    "extract_patches": "gpatcher.patches",
    "load_dataset": "gpatcher.data",
    "load_graph": "gpatcher.data",
    "open_graph": "gpatcher.data",
    "read_tables": "gpatcher.data",
    "save_graph": "gpatcher.data",
    "store_tables": "gpatcher.data",
    "write_patches": "gpatcher.table",
}

__all__ = [
    "AddPatches",
    "Diagnosis",
    "Explanation",
    "FixedPatches",
    "GPatcher",
    "GPatcherClassifier",
    "Graph",
    "InputError",
    "InputWarning",
    "Newcomers",
    "PatchMixer",
    "PatchTable",
    "Patches",
    "SpectralPatches",
    "Split",
    "TableClassifier",
    "diagnose",
    "export_onnx",
    "extract_patches",
    "load_dataset",
    "load_graph",
    "open_graph",
    "read_tables",
    "save_graph",
    "store_tables",
    "write_patches",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gpatcher' has no attribute {name!r}")
