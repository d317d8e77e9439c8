"""Patch table: the patches of all nodes on disk, written shard by shard and memory-mapped.

The folder has ``manifest.json`` and one ``.npy`` file per shard: for each node a row of p ids (int32) and p scores
(float32). The name of a shard ends in the checksum of its content, so a shard under its final name is complete.
"""

from __future__ import annotations

import io
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpatcher.arrays import as_node_index
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.io import FileEntry, checksum, locked, read_manifest, write_bytes, write_json
from gpatcher.kernels.ppr_push import push_ppr
from gpatcher.patches.base import Patches, PatchSource, Progress
from gpatcher.patches.ppr import PPR, WalkAdjacency, walk_adjacency
from gpatcher.scale.executors import Engine, LocalEngine

_FORMAT = "gpatcher-patches"
_VERSION = 3
_MANIFEST = "manifest.json"
_SHARDS = 128  # by default, within these limits on the nodes per shard
_SMALLEST_SHARD, _LARGEST_SHARD = 1024, 65536


@dataclass(frozen=True, eq=False)
class PatchTable:
    """The patches of every node of a graph, on disk; ``table[nodes]`` reads those of some nodes.

    Create one with `write_patches`, open it with `PatchTable.open`.

    Parameters
    ----------
    folder : Path
    n : int
        Number of nodes.
    shard : int
        Nodes per shard.
    extractor : PPR
        The extractor that computed the patches.
    fingerprint : str
        Fingerprint of their graph.
    files : tuple of str
        Name of each shard.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> with TemporaryDirectory() as folder:
    ...     write_patches(path, folder, PPR(size=2))[[2, 0]].index.tolist()
    [[2, 1], [0, 1]]
    """

    folder: Path
    n: int
    shard: int
    extractor: PPR
    fingerprint: str
    files: tuple[str, ...] = field(repr=False)
    _maps: dict[int, npt.NDArray[Any]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def open(cls, folder: str | Path, graph: Graph | None = None) -> PatchTable:
        """Open a finished table; with ``graph``, the table of another graph is an error."""
        folder = Path(folder)
        manifest = _read_manifest(folder)
        if manifest is None:
            raise InputError(f"{folder} has no patch table ({_MANIFEST} is missing); 'gpatcher patches' writes one")
        if graph is not None:
            _check_graph(folder, manifest, graph)
        if not manifest.complete:
            raise InputError(
                f"the patch table in {folder} is not finished; run the command that started it again, it makes only "
                "the missing shards"
            )
        table = cls(
            folder,
            n=manifest.n,
            shard=manifest.shard,
            extractor=manifest.extractor,
            fingerprint=manifest.fingerprint,
            files=tuple(manifest.files),
        )
        expected = -(-table.n // table.shard) if table.shard > 0 else 0
        if len(table.files) != expected:
            raise InputError(
                f"{folder / _MANIFEST} is damaged: it lists {len(table.files):,} shards, and {table.n:,} nodes have "
                f"{expected:,}; create it again"
            )
        for number, name in enumerate(table.files):
            _check_size(folder / name, min(table.shard, table.n - number * table.shard), table.size)
        return table

    @property
    def size(self) -> int:
        """Patch size p."""
        return self.extractor.size

    @property
    def nbytes(self) -> int:
        """Bytes held in memory: none."""
        return 0

    def __len__(self) -> int:
        return self.n

    def __reduce__(self) -> tuple[Any, ...]:
        # pickled as its path for other processes, without the mapped arrays
        return PatchTable.open, (self.folder,)

    def __getitem__(self, nodes: Any) -> Patches:
        """Read the patches of some nodes: ids, a mask, a slice or one id."""
        ids = as_node_index(nodes, self.n, "table")
        rows = Patches.empty(ids.size, self.size)
        shard = ids // self.shard
        order = np.argsort(shard, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1):
            if at.size:
                number = int(shard[at[0]])
                read = self._map(number)[ids[at] - number * self.shard]
                rows.index[at] = read["index"]
                rows.score[at] = read["score"]
        return rows if np.ndim(nodes) or isinstance(nodes, slice) else rows[0]

    def source(self) -> StoredPatches:
        """Return the module that serves these patches."""
        return StoredPatches(self)

    def verify(self, progress: Progress | None = None) -> None:
        """Compare every shard with its checksum; the first damaged one is an error."""
        for number, name in enumerate(self.files):
            _check_content(self.folder / name)
            if progress is not None:
                progress(number + 1, len(self.files))

    def _map(self, number: int) -> npt.NDArray[Any]:
        if number not in self._maps:
            path = self.folder / self.files[number]
            _check_content(path)  # once, when a shard is first used
            try:
                self._maps[number] = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise _damaged(path, str(error)) from None
        return self._maps[number]


class StoredPatches(PatchSource):
    """Patches read from a table on disk, a batch at a time."""

    def __init__(self, table: PatchTable) -> None:
        super().__init__()
        self.table = table
        self.size = table.size

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index and score of the patches of these nodes."""
        read = self.table[nodes.cpu().numpy()]
        return torch.from_numpy(read.index).to(nodes.device).long(), torch.from_numpy(read.score).to(nodes.device)

    def patches(self) -> Patches:
        """Return the patches of all nodes, in memory."""
        return self.table[:]


# ------------------------------------------------------------------------------------------------ writing


def write_patches(
    graph: Graph,
    folder: str | Path,
    extractor: PPR | None = None,
    *,
    shard: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> PatchTable:
    """Write the patches of all nodes by personalised PageRank into a folder, shard by shard.

    After an interruption, the same call continues with the missing shards. The files do not depend on the engine or the
    number of threads. Each worker writes the shards that it computes, so on a cluster the folder must be on a file
    system that all machines share.

    Parameters
    ----------
    graph : Graph
    folder : str or Path
    extractor : PPR, optional
        By default ``PPR(size=32)``.
    shard : int, optional
        Nodes per shard; by default n / 128, but at least 1,024 and at most 65,536.
    engine : Engine, optional
        Where the work is done; by default on all cores of this machine.
    progress : callable, optional
        Called with the nodes done and the total.

    Returns
    -------
    PatchTable
    """
    extractor = PPR(size=32) if extractor is None else extractor
    if shard is None:
        shard = min(max(-(-graph.n // _SHARDS), _SMALLEST_SHARD), _LARGEST_SHARD)
    if shard < 1:
        raise InputError(f"a shard must have at least 1 node, got {shard}")
    folder = Path(folder)
    manifest: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "fingerprint": graph.fingerprint}
    manifest |= {"n": graph.n, "shard": shard, "extractor": asdict(extractor)}
    visible = [path.name for path in folder.iterdir() if path.name[0] != "."] if folder.is_dir() else []
    if visible and _MANIFEST not in visible and not any(name.endswith(".npy") for name in visible):
        raise InputError(f"{folder} is not empty and contains no patch table; choose another folder")
    with locked(folder):
        _check_same(folder, shard, extractor, graph)
        if not (folder / _MANIFEST).exists():
            write_json(folder / _MANIFEST, manifest | {"complete": False, "files": {}})
        files = _finished_shards(folder, manifest, extractor.size)
        _make_shards(graph, folder, extractor, shard, files, engine or LocalEngine(), progress)
        names = [files[number] for number in range(len(files))]
        entries = {name: {"bytes": (folder / name).stat().st_size, "checksum": _digest(name)} for name in names}
        write_json(folder / _MANIFEST, manifest | {"complete": True, "files": entries})
    return PatchTable.open(folder)


def _make_shards(
    graph: Graph,
    folder: Path,
    extractor: PPR,
    shard: int,
    files: dict[int, str],
    engine: Engine,
    progress: Progress | None,
) -> None:
    """Write the missing shards and enter their names into ``files``."""
    n = graph.n
    parts = {number: (number * shard, min((number + 1) * shard, n)) for number in range(-(-n // shard))}
    missing = [(number, part) for number, part in parts.items() if number not in files]
    if not missing:
        return
    done = sum(stop - start for number, (start, stop) in parts.items() if number in files)
    # as separate arrays: an executor sends each to every machine once
    adjacency = walk_adjacency(graph.of_type(extractor.edge_type), extractor.self_loops, extractor.direction)
    if isinstance(engine, LocalEngine):
        adjacency = adjacency.packed()
    shared = (folder.absolute(), extractor, *adjacency)
    for (number, (start, stop)), name in engine.map(_make_shard, missing, shared=shared):
        if not (folder / name).is_file():
            raise InputError(
                f"a machine of the cluster wrote {name}, which is not in {folder} on this machine; "
                "choose a folder on a file system that all machines share"
            )
        files[number] = name
        done += stop - start
        if progress is not None:
            progress(done, n)


def _make_shard(item: tuple[int, tuple[int, int]], folder: Path, extractor: PPR, *adjacency: Any) -> str:
    """Write the patches of a range of nodes as one shard and return its name; called by an executor."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} does not exist on {socket.gethostname()}; "
            "choose a folder on a file system that all machines of the cluster share"
        )
    number, (start, stop) = item
    patches = Patches.empty(stop - start, extractor.size)
    sources = np.arange(start, stop)
    push_ppr(*WalkAdjacency(*adjacency), sources, extractor.c, extractor.eps, patches.index, patches.score)
    rows = np.empty(stop - start, _row_dtype(extractor.size))
    rows["index"], rows["score"] = patches.index, patches.score
    content = _to_npy(rows)
    name = f"{number:05d}-{checksum(content)}.npy"
    write_bytes(folder / name, content)
    return name


# ------------------------------------------------------------------------------------------------ shards


def _row_dtype(size: int) -> np.dtype[Any]:
    return np.dtype([("index", "<i4", (size,)), ("score", "<f4", (size,))])


def _to_npy(rows: npt.NDArray[Any]) -> memoryview:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, rows, allow_pickle=False)
    return buffer.getbuffer()


