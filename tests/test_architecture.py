"""The direction of the imports: a later stage may read an earlier one, never the reverse."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpatcher

ROOT = Path(gpatcher.__file__).parent
# from the ground up; a room may import those before it, and itself
ROOMS = [
    "errors",
    "arrays",
    "io",
    "kernels",
    "scale",
    "graph",
    "datasets",
    "tables",
    "spectral",
    "patches",
    "model",
    "training",
    "trust",
    "estimator",
    "baselines",
    "runs",
    "bench",
    "report",
    "cli",
]


def stage(module):
    room = module.split(".")[1] if module.startswith("gpatcher.") else None
    return ROOMS.index(room) if room in ROOMS else None


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            if node.module == "gpatcher":
                yield from (f"gpatcher.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize(("module", "path"), [m for m in modules() if m[0] != "gpatcher"])
def test_imports_point_downwards(module, path):
    level = stage(module)
    assert level is not None, f"{module} has no stage: add it to ROOMS"
    for name in imported(path):
        other = stage(name)
        if other is not None:
            assert other <= level, f"{module} imports {name}, which stands above it"


def test_public_names_are_all_there():
    for name in gpatcher.__all__:
        assert getattr(gpatcher, name).__doc__
    with pytest.raises(AttributeError, match="nonsense"):
        gpatcher.nonsense  # noqa: B018


def test_importing_the_package_is_cheap():
    code = "import sys, gpatcher; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
