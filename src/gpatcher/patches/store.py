"""Patch table: the patches of millions of nodes on disk, made shard by shard and read by memory map.

A folder holds ``manifest.json`` and one ``.npy`` file per shard: for each node a row of p ids (int32) and p scores
(float32). The name of a shard ends in the checksum of the file, so it is there whole, under that name, or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, counted, some
from gpatcher.graph.graph import Graph
from gpatcher.io import read_manifest
from gpatcher.patches.base import Patches, empty_patches
from gpatcher.patches.ppr import check_push, push_block, walk_arrays
from gpatcher.scale.executors import Engine, LocalEngine

_FORMAT = "gpatcher-patches"
_VERSION = 1
_MANIFEST = "manifest.json"
_SHARDS = 128  # as many by default, as long as they keep within these numbers of nodes
_FEWEST, _MOST = 1024, 65536
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class PatchTable:
    """The patches of every node of a graph, on disk; ``table[nodes]`` reads those of some.

    Make one with `write_patches`, open it with `PatchTable.open`.

    Parameters
    ----------
    folder : where it lies
    n : number of nodes
    size : places in a patch, p
    shard : nodes in a shard
    parameters : c, eps and self_loops of the personalised PageRank
    fingerprint : of the graph that it was made from
    files : name of each shard

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> with TemporaryDirectory() as folder:
    ...     write_patches(path, folder, size=2)[[2, 0]].index.tolist()
    [[2, 1], [0, 1]]
    """

    folder: Path
    n: int
    size: int
    shard: int
    parameters: dict[str, Any]
    fingerprint: str
    files: tuple[str, ...] = field(repr=False)
    _maps: dict[int, npt.NDArray[Any]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def open(cls, folder: str | Path, graph: Graph | None = None) -> PatchTable:
        """Open a finished table; with a graph, refuse the table of another one."""
        folder = Path(folder)
        manifest = _read_manifest(folder)
        if manifest is None:
            raise InputError(f"{folder} holds no patch table: {_MANIFEST} is not there; 'gpatcher patches' makes one")
        if graph is not None:
            _check_graph(folder, manifest, graph)
        if not manifest["complete"]:
            raise InputError(
                f"the table in {folder} is not finished; run the command that began it again, "
                "it makes only what is missing"
            )
        given = {name: manifest[name] for name in ("n", "size", "shard", "parameters", "fingerprint")}
        table = cls(folder, files=tuple(manifest["files"]), **given)
        for number, name in enumerate(table.files):
            _check_bytes(folder / name, table._rows(number), table.size)
        return table

    def __len__(self) -> int:
        return self.n

    def __reduce__(self) -> tuple[Any, ...]:
        # to other processes goes the place, not what is mapped
        return PatchTable.open, (self.folder,)

    def __getitem__(self, nodes: Any) -> Patches:
        """Read the patches of some nodes: ids, a mask, a slice or one id."""
        ids = _node_ids(nodes, self.n)
        rows = empty_patches(ids.size, self.size)
        shard = ids // self.shard
        order = np.argsort(shard, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1):
            if not at.size:
                continue
            number = int(shard[at[0]])
            found = self._map(number)[ids[at] - number * self.shard]
            rows.index[at] = found["index"]
            rows.score[at] = found["score"]
        return rows if np.ndim(nodes) or isinstance(nodes, slice) else rows[0]

    def verify(self, progress: Progress | None = None) -> None:
        """Compare every shard with its checksum; an error names the first that is damaged."""
        for number, name in enumerate(self.files):
            _check_sum(self.folder / name)
            if progress is not None:
                progress(number + 1, len(self.files))

    def _rows(self, number: int) -> int:
        return min(self.shard, self.n - number * self.shard)

    def _map(self, number: int) -> npt.NDArray[Any]:
        if number not in self._maps:
            path = self.folder / self.files[number]
            try:
                self._maps[number] = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise _damaged(path, str(error)) from None
        return self._maps[number]


def write_patches(
    graph: Graph,
    folder: str | Path,
    *,
    size: int = 32,
    c: float = 0.5,
    eps: float = 1e-5,
    self_loops: bool = False,
    shard: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> PatchTable:
    """Write the patches of all nodes by personalised PageRank (Fast-GPatcher) into a folder, shard by shard.

    A call that was cut short goes on where it stopped when it is made again: finished shards stay as they are.
    Engine and number of threads leave no trace in the files. Each worker writes the shards that it makes, so on a
    cluster the folder must lie on a file system that all machines share.

    Parameters
    ----------
    size, c, eps, self_loops : see `gpatcher.patches.ppr.push_patches`
    shard : nodes in a shard; by default a 128th of all, but at least 1,024 and at most 65,536
    engine : where the work is done; by default on all cores of this machine
    progress : called with nodes done and nodes in all
    """
    check_push(size, c, eps)
    if shard is None:
        shard = min(max(-(-graph.n // _SHARDS), _FEWEST), _MOST)
    if shard < 1:
        raise InputError(f"a shard must hold at least 1 node, got {shard}")
    folder = Path(folder)
    manifest: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "fingerprint": graph.fingerprint}
    manifest |= {"n": graph.n, "size": size, "shard": shard}
    manifest |= {"parameters": {"c": c, "eps": eps, "self_loops": self_loops}}
    with _writing(folder):
        _check_same(folder, manifest, graph)
        if not (folder / _MANIFEST).exists():
            _write(folder / _MANIFEST, _as_json(manifest | {"complete": False, "files": []}))
        files = _finished_shards(folder, manifest)
        _make_shards(graph, folder, manifest, files, engine or LocalEngine(), progress)
        named = [files[number] for number in range(len(files))]
        _write(folder / _MANIFEST, _as_json(manifest | {"complete": True, "files": named}))
    return PatchTable.open(folder)


def _make_shards(
    graph: Graph,
    folder: Path,
    manifest: dict[str, Any],
    files: dict[int, str],
    engine: Engine,
    progress: Progress | None,
) -> None:
    """Make the shards that are missing and enter them into ``files``."""
    n, size, shard = graph.n, manifest["size"], manifest["shard"]
    parts = {number: (number * shard, min((number + 1) * shard, n)) for number in range(-(-n // shard))}
    missing = [number for number in parts if number not in files]
    if not missing:
        return
    parameters = manifest["parameters"]
    walk = walk_arrays(graph, parameters["self_loops"])
    shared = (folder.absolute(), *walk, size, parameters["c"], parameters["eps"])
    done = sum(stop - start for number, (start, stop) in parts.items() if number in files)
    for (number, (start, stop)), name in engine.map(_make_shard, ((k, parts[k]) for k in missing), shared=shared):
        if not (folder / name).is_file():
            raise InputError(
                f"a machine of the cluster wrote {name}, which is not in {folder} here; "
                "choose a folder on a file system that all machines share"
            )
        files[number] = name
        done += stop - start
        if progress is not None:
            progress(done, n)


def _make_shard(item: tuple[int, tuple[int, int]], folder: Path, *push: Any) -> str:
    """Write the patches of a range of nodes as one shard and return its name; a piece of work for an engine."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not there on {socket.gethostname()}; "
            "choose a folder on a file system that all machines of the cluster share"
        )
    number, part = item
    patches = push_block(part, *push)
    rows = np.empty(len(patches.index), _row_type(patches.index.shape[1]))
    rows["index"], rows["score"] = patches.index, patches.score
    content = _as_npy(rows)
    name = f"{number:05d}-{_checksum(content)}.npy"
    _write(folder / name, content, "finished shards stay")
    return name


