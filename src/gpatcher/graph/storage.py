"""Graphs on disk: a folder of memory-mapped arrays with a manifest, written atomically."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import PARTS, Split
from gpatcher.graph.types import NodeTypes
from gpatcher.io import FileEntry, check_file, list_files, new_folder, read_manifest, write_json

_FORMAT = "gpatcher-graph"
_VERSION = 2
_MANIFEST = "graph.json"
_TEXT_IDS = "node_ids.parquet"
_ADVICE = "store the graph again"
_BLOCK = 1 << 16  # values checked at a time: read, not memory-mapped, so that they do not count as resident memory
# properties that take a pass over the edges to compute, and their keys in the manifest
_FACTS = {
    "one_way_edges": "one_way_edges",
    "self_loops": "self_loops",
    "fingerprint": "fingerprint",
    "content_hash": "content",
}


@dataclass(frozen=True)
class _Manifest:
    name: str
    classes: tuple[str, ...]
    duplicate_edges: int
    splits: int
    text_ids: bool
    x_shape: tuple[int, int] | None
    arrays: dict[str, tuple[tuple[int, ...], str]]  # shape and dtype
    files: dict[str, FileEntry]
    one_way_edges: int
    self_loops: int
    fingerprint: str
    content: str
    edge_types: tuple[str, ...] = ()  # the edges of each are a graph of their own, in a folder
    node_types: tuple[str, ...] = ()
    labelled_type: str = ""
    integer_ids: tuple[str, ...] = ()  # node types


def save_graph(graph: Graph, folder: str | Path) -> Path:
    """Write a graph into a new folder; an existing folder must be empty.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     folder = save_graph(Graph.from_edge_index([[0, 1], [1, 0]]), f"{scratch}/pair")
    ...     open_graph(folder).neighbours(0).tolist()
    [1]
    """
    with new_folder(folder) as draft:
        write_graph(graph, draft)
    return Path(folder)


def open_graph(folder: str | Path) -> Graph:
    """Open a graph written by `save_graph` or `store_tables`; its arrays are memory-mapped."""
    folder = Path(folder)
    if not (folder / _MANIFEST).is_file():
        raise InputError(f"{folder} contains no graph ({_MANIFEST} is missing); 'gpatcher store' writes one")
    manifest: _Manifest = read_manifest(folder / _MANIFEST, _FORMAT, _VERSION, "graph", _Manifest)
    for name, entry in manifest.files.items():
        check_file(folder / name, entry, _ADVICE)
    needed = {"indptr", "indices", *(f"split{k}_{part}" for k in range(manifest.splits) for part in PARTS)}
    needed |= {"x_data", "x_indices", "x_indptr"} if manifest.x_shape is not None else set()
    needed |= {"y"} if manifest.classes else set()
    for name in sorted(needed - manifest.arrays.keys()):
        raise _damaged(folder / _MANIFEST, f"it lacks the array {name}")
    arrays = {name: _open_array(folder / f"{name}.npy", *expected) for name, expected in manifest.arrays.items()}
    _check_structure(folder, arrays, manifest)
    x: Any = arrays.get("x")
    if "x_data" in arrays:
        x = sp.csr_array((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=manifest.x_shape)
    node_ids: Any = arrays.get("node_ids")
    if manifest.text_ids:
        try:
            # as a list: to_numpy() and read_table() import pandas where it is installed, a third of a second
            node_ids = np.array(pq.ParquetFile(folder / _TEXT_IDS).read().column("id").to_pylist(), dtype=object)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(folder / _TEXT_IDS, str(error)) from None
    node_types = None
    if manifest.node_types:
        codes = arrays["node_types"].view(np.ndarray)
        node_types = NodeTypes(codes, manifest.node_types, manifest.labelled_type, manifest.integer_ids)
    return Graph(
        # plain views of the memory maps, as compiled functions need them
        indptr=arrays["indptr"].view(np.ndarray),
        indices=arrays["indices"].view(np.ndarray),
        weights=arrays["weights"].view(np.ndarray) if "weights" in arrays else None,
        x=x,
        y=arrays["y"].view(np.ndarray) if "y" in arrays else None,
        classes=manifest.classes,
        splits=tuple(Split(*(arrays[f"split{k}_{part}"] for part in PARTS)) for k in range(manifest.splits)),
        name=manifest.name,
        duplicate_edges=manifest.duplicate_edges,
        node_ids=node_ids,
        relations={name: open_graph(_relation(folder, k)) for k, name in enumerate(manifest.edge_types)},
        node_types=node_types,
        facts={name: getattr(manifest, key) for name, key in _FACTS.items()},
    )


def _check_structure(folder: Path, arrays: dict[str, npt.NDArray[Any]], manifest: _Manifest) -> None:
    """Raise an error for invalid weights, and for offsets and ids that would make compiled code read out of bounds.

    In small files checksums detect such damage; large ones are not hashed on opening.
    """
    n, m = arrays["indptr"].size - 1, arrays["indices"].size
    if manifest.node_types and ("node_types" not in arrays or manifest.labelled_type not in manifest.node_types):
        raise _damaged(folder, "it lacks the types of the nodes")
    bounds = {"indptr": (0, m), "indices": (0, n - 1), "node_types": (0, len(manifest.node_types) - 1)}
    if "y" in arrays and arrays["y"].dtype.kind != "f":
        bounds["y"] = (-1, len(manifest.classes) - 1)
    if manifest.x_shape is not None:
        if manifest.x_shape[0] != n:
            raise _damaged(folder / _MANIFEST, f"x_shape has {manifest.x_shape[0]:,} rows for {n:,} nodes")
        bounds |= {"x_indptr": (0, arrays["x_data"].size), "x_indices": (0, manifest.x_shape[1] - 1)}
    for name, (low, high) in bounds.items():
        path, last = folder / f"{name}.npy", low
        for values in _blocks(path, arrays[name]) if name in arrays else ():
            if values.min() < low or values.max() > high:
                raise _damaged(path, f"its values must lie between {low} and {high}")
            if name.endswith("indptr"):
                if values[0] < last or (values[1:] < values[:-1]).any():
                    raise _damaged(path, "its values must not decrease")
                last = values[-1]
        if name.endswith("indptr") and (arrays[name][0], arrays[name][-1]) != (low, high):
            raise _damaged(path, f"it must lead from {low} to {high}")
    for name in ("weights", "x", "x_data"):
        for values in _blocks(folder / f"{name}.npy", arrays[name]) if name in arrays else ():
            if not np.isfinite(values).all() or (name == "weights" and values.min() <= 0):
                raise _damaged(folder / f"{name}.npy", "it contains values that are not finite, or negative weights")


def _blocks(path: Path, array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    with path.open("rb") as file:
        file.seek(getattr(array, "offset", 0))  # past the header
        for start in range(0, array.size, _BLOCK):
            yield np.fromfile(file, array.dtype, min(_BLOCK, array.size - start))


def write_graph(graph: Graph, draft: Path, *, edges: bool = True) -> None:
    """Write the files of a stored graph into a draft, with or without the edges; the manifest comes last."""
    types = graph.node_types
    arrays: dict[str, Any] = {"y": graph.y, "node_types": None if types is None else types.codes}
    if edges:
        arrays |= {"indptr": graph.indptr, "indices": graph.indices, "weights": graph.weights}
    x: Any = graph.x
    if sp.issparse(x):
        arrays |= {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr}
    else:
        arrays["x"] = x
    for k, split in enumerate(graph.splits):
        arrays |= {f"split{k}_{part}": getattr(split, part) for part in PARTS}
    text_ids = graph.node_ids is not None and graph.node_ids.dtype.kind not in "iu"
    if not text_ids:
        arrays["node_ids"] = graph.node_ids
    else:
        try:
            pq.write_table(pa.table({"id": graph.node_ids}), draft / _TEXT_IDS)
        except pa.ArrowException as error:
            raise InputError(f"the node ids cannot be stored ({error}); make them integers or text") from None
    for name, array in arrays.items():
        if array is not None:
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
    stored = {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in sorted(draft.glob("*.npy"))}
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": graph.name,
        "classes": graph.classes,
        "duplicate_edges": graph.duplicate_edges,
        "splits": len(graph.splits),
        "text_ids": text_ids,
        "x_shape": x.shape if sp.issparse(x) else None,
        "arrays": {name: (array.shape, array.dtype.str) for name, array in stored.items()},
        "files": list_files(sorted([*draft.glob("*.npy"), *draft.glob(_TEXT_IDS)])),
    }
    if graph.relations:
        manifest["edge_types"] = list(graph.relations)
        for k, part in enumerate(graph.relations.values()):
            _relation(draft, k).mkdir()
            write_graph(part, _relation(draft, k))
    if types is not None:
        manifest |= {"node_types": types.names, "labelled_type": types.labelled, "integer_ids": types.integer_ids}
    write_json(draft / _MANIFEST, manifest | {key: getattr(graph, name) for name, key in _FACTS.items()})


def _relation(folder: Path, number: int) -> Path:
    return folder / f"edges-{number}"


def map_array(path: Path) -> npt.NDArray[Any]:
    """Return a memory-mapped array as a plain view."""
    return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)  # type: ignore[no-any-return]


def _open_array(path: Path, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Map an array of the expected shape and dtype."""
    if 0 in shape and path.is_file():
        return np.zeros(shape, dtype)  # an empty file cannot be mapped
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, str(error)) from None
    if array.shape != shape or array.dtype.str != dtype:
        raise _damaged(path, f"it has dtype {array.dtype} and shape {array.shape}, not {dtype} and {shape}")
    return array


def _damaged(path: Path, cause: str) -> InputError:
    return InputError(f"{path} is damaged: {cause}; {_ADVICE}")
