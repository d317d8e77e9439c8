"""gpatcher.graph.storage."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import PARTS, Split
from gpatcher.io import read_manifest

_FORMAT = "gpatcher-graph"
_VERSION = 1
ABOUT = "graph.json"
_TEXT_IDS = "node_ids.parquet"
# facts that take a pass over the edges to measure again, and their keys in the manifest
_FACTS = {
    "one_way_edges": "one_way_edges",
    "self_loops": "self_loops",
    "fingerprint": "fingerprint",
    "content_hash": "content",
}


def save_graph(graph: Graph, folder: str | Path) -> Path:
    """Write a graph into a new folder, whole or not at all.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     folder = save_graph(Graph.from_edge_index([[0, 1], [1, 0]]), f"{scratch}/pair")
    ...     open_graph(folder).neighbours(0).tolist()
    [1]
    """
    with new_folder(Path(folder)) as draft:
        write_edges(graph, draft)
        write_rest(graph, draft)
    return Path(folder)


def open_graph(folder: str | Path) -> Graph:
    """Open a graph written by `save_graph` or `store_tables`; edges, features and labels stay on disk until used."""
    folder = Path(folder)
    about = _read_about(folder)
    arrays = {name: _open_array(folder / f"{name}.npy", *expected) for name, expected in about["arrays"].items()}
    x: Any = arrays.get("x")
    if "x_data" in arrays:
        x = sp.csr_array((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=about["x_shape"])
    node_ids: Any = arrays.get("node_ids")
    if about["text_ids"]:
        try:
            node_ids = pa.parquet.read_table(folder / _TEXT_IDS).column("id").to_numpy()
        except (OSError, pa.ArrowException) as error:
            raise _damaged(folder / _TEXT_IDS, str(error)) from None
    return Graph(
        # plain views of the maps: compiled loops take them as they take any array
        indptr=arrays["indptr"].view(np.ndarray),
        indices=arrays["indices"].view(np.ndarray),
        weights=arrays["weights"].view(np.ndarray) if "weights" in arrays else None,
        x=x,
        y=arrays["y"].view(np.ndarray) if "y" in arrays else None,
        classes=tuple(about["classes"]),
        splits=tuple(Split(*(arrays[f"split{k}_{part}"] for part in PARTS)) for k in range(about["splits"])),
        name=about["name"],
        duplicate_edges=about["duplicate_edges"],
        node_ids=node_ids,
        facts={name: about[key] for name, key in _FACTS.items()},
    )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to write into, which takes its name when all is done."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already; choose another place or remove it")
    draft = None
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.name}.partial-"))
        yield draft
        draft.chmod(0o755)
        draft.replace(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}; nothing of it is left") from None
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def write_edges(graph: Graph, draft: Path) -> None:
    np.save(draft / "indptr.npy", graph.indptr)
    np.save(draft / "indices.npy", graph.indices)
    if graph.weights is not None:
        np.save(draft / "weights.npy", graph.weights)


def map_array(path: Path) -> npt.NDArray[Any]:
    return np.load(path, mmap_mode="r").view(np.ndarray)  # type: ignore[no-any-return]


def write_rest(graph: Graph, draft: Path) -> None:
    """Write all but the edges, and what is known of them."""
    about: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "name": graph.name, "classes": graph.classes}
    about |= {"duplicate_edges": graph.duplicate_edges, "splits": len(graph.splits), "text_ids": False}
    about |= {key: getattr(graph, name) for name, key in _FACTS.items()}
    arrays: dict[str, Any] = {"y": graph.y}
    if sp.issparse(graph.x):
        x: Any = graph.x
        arrays |= {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr}
        about["x_shape"] = x.shape
    else:
        arrays["x"] = graph.x
    for k, split in enumerate(graph.splits):
        arrays |= {f"split{k}_{part}": getattr(split, part) for part in PARTS}
    if graph.node_ids is not None and graph.node_ids.dtype.kind in "iu":
        arrays["node_ids"] = graph.node_ids
    elif graph.node_ids is not None:
        about["text_ids"] = True
        try:
            pa.parquet.write_table(pa.table({"id": graph.node_ids}), draft / _TEXT_IDS)
        except pa.ArrowException as error:
            raise InputError(f"the ids of the nodes cannot be stored ({error}); make them integers or text") from None
    for name, array in arrays.items():
        if array is not None:
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
    names = ("indptr", "indices", "weights", *arrays)
    there = {name: np.load(draft / f"{name}.npy", mmap_mode="r") for name in names if (draft / f"{name}.npy").exists()}
    about["arrays"] = {name: (array.shape, array.dtype.str) for name, array in there.items()}
    (draft / ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"{path} is damaged: {what}; store the graph anew")


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    if not path.is_file():
        raise InputError(f"{folder} holds no graph: {ABOUT} is not there; 'gpatcher store' writes one")
    return read_manifest(path, _FORMAT, _VERSION, "graph")


def _open_array(path: Path, shape: list[int], kind: str) -> npt.NDArray[Any]:
    if 0 in shape and path.is_file():
        return np.zeros(shape, kind)  # nothing to map
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, str(error)) from None
    if list(array.shape) != shape or array.dtype.str != kind:
        raise _damaged(path, f"it holds {array.dtype} of shape {array.shape}, not {kind} of {tuple(shape)}")
    return array
