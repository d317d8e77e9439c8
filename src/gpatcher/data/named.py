"""Benchmark graphs by name, read by torch_geometric's own classes from a folder of their raw files.

Files that are there are used and the others are downloaded. All work happens in a folder of its own and
moves into place when it is complete, so a failure, an interruption or a second process leaves nothing half-made.
"""

from __future__ import annotations

import difflib
import io
import os
import shutil
import tempfile
import threading
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from gpatcher.graph import Graph, InputError, InputWarning, Split, warn_input

_FILTERED_URL = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"
_DOWNLOAD_TIMEOUT = 60  # seconds without an answer
_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")

# errors that say nothing about a file: a lack of memory, a warning made an error
_NOT_THE_FILE = (MemoryError, Warning)

# The filters of `warnings` and sys.stderr belong to the whole process: one thread at a time may bend them.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class NamedSet:
    """A benchmark graph: where its files lie, which class reads them and how results on it are reported.

    Parameters
    ----------
    name : what it is called in tables
    folder : its folder below the root, given to the class as its own root
    raw : the folder of its raw files below the root
    files : names of the raw files
    protocol : the splits that come with it
    reader : class in torch_geometric.datasets; None for an npz file read here
    arguments : what the class is given besides its folder
    size : nodes, stored edges and test nodes of the first split; None where damage to a file shows by itself
    leaky : whether nodes of the test set are copies of training nodes
    metric : "accuracy", or "roc_auc" where there are two classes of very different sizes
    """

    name: str
    folder: str
    raw: str
    files: tuple[str, ...]
    protocol: str
    reader: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    size: tuple[int, int, int] | None = None
    leaky: bool = False
    metric: str = "accuracy"

    @property
    def processed(self) -> str:
        """The file below the root that the class writes after reading the raw ones."""
        return str(Path(self.raw).parent / "processed" / "data.pt")


def _planetoid(name: str, nodes: int, edges: int) -> NamedSet:
    return NamedSet(
        name=name,
        folder="Planetoid",
        raw=f"Planetoid/{name}/raw",
        files=tuple(f"ind.{name.lower()}.{part}" for part in _PLANETOID_PARTS),
        protocol="public split",
        reader="Planetoid",
        arguments={"name": name},
        size=(nodes, edges, 1000),
    )


def _geom_gcn(name: str, reader: str, raw: str, prefix: str, size: tuple[int, int, int], **more: Any) -> NamedSet:
    return NamedSet(
        name=name,
        folder=reader,
        raw=f"{reader}/{raw}",
        files=(
            "out1_node_feature_label.txt",
            "out1_graph_edges.txt",
            *(f"{prefix}_split_0.6_0.2_{i}.npz" for i in range(10)),
        ),
        protocol="ten geom-gcn splits (48/32/20)",
        reader=reader,
        size=size,
        **more,
    )


def _webkb(name: str, size: tuple[int, int, int]) -> NamedSet:
    key = name.lower()
    return _geom_gcn(name, "WebKB", f"{key}/raw", key, size, arguments={"name": key})


def _wikipedia(name: str, size: tuple[int, int, int]) -> NamedSet:
    key = name.lower()
    arguments = {"name": key, "geom_gcn_preprocess": True}
    return _geom_gcn(name, "WikipediaNetwork", f"{key}/geom_gcn/raw", key, size, arguments=arguments, leaky=True)


def _heterophilous(name: str, metric: str = "accuracy") -> NamedSet:
    key = name.lower().replace("-", "_")
    return NamedSet(
        name=name,
        folder="HeterophilousGraphDataset",
        raw=f"HeterophilousGraphDataset/{key}/raw",
        files=(f"{key}.npz",),
        protocol="ten splits (50/25/25)",
        reader="HeterophilousGraphDataset",
        arguments={"name": name},
        metric=metric,
    )


def _filtered(name: str) -> NamedSet:
    return NamedSet(
        name=name,
        folder="filtered",
        raw="filtered",
        files=(f"{name.lower().replace('-', '_')}.npz",),
        protocol="ten geom-gcn splits less the duplicated nodes (about 48/32/20)",
    )