def _finished_shards(folder: Path, manifest: dict[str, Any], size: int) -> dict[int, str]:
    """Return the names of the finished shards by number; a damaged one is an error."""
    files = {}
    for path in sorted(folder.glob("*-*.npy")):
        number = int(path.name.partition("-")[0])
        _check_size(path, min(manifest["shard"], manifest["n"] - number * manifest["shard"]), size)
        _check_content(path)
        files[number] = path.name
    return files


def _damaged(path: Path, what: str) -> InputError:
    return InputError(
        f"the shard {path} is damaged: {what}; delete it and run the same 'gpatcher patches' again, it makes only the "
        "missing shards"
    )


def _check_size(path: Path, rows: int, size: int) -> None:
    if not path.is_file():
        raise _damaged(path, "the file is missing")
    expected = len(_to_npy(np.empty(0, _row_dtype(size)))) + rows * _row_dtype(size).itemsize
    if path.stat().st_size != expected:
        raise _damaged(path, f"it has {path.stat().st_size:,} bytes, not {expected:,}")


def _digest(name: str) -> str:
    """Return the checksum in the name of a shard."""
    return name.removesuffix(".npy").rpartition("-")[2]


def _check_content(path: Path) -> None:
    digest = checksum(path)
    if digest != _digest(path.name):
        raise _damaged(path, f"its content has the checksum {digest}, not the one in its name")


