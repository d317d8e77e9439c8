"""Graphs on disk: a folder of memory-mapped arrays with a manifest, written whole or not at all."""

from __future__ import annotations

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
from gpatcher.io import new_folder, read_manifest, write_json

_FORMAT = "gpatcher-graph"
_VERSION = 1
_MANIFEST = "graph.json"
_TEXT_IDS = "node_ids.parquet"
# facts that take a pass over the edges to measure again, and their keys in the manifest
_FACTS = {
    "one_way_edges": "one_way_edges",
    "self_loops": "self_loops",
    "fingerprint": "fingerprint",
    "content_hash": "content",
}


def save_graph(graph: Graph, folder: str | Path) -> Path:
    """Write a graph into a new folder; one that exists and is not empty is refused.

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
        raise InputError(f"{folder} holds no graph: it has no {_MANIFEST}; 'gpatcher store' writes one")
    manifest = read_manifest(folder / _MANIFEST, _FORMAT, _VERSION, "graph")
    arrays = {name: _open_array(folder / f"{name}.npy", *expected) for name, expected in manifest["arrays"].items()}
    x: Any = arrays.get("x")
    if "x_data" in arrays:
        x = sp.csr_array((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=manifest["x_shape"])
    node_ids: Any = arrays.get("node_ids")
    if manifest["text_ids"]:
        try:
            node_ids = pq.read_table(folder / _TEXT_IDS).column("id").to_numpy()
        except (OSError, pa.ArrowException) as error:
            raise _damaged(folder / _TEXT_IDS, str(error)) from None
    return Graph(
        # plain views of the maps, which compiled functions take like any array
        indptr=arrays["indptr"].view(np.ndarray),
        indices=arrays["indices"].view(np.ndarray),
        weights=arrays["weights"].view(np.ndarray) if "weights" in arrays else None,
        x=x,
        y=arrays["y"].view(np.ndarray) if "y" in arrays else None,
        classes=tuple(manifest["classes"]),
        splits=tuple(Split(*(arrays[f"split{k}_{part}"] for part in PARTS)) for k in range(manifest["splits"])),
        name=manifest["name"],
        duplicate_edges=manifest["duplicate_edges"],
        node_ids=node_ids,
        facts={name: manifest[key] for name, key in _FACTS.items()},
    )


def write_graph(graph: Graph, draft: Path, *, edges: bool = True) -> None:
    """Write the files of a stored graph into a draft, with or without the edges, the manifest last."""
    arrays: dict[str, Any] = {"y": graph.y}
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
    stored = {path.stem: np.load(path, mmap_mode="r") for path in sorted(draft.glob("*.npy"))}
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
    }
    write_json(draft / _MANIFEST, manifest | {key: getattr(graph, name) for name, key in _FACTS.items()})


def map_array(path: Path) -> npt.NDArray[Any]:
    """Return a memory-mapped array as a plain view."""
    return np.load(path, mmap_mode="r").view(np.ndarray)  # type: ignore[no-any-return]


def _open_array(path: Path, shape: list[int], dtype: str) -> npt.NDArray[Any]:
    """Map an array of the expected shape and dtype."""
    if 0 in shape and path.is_file():
        return np.zeros(shape, dtype)  # an empty file cannot be mapped
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, str(error)) from None
    if list(array.shape) != shape or array.dtype.str != dtype:
        raise _damaged(path, f"it holds {array.dtype} of shape {array.shape}, not {dtype} of {tuple(shape)}")
    return array


def _damaged(path: Path, cause: str) -> InputError:
    return InputError(f"{path} is damaged: {cause}; store the graph again")
