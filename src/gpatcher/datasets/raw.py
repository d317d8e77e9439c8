"""Read the raw files of the named data sets into graphs; nothing in a file is ever executed.

The Planetoid files are pickles. `_ArrayUnpickler` maps the few names that they use to classes of this module, which
hold and check plain values; any other name is refused, so no code that a pickle names is imported or called.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher.arrays import FloatArray
from gpatcher.datasets.registry import NamedSet
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import PARTS, Split

_VALIDATION = 500  # nodes of the public split of Planetoid, after the training nodes

Paths = Mapping[str, Path]


class _Dtype:
    """A NumPy dtype in a pickle: numbers only."""

    def __init__(self, code: str, *_: Any) -> None:
        self.value = np.dtype(str(code))
        if self.value.kind not in "biuf":
            raise pickle.UnpicklingError(f"arrays of type {code} are not read, only numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.value = self.value.newbyteorder(state[1])


class _Array:
    """A NumPy array in a pickle: ``numpy.ndarray`` and the function that NumPy pickles it with."""

    def __init__(self, *_: Any) -> None:
        self.value: npt.NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        self.value = np.frombuffer(content, dtype.value).reshape(shape, order="F" if fortran else "C")


class _Csr:
    """A SciPy CSR matrix in a pickle."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        parts = tuple(state[name].value for name in ("data", "indices", "indptr"))
        matrix = sp.csr_array(parts, shape=tuple(state["_shape"]))
        matrix.check_format(full_check=True)
        self.value = matrix.toarray()


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickle numbers, text, containers, NumPy arrays and CSR matrices; any other name is an error."""

    _ADMITTED: Mapping[tuple[str, str], type] = {
        ("__builtin__", "list"): list,
        ("collections", "defaultdict"): defaultdict,
        ("numpy", "dtype"): _Dtype,
        ("numpy", "ndarray"): _Array,
        **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
        **{(f"scipy.sparse.{module}", "csr_matrix"): _Csr for module in ("csr", "_csr")},
    }

    def find_class(self, module: str, name: str) -> type:
        """Return the class for a name in the pickle."""
        try:
            return self._ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not an array and is not run") from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what a parser raises on a damaged file into an error that names the file."""
    try:
        yield
    except (MemoryError, Warning):  # not the file's fault
        raise
    except Exception as error:  # parsers raise errors of many types
        cause = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise InputError(f"{path} cannot be read ({cause}); delete it to download it again") from None


def _read_pickle(path: Path) -> Any:
    with _reading(path), path.open("rb") as file:
        content = _ArrayUnpickler(file, encoding="latin1").load()
        return content if isinstance(content, dict) else content.value


def _planetoid(dataset: NamedSet, paths: Paths) -> Graph:
    """Read the eight files of Planetoid; the rows of test nodes are filed apart, in the order of ``test.index``."""
    part = {name.split(".", 2)[2]: path for name, path in paths.items()}
    with _reading(part["test.index"]):
        test = np.loadtxt(part["test.index"], dtype=np.int64)
    arrays = {name: _read_pickle(part[name]) for name in ("allx", "tx", "ally", "ty", "y", "graph")}
    with _reading(part["graph"]):
        neighbours = arrays["graph"]
        source = np.repeat(list(neighbours), [len(row) for row in neighbours.values()])
        target = np.concatenate([np.asarray(row, np.int64) for row in neighbours.values()])
        other = source != target  # as torch_geometric reads them: without self-loops
        edges = np.unique(np.stack([source, target])[:, other], axis=1)
    with _reading(part["allx"]):
        filed, n = len(arrays["allx"]), int(test.max()) + 1
        x = np.zeros((n, arrays["allx"].shape[1]), np.float32)
        onehot = np.zeros((n, arrays["ally"].shape[1]))
        # CiteSeer has no row for some isolated nodes: their features and label stay 0
        x[:filed], x[test] = arrays["allx"], arrays["tx"]
        onehot[:filed], onehot[test] = arrays["ally"], arrays["ty"]
    train = len(arrays["y"])
    split = Split(np.arange(train), np.arange(train, train + _VALIDATION), test)
    return Graph.from_edge_index(edges, x=x, y=onehot.argmax(axis=1), splits=[split], name=dataset.name)


def _geom_gcn(dataset: NamedSet, paths: Paths) -> Graph:
    """Read the text files of geom-gcn and its ten splits; Actor lists the features that are 1, by their index."""
    nodes, edges, *splits = paths.values()
    with _reading(nodes):
        header, *lines = nodes.read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines]
        ids = np.array([int(row[0]) for row in rows])
        y = np.empty(len(rows), np.int64)
        y[ids] = [int(row[2]) for row in rows]
        values = [_numbers(row[1]) for row in rows]
        if "feature_amount" in header:
            x = np.zeros((len(rows), int(max(row.max() for row in values)) + 1), np.float32)
            for node, row in zip(ids, values, strict=True):
                x[node, row.astype(np.int64)] = 1
        else:
            x = np.empty((len(rows), values[0].size), np.float32)
            x[ids] = values
    with _reading(edges):
        pairs = np.unique(np.loadtxt(edges, np.int64, skiprows=1, ndmin=2), axis=0)
    return Graph.from_edge_index(
        pairs.T, x=x, y=y, splits=[Split(*_masks(path, "{}_mask")) for path in splits], name=dataset.name
    )


def _numbers(text: str) -> FloatArray:
    """Parse numbers between commas; single digits, which most files have, without the slow parser."""
    codes = np.frombuffer(text.encode(), np.uint8)
    digits = codes[::2] - ord("0")
    if codes.size % 2 and (digits < 10).all() and (codes[1::2] == ord(",")).all():
        return digits.astype(np.float32)
    return np.array(text.split(","), np.float32)


def _npz(dataset: NamedSet, paths: Paths) -> Graph:
    """Read one archive with features, labels, edges and the masks of ten splits."""
    (path,) = paths.values()
    masks = _masks(path, "{}_masks")
    with _reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        source, target = arrays["edges"].T
        if not dataset.directed:  # each edge is filed once
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        x, y = arrays["node_features"], arrays["node_labels"]
    splits = [Split(*parts) for parts in zip(*masks, strict=True)]
    return Graph.from_edge_index((source, target), x=x, y=y, splits=splits, name=dataset.name)


def _masks(path: Path, name: str) -> list[npt.NDArray[Any]]:
    # opened here because NumPy does not close a file that it cannot read
    with _reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return [arrays[name.format(part)].astype(bool) for part in PARTS]


_READERS: Mapping[str, Callable[[NamedSet, Paths], Graph]] = {
    "planetoid": _planetoid,
    "geom-gcn": _geom_gcn,
    "npz": _npz,
}


def read_raw(dataset: NamedSet, paths: Paths) -> Graph:
    """Read the raw files of a data set; an error where its size is not the published one.

    Parameters
    ----------
    dataset : NamedSet
        Entry of the registry.
    paths : mapping of str to Path
        Path of each raw file, in the order of ``dataset.files``.
    """
    graph = _READERS[dataset.reader](dataset, paths)
    counts = (graph.n, graph.stored_edges, graph.splits[0].test.size)
    if dataset.size is not None and counts != dataset.size:
        text = "{:,} nodes, {:,} edges and {:,} test nodes"
        raise InputError(f"the files contain {text.format(*counts)} instead of {text.format(*dataset.size)}")
    return graph