# ------------------------------------------------------------------------------------------------ manifest


@dataclass(frozen=True)
class _Manifest:
    fingerprint: str
    n: int
    shard: int
    extractor: PPR
    complete: bool
    files: dict[str, FileEntry]


def _read_manifest(folder: Path) -> _Manifest | None:
    path = folder / _MANIFEST
    return read_manifest(path, _FORMAT, _VERSION, "patch table", _Manifest) if path.is_file() else None


def _check_graph(folder: Path, manifest: _Manifest, graph: Graph) -> None:
    if manifest.fingerprint != graph.fingerprint:
        raise InputError(
            f"the patch table in {folder} belongs to another graph, with {manifest.n:,} nodes and the fingerprint "
            f"{manifest.fingerprint}; {graph.name} has {graph.n:,} nodes and {graph.fingerprint}: pass the graph "
            "that it was made from, or choose another folder"
        )
    if manifest.extractor.edge_type is not None and manifest.extractor.edge_type not in graph.relations:
        raise InputError(
            f"{folder / _MANIFEST} is damaged: {graph.name} has no edge type {manifest.extractor.edge_type!r}; "
            "create it again"
        )


def _check_same(folder: Path, shard: int, extractor: PPR, graph: Graph) -> None:
    """Raise an error if the table in the folder, finished or not, differs from the requested one."""
    existing = _read_manifest(folder)
    if existing is None:
        return
    _check_graph(folder, existing, graph)
    old = {"shard": existing.shard, **asdict(existing.extractor)}
    new = {"shard": shard, **asdict(extractor)}
    differ = [f"{name}={old[name]}, not {new[name]}" for name in new if old[name] != new[name]]
    if differ:
        raise InputError(
            f"the patch table in {folder} has {', '.join(differ)}; ask for the same or choose another folder"
        )