# A text file that is cut short still parses, hence the sizes; a pickle or an npz file does not.
NAMED: dict[str, NamedSet] = {
    known.name.lower(): known
    for known in (
        _planetoid("Cora", 2_708, 10_556),
        _planetoid("CiteSeer", 3_327, 9_104),
        _planetoid("PubMed", 19_717, 88_648),
        _webkb("Texas", (183, 325, 37)),
        _webkb("Cornell", (183, 298, 37)),
        _webkb("Wisconsin", (251, 515, 51)),
        _wikipedia("Chameleon", (2_277, 36_101, 456)),
        _wikipedia("Squirrel", (5_201, 217_073, 1_041)),
        _geom_gcn("Actor", "Actor", "raw", "film", (7_600, 30_019, 1_520)),
        _filtered("Chameleon-filtered"),
        _filtered("Squirrel-filtered"),
        _heterophilous("Minesweeper", metric="roc_auc"),
        _heterophilous("Tolokers", metric="roc_auc"),
        _heterophilous("Roman-empire"),
        _heterophilous("Amazon-ratings"),
        _heterophilous("Questions", metric="roc_auc"),
    )
}


def canonical_key(name: str) -> str:
    """Return the name in the spelling of the keys of `NAMED`: lower case, with hyphens."""
    return name.strip().lower().replace("_", "-")


def named_set(name: str) -> NamedSet:
    """Return what is known about a data set, its name in any case and with ``-`` or ``_``.

    Examples
    --------
    >>> named_set("roman_empire").name
    'Roman-empire'
    """
    key = canonical_key(name)
    if key not in NAMED:
        close = [NAMED[match].name for match in difflib.get_close_matches(key, NAMED)]
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        known = ", ".join(known.name for known in NAMED.values())
        raise InputError(f"there is no data set called {name!r}; {meant}The names are: {known}")
    return NAMED[key]


def dataset_root(root: str | Path | None = None) -> Path:
    """Return the folder of the data sets: ``root``, else ``$GPATCHER_DATA``, else one in the user's cache."""
    chosen = root if root is not None else os.environ.get("GPATCHER_DATA") or None
    folder = Path(chosen).expanduser() if chosen is not None else Path(platformdirs.user_cache_dir("gpatcher"), "data")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the data folder {folder} is a file; pass a folder as root or in GPATCHER_DATA")
    return folder


def missing_files(name: str, root: str | Path | None = None) -> list[Path]:
    """Return the raw files of a data set that are not below the root."""
    known = named_set(name)
    paths = [dataset_root(root) / known.raw / file for file in known.files]
    return [path for path in paths if not path.is_file()]


def is_present(name: str, root: str | Path | None = None) -> bool:
    """Return whether all raw files of a data set are below the root, so that loading it needs no download."""
    return not missing_files(name, root)


def load_dataset(name: str, root: str | Path | None = None) -> Graph:
    """Load a benchmark graph with its splits, downloading what is not there.

    Parameters
    ----------
    name : one of `NAMED`, in any case, with ``-`` or ``_``
    root : the folder of all data sets; by default ``$GPATCHER_DATA``, else one in the user's cache
    """
    known, base = named_set(name), dataset_root(root)
    damage: str | None = None
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        # what is odd about a well-known file is no news; the diagnosis shows it
        warnings.simplefilter("ignore", InputWarning)
        if known.reader is not None and (base / known.processed).is_file():
            try:
                return _checked(known, _read_processed(known, base / known.processed))
            except _NOT_THE_FILE:
                raise
            except Exception as error:  # whatever a broken pickle raises
                damage = _reason(error)
        with _staging(base) as (stage, keep):
            graph, downloaded = _build(known, base, stage)
            kept = keep and _publish(known, stage, base, downloaded, replace=damage is not None)
    if damage is not None:
        warn_input(
            f"{known.name}: {base / known.processed} could not be read ({damage}); it was made anew from the raw files"
        )
    if downloaded and not kept:
        warn_input(f"{known.name}: {base} cannot be written, so the {len(downloaded)} files downloaded were not kept")
    return graph


