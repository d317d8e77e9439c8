"""The shape of the package: direction of imports, public names, cheap import, size of files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpatcher

ROOT = Path(gpatcher.__file__).parent
MAX_LINES = 550
# from the bottom up; a layer may import itself and those before it
LAYERS = [
    "errors",
    "arrays",
    "codec",
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
    "serve",
    "cli",
    "__main__",
]
PUBLIC = [
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


def layer(module):
    """The position of a module's layer in LAYERS, None for the package itself and modules of others."""
    parts = module.split(".")
    return LAYERS.index(parts[1]) if parts[0] == "gpatcher" and len(parts) > 1 and parts[1] in LAYERS else None


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


MODULES = dict(modules())


@pytest.mark.parametrize("module", [name for name in MODULES if name != "gpatcher"])
def test_imports_point_downwards(module):
    level = layer(module)
    assert level is not None, f"{module} is in no layer: add it to LAYERS"
    for name in imported(MODULES[module]):
        other = layer(name)
        if other is not None:
            assert other <= level, f"{module} imports {name}, whose layer is above"


def test_every_layer_exists_once():
    there = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert sorted(LAYERS) == sorted(there - {"__init__"})
    assert len(set(LAYERS)) == len(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_no_file_is_too_long(module):
    lines = len(MODULES[module].read_text().splitlines())
    assert lines <= MAX_LINES, f"{module} has {lines} lines: make two files of it"


# ------------------------------------------------------------------------------------------ public names


def test_public_names():
    assert sorted(gpatcher.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(gpatcher))
    assert sorted(gpatcher._MODULES) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented_and_comes_from_its_module(name):
    value = getattr(gpatcher, name)
    assert value.__doc__
    assert value.__module__ == gpatcher._MODULES[name]
    assert (value.__module__, name) in type_checking_imports()


def type_checking_imports():
    """What type checkers see: the imports under TYPE_CHECKING, which do not run."""
    nodes = ast.walk(ast.parse((ROOT / "__init__.py").read_text()))
    return {(n.module, alias.name) for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names}


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="nonsense"):
        gpatcher.nonsense  # noqa: B018
    with pytest.raises(ImportError, match="nonsense"):
        from gpatcher import nonsense  # noqa: F401


# ------------------------------------------------------------------------------------------ import


HEAVY = ("torch", "numba", "numpy", "scipy", "sklearn", "pyarrow", "plotly", "ray", "fastapi", "uvicorn")


@pytest.mark.parametrize(
    "code", ["import gpatcher", "import gpatcher; dir(gpatcher)", "from gpatcher import InputError"]
)
def test_importing_the_package_is_cheap(code):
    code += f"; import sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_names_load_on_first_use():
    code = "import sys, gpatcher; gpatcher.Graph; sys.exit('torch' in sys.modules or 'numpy' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_models_load_without_what_only_training_needs():
    """scikit-learn and scipy.optimize take as long to import as torch; commands that predict do without them."""
    code = "from gpatcher.estimator.ensemble import load_model; import sys; "
    code += "print([name for name in ('sklearn', 'scipy.optimize', 'scipy.stats', 'plotly') if name in sys.modules])"
    # most baselines need torch_geometric, and only they do
    code += "; import gpatcher.runs.fit; print('torch_geometric' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["[]", "False"], done.stderr
