"""A graph on disk: a folder of arrays that are memory-mapped on opening, whatever its size.

``graph.json`` says what is there; every array is a plain ``.npy`` file, ids that are text are in ``node_ids.parquet``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import scipy.sparse as sp

from gpatcher import kernels
from gpatcher.data.tables import _edge_ids, _NotPlainError, _plain_ids, _Table, read_tables
from gpatcher.graph import Graph, InputError, IntArray, Split, counted, read_description, warn_input

_FORMAT = "gpatcher-graph"
_VERSION = 1
ABOUT = "graph.json"
_TEXT_IDS = "node_ids.parquet"
_KNOWN = ("one_way_edges", "self_loops", "fingerprint", "content")  # of a graph, and long to find out again
_PARTS = ("train", "val", "test")
_Columns: TypeAlias = tuple[str, str, str | None]  # source, target, weight
_ENTRY_BYTES = 48  # that an edge takes at most while its row is sorted


def save_graph(graph: Graph, folder: str | Path) -> Path:
    """Write a graph into a new folder, whole or not at all.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     folder = save_graph(Graph.from_edge_index([[0, 1], [1, 0]]), f"{scratch}/pair")
    ...     open_graph(folder).neighbours(0).tolist()
    [1]
    """
    with _new_folder(Path(folder)) as draft:
        _write_edges(graph, draft)
        _finish(graph, draft)
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
    graph = Graph(
        # plain views of the maps: compiled loops take them as they take any array
        indptr=arrays["indptr"].view(np.ndarray),
        indices=arrays["indices"].view(np.ndarray),
        weights=arrays["weights"].view(np.ndarray) if "weights" in arrays else None,
        x=x,
        y=arrays["y"].view(np.ndarray) if "y" in arrays else None,
        classes=tuple(about["classes"]),
        splits=tuple(Split(*(arrays[f"split{k}_{part}"] for part in _PARTS)) for k in range(about["splits"])),
        name=about["name"],
        duplicate_edges=about["duplicate_edges"],
        node_ids=node_ids,
    )
    graph.__dict__.update({name: about[name] for name in _KNOWN})
    return graph


def store_tables(
    nodes: str | Path | None, edges: str | Path, folder: str | Path, *, memory: int = 1 << 30, **options: Any
) -> Graph:
    """Build a graph on disk from tables, the table of edges being of any size; the same graph as `read_tables` gives.

    The edges are read twice: to count those of each node, and to drop each into the file of its range of nodes. Then
    the ranges are sorted one by one. The table of nodes is read whole; so are the edges of a graph that stays
    directed, when its undirected form is asked for.

    Parameters
    ----------
    folder : a new folder
    memory : bytes that a range of edges may take; a few numbers per node and the features come on top
    nodes, edges, options : see `gpatcher.data.read_tables`
    """
    if memory < 1:
        raise InputError(f"memory must be a positive number of bytes, got {memory}")
    weight = options.get("weight")
    columns = (options.get("source", "source"), options.get("target", "target"), weight)
    table = _Table.open(edges, options.get("delimiter"), "edges")
    table.require({"source": columns[0], "target": columns[1]} | ({} if weight is None else {"weight": weight}))
    name = options.pop("name", None) or table.stem
    with _new_folder(Path(folder)) as draft:
        try:
            around = _nodes_alone(nodes, table, columns, {**options, "name": name}, draft)
            ids = _edge_ids(table, *columns[:2]) if around is None else pa.array(around.node_ids)
            if pa.types.is_string(ids.type):
                ids = ids.cast(pa.large_string())
            indptr, counts = _sort_edges(table, columns, ids, bool(options.get("directed")), memory, draft)
        except MemoryError as error:  # arrow's and numpy's
            way_out = "give a range of edges less of it: memory=... (--memory)"
            raise InputError(f"memory ran out ({error}); {way_out}") from None
        except (_NotPlainError, pa.ArrowException):
            # the whole columns at once tell in full what is wrong, or that nothing is
            graph = read_tables(nodes, edges, **options, name=name)
            _write_edges(graph, draft)
        else:
            _warn(name, counts, weight is not None)
            np.save(draft / "indptr.npy", indptr)
            graph = Graph(
                indptr=indptr,
                indices=_mapped(draft / "indices.npy"),
                weights=None if weight is None else _mapped(draft / "weights.npy"),
                name=name,
                duplicate_edges=int(counts[0]),
                node_ids=ids.to_numpy(zero_copy_only=False),
            )
            if around is not None:
                graph = replace(graph, x=around.x, y=around.y, classes=around.classes, splits=around.splits)
            graph.__dict__["self_loops"] = int(counts[1])
            if not options.get("directed"):
                graph.__dict__["one_way_edges"] = 0  # and to look would jump about the whole file
        _finish(graph, draft)
        del graph  # its maps, before the folder is renamed
    return open_graph(folder)


def _nodes_alone(
    nodes: str | Path | None, table: _Table, columns: _Columns, options: dict[str, Any], draft: Path
) -> Graph | None:
    """Return the nodes with all that their table says of them, in a graph of the first edge alone."""
    if nodes is None:
        return None
    first = next(table.pieces([column for column in columns if column is not None]), None)
    if first is None or not first.num_rows:
        raise _NotPlainError
    one = draft / "first.parquet"
    pa.parquet.write_table(first.slice(0, 1), one)
    graph = read_tables(nodes, one, **options)
    one.unlink()
    return graph


def _finder(ids: Any) -> Callable[[Any], IntArray]:
    """Return a function from values to their places among the ids; one that is not there is no plain table."""
    known: IntArray = ids.to_numpy() if pa.types.is_integer(ids.type) else np.empty(0, np.int64)

    def search(values: Any) -> IntArray:
        given = values.to_numpy()
        at: IntArray = np.asarray(np.searchsorted(known, given))
        if not np.array_equal(known[np.minimum(at, known.size - 1)], given):
            raise _NotPlainError
        return at

    def look_up(values: Any) -> IntArray:
        found = pc.index_in(values, value_set=ids)
        if found.null_count:
            raise _NotPlainError
        at: IntArray = found.to_numpy()
        return at

    return search if known.size and np.all(known[1:] > known[:-1]) else look_up


def _edge_pieces(table: _Table, columns: _Columns, ids: Any) -> Iterator[tuple[IntArray, IntArray, Any]]:
    """Yield the numbers of both ends and the weights, a million edges or so at a time."""
    find = _finder(ids)
    for piece in table.pieces([column for column in columns if column is not None]):
        ends = []
        for column in columns[:2]:
            values = _plain_ids(piece, column)
            if values.type != ids.type:
                raise _NotPlainError
            ends.append(find(values))
        weights = None
        if columns[2] is not None:
            weights = piece.column(columns[2]).cast(pa.float64()).to_numpy()
            if not np.all(np.isfinite(weights) & (weights > 0)):
                raise _NotPlainError
        yield ends[0], ends[1], weights


# ------------------------------------------------------------------------------------------ external sort


def _sort_edges(
    table: _Table, columns: _Columns, ids: Any, directed: bool, memory: int, draft: Path
) -> tuple[IntArray, IntArray]:
    """Write indices.npy and weights.npy; return indptr and the counts of `kernels.merge_directions`."""
    n = len(ids)
    degree = np.zeros(n, np.int64)
    edges = 0
    for start, stop, _ in _edge_pieces(table, columns, ids):
        edges += start.size
        kernels.count_edges(start, degree)
        if not directed:
            kernels.count_edges(stop[start != stop], degree)
    if not edges:
        raise _NotPlainError
    borders = _ranges(degree, memory)
    kind = np.dtype([("node", "<i4"), ("code", "<i8"), *([] if columns[2] is None else [("weight", "<f8")])])
    files = [(draft / f"range-{k}").open("wb") for k in range(len(borders) - 1)]
    try:
        for start, stop, weights in _edge_pieces(table, columns, ids):
            _drop(files, borders, kind, start, stop, 0, weights)
            if not directed:
                two = start != stop
                _drop(files, borders, kind, stop[two], start[two], 1, None if weights is None else weights[two])
    finally:
        for file in files:
            file.close()
    indptr = np.zeros(n + 1, np.int64)
    counts = np.zeros(4, np.int64)
    counts[3] = edges
    outs = [_Growing(draft / "indices.npy", np.dtype("<i4"))]
    if columns[2] is not None:
        outs.append(_Growing(draft / "weights.npy", np.dtype("<f8")))
    for k, (first, last) in enumerate(pairwise(borders)):
        rows = np.fromfile(draft / f"range-{k}", kind)
        (draft / f"range-{k}").unlink()
        offsets = np.concatenate([[0], np.cumsum(degree[first:last])])
        codes = np.empty(rows.size, np.int64)
        weights = None if columns[2] is None else np.empty(rows.size)
        given = None if weights is None else np.ascontiguousarray(rows["weight"])
        node, code = rows["node"] - first, np.ascontiguousarray(rows["code"])
        del rows
        kernels.place_edges(node, code, given, offsets[:-1].copy(), codes, weights)
        del node, code, given
        kernels.sort_rows(offsets, codes, weights)
        indices = np.empty(codes.size, np.int32)
        merged = None if weights is None else np.empty(codes.size)
        kept = kernels.merge_directions(offsets, first, codes, weights, indices, merged, counts)
        indptr[first + 1 : last + 1] = indptr[first] + offsets[1:]
        for out, values in zip(outs, (indices, merged), strict=False):
            out.append(values[:kept])  # type: ignore[index]
    for out in outs:
        out.close()
    if columns[2] is not None and not np.isfinite(np.load(draft / "weights.npy", mmap_mode="r")).all():
        raise InputError("the weights of repeated edges add up to a number that is not finite; scale them down")
    return indptr, counts


def _ranges(degree: IntArray, memory: int) -> list[int]:
    """Return borders of ranges of nodes whose edges fit into the memory; a range has one node at least."""
    most = max(1, memory // _ENTRY_BYTES)
    ends = np.cumsum(degree)
    borders = [0]
    while borders[-1] < degree.size:
        before = ends[borders[-1] - 1] if borders[-1] else 0
        borders.append(max(borders[-1] + 1, int(np.searchsorted(ends, before + most, side="right"))))
    return borders


def _drop(
    files: list[Any],
    borders: list[int],
    kind: np.dtype[Any],
    node: IntArray,
    other: IntArray,
    turned: int,
    weights: Any,
) -> None:
    """Append each edge to the file of its node's range, in the order in which they come."""
    rows = np.empty(node.size, kind)
    rows["node"] = node
    rows["code"] = 2 * other.astype(np.int64) + turned
    if weights is not None:
        rows["weight"] = weights
    where = np.searchsorted(borders, node, side="right") - 1
    order = np.argsort(where, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(where[order])) + 1):
        if part.size:
            files[int(where[part[0]])].write(rows[part].tobytes())


