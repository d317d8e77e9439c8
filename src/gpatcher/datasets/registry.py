"""Benchmark graphs by name, read by torch_geometric's own classes from a folder of their raw files.

Files that are there are used and the others are downloaded. All work happens in a folder of its own and
moves into place when it is complete, so a failure, an interruption or a second process leaves nothing half-made.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from gpatcher.errors import InputError

_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


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