@contextmanager
def _staging(base: Path) -> Iterator[tuple[Path, bool]]:
    """Give a scratch folder beside the data, or elsewhere (False) where nothing can be written there."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        scratch, keep = tempfile.TemporaryDirectory(dir=base, prefix=".partial-", ignore_cleanup_errors=True), True
    except OSError:
        scratch, keep = tempfile.TemporaryDirectory(prefix="gpatcher-", ignore_cleanup_errors=True), False
    with scratch as folder:
        yield Path(folder), keep


def _build(known: NamedSet, base: Path, stage: Path) -> tuple[Graph, list[str]]:
    """Read the raw files in the scratch folder; return the graph and the names of the files downloaded to it."""
    if known.reader is not None:
        import torch_geometric.datasets  # noqa: F401  (here, so that a broken installation is not taken for a broken file)
    raw, copies = base / known.raw, stage / known.raw
    copies.mkdir(parents=True)
    missing = [file for file in known.files if not (raw / file).is_file()]
    fetched = not missing
    try:
        for file in known.files:
            if file not in missing:
                # a copy, not a link: a class that downloads again must not write into the user's file
                shutil.copyfile(raw / file, copies / file)
        if known.reader is None:
            if missing:
                _download(f"{_FILTERED_URL}/{known.files[0]}", copies / known.files[0])
            fetched = True
            graph = _read_npz(known, copies / known.files[0])
        else:
            graph = _read_raw(known, stage)
        return _checked(known, graph), missing
    except _NOT_THE_FILE:
        raise
    except Exception as error:  # the network, the disk and every parser have their own
        # the classes make the folder of their results between the download and the reading
        fetched = fetched or (stage / known.processed).parent.is_dir()
        reason = _reason(error)
        disk = isinstance(error, OSError) and error.errno is not None
    if not fetched:
        raise InputError(
            f"{known.name}: {len(missing)} of {len(known.files)} files are missing from {raw}: {', '.join(missing)}; "
            f"the download failed ({reason}); put them there by hand, or set root or GPATCHER_DATA to the folder "
            "that holds them"
        )
    if missing:
        raise InputError(
            f"{known.name}: what was downloaded, with what is in {raw}, cannot be read ({reason}) and was not kept; "
            "try again later, or with that folder deleted"
        )
    if disk:
        raise InputError(f"{known.name}: the files in {raw} could not be copied to {stage.parent} and read ({reason})")
    raise InputError(f"{known.name}: the files in {raw} are damaged ({reason}); delete that folder and load it again")


def _publish(known: NamedSet, stage: Path, base: Path, downloaded: list[str], *, replace: bool) -> bool:
    """Move new raw files and the processed folder into place, each by one rename; return whether the files went."""
    try:
        (base / known.raw).mkdir(parents=True, exist_ok=True)
        for file in downloaded:
            (stage / known.raw / file).replace(base / known.raw / file)
    except OSError:
        return False
    if known.reader is not None:
        made, place = (stage / known.processed).parent, (base / known.processed).parent
        if replace or not (base / known.processed).is_file():  # damaged, or left by an interrupted run
            with suppress(OSError):
                place.rename(stage / "damaged")
        # where another process was quicker its folder stays, and where the folder is closed nothing is kept
        with suppress(OSError):
            made.rename(place)
    return True


def _read_raw(known: NamedSet, stage: Path) -> Graph:
    import torch_geometric.datasets

    reader = getattr(torch_geometric.datasets, str(known.reader))
    with redirect_stderr(io.StringIO()):  # it reports its progress there
        data = reader(str(stage / known.folder), **known.arguments)[0]
    return Graph.from_pyg(data, known.name)


def _read_processed(known: NamedSet, path: Path) -> Graph:
    from torch_geometric.data import InMemoryDataset

    # not through the class itself: finding the file gone it would write a new one in place
    saved = InMemoryDataset()
    saved.load(str(path))
    return Graph.from_pyg(saved[0], known.name)


def _read_npz(known: NamedSet, path: Path) -> Graph:
    # opened here because NumPy leaves open what it cannot read
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        source, target = arrays["edges"].T
        masks = [arrays[f"{part}_masks"] for part in ("train", "val", "test")]
        return Graph.from_edge_index(
            (np.concatenate([source, target]), np.concatenate([target, source])),
            x=arrays["node_features"],
            y=arrays["node_labels"],
            splits=[Split(*parts) for parts in zip(*masks, strict=True)],
            name=known.name,
        )


def _download(url: str, path: Path) -> None:
    with urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT) as answer, path.open("wb") as file:
        shutil.copyfileobj(answer, file)


def _checked(known: NamedSet, graph: Graph) -> Graph:
    found = (graph.n, graph.stored_edges, graph.splits[0].test.size)
    if known.size is not None and found != known.size:
        counts = "{:,} nodes, {:,} edges and {:,} test nodes"
        raise InputError(f"{counts.format(*found)} were read where there should be {counts.format(*known.size)}")
    return graph


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