class _Growing:
    """An .npy file of one dimension whose length is known at its end."""

    def __init__(self, path: Path, kind: np.dtype[Any]) -> None:
        self.file, self.kind, self.length = path.open("wb"), kind, 0
        self._header()

    def _header(self) -> None:
        about = {"descr": np.lib.format.dtype_to_descr(self.kind), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, about)  # leaves room for any length

    def append(self, values: npt.NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(values, self.kind).data.cast("B"))
        self.length += values.size

    def close(self) -> None:
        self.file.seek(0)
        self._header()
        self.file.close()


def _warn(name: str, counts: IntArray, weighted: bool) -> None:
    repeated, loops, unequal, edges = counts.tolist()
    if repeated:
        done = "merged, their weights added" if weighted else "merged into one"
        warn_input(f"{name}: {repeated} of {edges} edges repeat another one; they were {done}")
    if loops:
        warn_input(
            f"{name}: {counted(loops, 'edge joins', 'edges join')} a node to itself: kept and counted "
            "as a neighbour, but the normalised adjacency leaves it out"
        )
    if weighted and unequal:
        warn_input(
            f"{name}: {counted(unequal // 2, 'edge is', 'edges are')} given in both directions with different weights; "
            "the larger one counts"
        )


# ------------------------------------------------------------------------------------------ the folder


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
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


def _write_edges(graph: Graph, draft: Path) -> None:
    np.save(draft / "indptr.npy", graph.indptr)
    np.save(draft / "indices.npy", graph.indices)
    if graph.weights is not None:
        np.save(draft / "weights.npy", graph.weights)


def _mapped(path: Path) -> npt.NDArray[Any]:
    return np.load(path, mmap_mode="r").view(np.ndarray)  # type: ignore[no-any-return]


def _finish(graph: Graph, draft: Path) -> None:
    """Write all but the edges, and what is known of them."""
    about: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "name": graph.name, "classes": graph.classes}
    about |= {"duplicate_edges": graph.duplicate_edges, "splits": len(graph.splits), "text_ids": False}
    about |= {name: getattr(graph, name) for name in _KNOWN}
    arrays: dict[str, Any] = {"y": graph.y}
    if sp.issparse(graph.x):
        x: Any = graph.x
        arrays |= {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr}
        about["x_shape"] = x.shape
    else:
        arrays["x"] = graph.x
    for k, split in enumerate(graph.splits):
        arrays |= {f"split{k}_{part}": getattr(split, part) for part in _PARTS}
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
    return read_description(path, _FORMAT, _VERSION, "graph")


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
