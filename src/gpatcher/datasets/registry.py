"""Registry of the benchmark graphs: names, raw files, splits and how results are reported."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import platformdirs

from gpatcher.errors import InputError

_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@dataclass(frozen=True)
class NamedSet:
    """A benchmark graph: its files, how they are read and how results on it are reported."""

    name: str  # as shown in tables
    raw: str  # folder of the raw files, relative to the data folder
    files: tuple[str, ...]  # names of the raw files
    protocol: str  # splits of the data set
    reader: Literal["planetoid", "geom-gcn", "npz"]  # format of the raw files, and where they are published
    folder: str = ""  # of the published files of geom-gcn
    size: tuple[int, int, int] | None = None  # nodes, stored edges and test nodes of the first split
    directed: bool = False  # whether edges have a direction, which is kept as filed
    leaky: bool = False  # whether many test nodes duplicate training nodes
    metric: str = "accuracy"  # or "roc_auc", for two classes of very different sizes

    def address(self, file: str) -> str:
        """Return where a raw file is published, relative to the address of its source."""
        if self.reader != "geom-gcn":
            return file
        return f"splits/{file}" if file.endswith(".npz") else f"new_data/{self.folder}/{file}"


def _planetoid(name: str, nodes: int, edges: int) -> NamedSet:
    files = tuple(f"ind.{name.lower()}.{part}" for part in _PLANETOID_PARTS)
    return NamedSet(name, f"Planetoid/{name}/raw", files, "public split", "planetoid", size=(nodes, edges, 1000))


def _geom_gcn(name: str, raw: str, folder: str, size: tuple[int, int, int], **more: Any) -> NamedSet:
    """Describe a set of geom-gcn; the direction of the edges is kept as filed."""
    splits = (f"{folder}_split_0.6_0.2_{i}.npz" for i in range(10))
    files = ("out1_node_feature_label.txt", "out1_graph_edges.txt", *splits)
    protocol = "ten geom-gcn splits (48/32/20)"
    return NamedSet(name, raw, files, protocol, "geom-gcn", folder, size, directed=True, **more)


def _webkb(name: str, size: tuple[int, int, int]) -> NamedSet:
    return _geom_gcn(name, f"WebKB/{name.lower()}/raw", name.lower(), size)


def _wikipedia(name: str, size: tuple[int, int, int]) -> NamedSet:
    return _geom_gcn(name, f"WikipediaNetwork/{name.lower()}/geom_gcn/raw", name.lower(), size, leaky=True)


def _heterophilous(name: str, metric: str = "accuracy") -> NamedSet:
    key = name.lower().replace("-", "_")
    raw = f"HeterophilousGraphDataset/{key}/raw"
    return NamedSet(name, raw, (f"{key}.npz",), "ten splits (50/25/25)", "npz", metric=metric)


def _filtered(name: str, directed: bool = False) -> NamedSet:
    files = (f"{name.lower().replace('-', '_')}.npz",)
    protocol = "ten geom-gcn splits without the duplicate nodes (about 48/32/20)"
    return NamedSet(name, "filtered", files, protocol, "npz", directed=directed)


# The folders are those of torch_geometric's classes. A truncated text file still parses, hence the sizes.
NAMED: dict[str, NamedSet] = {
    dataset.name.lower(): dataset
    for dataset in (
        _planetoid("Cora", 2_708, 10_556),
        _planetoid("CiteSeer", 3_327, 9_104),
        _planetoid("PubMed", 19_717, 88_648),
        _webkb("Texas", (183, 325, 37)),
        _webkb("Cornell", (183, 298, 37)),
        _webkb("Wisconsin", (251, 515, 51)),
        _wikipedia("Chameleon", (2_277, 36_101, 456)),
        _wikipedia("Squirrel", (5_201, 217_073, 1_041)),
        _geom_gcn("Actor", "Actor/raw", "film", (7_600, 30_019, 1_520)),
        _filtered("Chameleon-filtered"),
        _filtered("Squirrel-filtered"),
        _filtered("Chameleon-filtered-directed", directed=True),
        _filtered("Squirrel-filtered-directed", directed=True),
        _heterophilous("Minesweeper", metric="roc_auc"),
        _heterophilous("Tolokers", metric="roc_auc"),
        _heterophilous("Roman-empire"),
        _heterophilous("Amazon-ratings"),
        _heterophilous("Questions", metric="roc_auc"),
    )
}


def canonical_key(name: str) -> str:
    """Return the key of a name in `NAMED`: lower case, with hyphens."""
    return name.strip().lower().replace("_", "-")


def named_set(name: str) -> NamedSet:
    """Return the entry of a data set, its name in any case and with ``-`` or ``_``."""
    key = canonical_key(name)
    if key not in NAMED:
        names = {key: dataset.name for key, dataset in NAMED.items()}
        raise InputError(
            f"there is no data set called {name!r}; {suggestion(key, names)}The names are: {', '.join(names.values())}"
        )
    return NAMED[key]


def suggestion(key: str, names: Mapping[str, str]) -> str:
    """Return "did you mean ...? " with the names whose keys are close to ``key``, or an empty string."""
    close = [names[match] for match in difflib.get_close_matches(key, names)]
    return f"did you mean {' or '.join(close)}? " if close else ""


def dataset_root(root: str | Path | None = None) -> Path:
    """Return the folder of the data sets: ``root``, else ``$GPATCHER_DATA``, else one in the user's cache."""
    chosen = root if root is not None else os.environ.get("GPATCHER_DATA") or None
    folder = Path(chosen).expanduser() if chosen is not None else Path(platformdirs.user_cache_dir("gpatcher"), "data")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the data folder {folder} is a file; pass a folder as root or in GPATCHER_DATA")
    return folder


def missing_files(name: str, root: str | Path | None = None) -> list[Path]:
    """Return the raw files of a data set that do not exist in the data folder."""
    dataset = named_set(name)
    paths = [dataset_root(root) / dataset.raw / file for file in dataset.files]
    return [path for path in paths if not path.is_file()]


def is_present(name: str, root: str | Path | None = None) -> bool:
    """Return whether all raw files of a data set exist, so that loading it needs no download."""
    return not missing_files(name, root)