def _row_type(size: int) -> np.dtype[Any]:
    return np.dtype([("index", "<i4", (size,)), ("score", "<f4", (size,))])


def _as_npy(rows: npt.NDArray[Any]) -> memoryview:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, rows, allow_pickle=False)
    return buffer.getbuffer()


def _as_json(content: dict[str, Any]) -> memoryview:
    return memoryview((json.dumps(content, indent=1) + "\n").encode())


def _checksum(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _write(path: Path, content: memoryview, so_far: str = "nothing is lost") -> None:
    """Write a file whole or not at all, so that it survives a loss of power."""
    # a name of its own: where a cluster took a machine for lost, two may write the same shard
    draft = path.with_name(f".{path.name}-{socket.gethostname()}-{os.getpid()}.partial")
    try:
        with draft.open("wb", buffering=0) as file:
            while content:
                content = content[file.write(content) :]
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        if error.errno not in _FULL:
            raise InputError(f"{path} cannot be written: {error.strerror}; {so_far}") from None
        raise InputError(
            f"the disk is full: {path} cannot be written ({error.strerror}); {so_far}. "
            "Make room and run the same command again, it makes only what is missing"
        ) from None
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Hold the folder for one writer, and clear away what killed ones left half-written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise InputError(f"{folder} cannot be written into: {error.strerror}; choose another folder") from None
    with lock:
        try:
            # let go of by the system when the process ends, however it ends
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process writes into {folder}; wait for it or choose another folder") from None
        _clear_drafts(folder)
        yield
        _clear_drafts(folder)


def _clear_drafts(folder: Path) -> None:
    for draft in folder.glob(".*.partial"):
        draft.unlink(missing_ok=True)


def _finished_shards(folder: Path, manifest: dict[str, Any]) -> dict[int, str]:
    """Return the names of the shards that are there; an error names one that is damaged."""
    files = {}
    for path in sorted(folder.glob("*-*.npy")):
        number = int(path.name.partition("-")[0])
        _check_bytes(path, min(manifest["shard"], manifest["n"] - number * manifest["shard"]), manifest["size"])
        _check_sum(path)
        files[number] = path.name
    return files


def _damaged(path: Path, what: str) -> InputError:
    return InputError(
        f"the shard {path} is damaged: {what}; delete it and run the same 'gpatcher patches' again, "
        "it makes only what is missing"
    )


def _check_bytes(path: Path, rows: int, size: int) -> None:
    if not path.is_file():
        raise _damaged(path, "it is not there")
    expected = len(_as_npy(np.empty(0, _row_type(size)))) + rows * _row_type(size).itemsize
    if path.stat().st_size != expected:
        raise _damaged(path, f"it has {path.stat().st_size:,} bytes, not {expected:,}")


def _check_sum(path: Path) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for piece in iter(partial(file.read, 1 << 22), b""):
            digest.update(piece)
    if digest.hexdigest()[:16] != path.stem.rpartition("-")[2]:
        raise _damaged(path, f"its content has the checksum {digest.hexdigest()[:16]}, not that in its name")


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    path = folder / _MANIFEST
    if not path.is_file():
        return None
    return read_manifest(path, _FORMAT, _VERSION, "patch table")


def _check_graph(folder: Path, manifest: dict[str, Any], graph: Graph) -> None:
    if manifest["fingerprint"] != graph.fingerprint:
        raise InputError(
            f"the table in {folder} belongs to another graph: that one had {manifest['n']:,} nodes and the "
            f"fingerprint {manifest['fingerprint']}, {graph.name} has {graph.n:,} and {graph.fingerprint}; "
            "take the graph that it was made from, or another folder"
        )


def _check_same(folder: Path, manifest: dict[str, Any], graph: Graph) -> None:
    """Refuse a folder whose table, finished or begun, is another than the one asked for."""
    there = _read_manifest(folder)
    if there is None:
        return
    _check_graph(folder, there, graph)
    old, new = ({"size": m["size"], "shard": m["shard"], **m["parameters"]} for m in (there, manifest))
    differ = [f"{name}={old[name]}, not {new[name]}" for name in new if old[name] != new[name]]
    if differ:
        raise InputError(f"the table in {folder} has {', '.join(differ)}; ask for the same or choose another folder")


def _node_ids(nodes: Any, n: int) -> IntArray:
    if isinstance(nodes, slice):
        return np.arange(n)[nodes]
    ids = np.atleast_1d(np.asarray(nodes))
    if ids.size and ids.dtype.kind not in "iub":
        raise InputError(f"nodes must be whole numbers or a mask, got {ids.dtype}")
    ids = np.flatnonzero(ids) if ids.dtype.kind == "b" else ids.astype(np.int64)
    beyond = ids[(ids < 0) | (ids >= n)]
    if beyond.size:
        raise InputError(
            f"{counted(beyond.size, 'node is', 'nodes are')} not in the table: {some(beyond)}; it has 0 to {n - 1}"
        )
    return ids


class TablePatches(nn.Module):
    """Patches read from a table on disk, those of a batch at a time."""

    def __init__(self, table: PatchTable) -> None:
        super().__init__()
        self.table = table
        self.size = table.size

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index and score of these nodes."""
        read = self.table[nodes.cpu().numpy()]
        return torch.from_numpy(read.index).to(nodes.device).long(), torch.from_numpy(read.score).to(nodes.device)

    def patches(self) -> Patches:
        """Return the patches of all nodes, in memory."""
        return self.table[np.arange(self.table.n)]
