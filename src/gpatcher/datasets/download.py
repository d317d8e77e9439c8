"""Download and reading of the raw files of named data sets."""

from __future__ import annotations

import io
import shutil
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path

import numpy as np

from gpatcher.datasets.registry import NamedSet
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split

FILTERED_URL = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"
_DOWNLOAD_TIMEOUT = 60  # seconds without an answer
# errors that say nothing about a file: a lack of memory, a warning made an error
NOT_THE_FILE = (MemoryError, Warning)
# The filters of `warnings` and sys.stderr belong to the whole process: one thread at a time may bend them.
LOCK = threading.Lock()


@contextmanager
def staging(base: Path) -> Iterator[tuple[Path, bool]]:
    """Give a scratch folder beside the data, or elsewhere (False) where nothing can be written there."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        scratch, keep = tempfile.TemporaryDirectory(dir=base, prefix=".partial-", ignore_cleanup_errors=True), True
    except OSError:
        scratch, keep = tempfile.TemporaryDirectory(prefix="gpatcher-", ignore_cleanup_errors=True), False
    with scratch as folder:
        yield Path(folder), keep


def build(known: NamedSet, base: Path, stage: Path) -> tuple[Graph, list[str]]:
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
                _download(f"{FILTERED_URL}/{known.files[0]}", copies / known.files[0])
            fetched = True
            graph = _read_npz(known, copies / known.files[0])
        else:
            graph = _read_raw(known, stage)
        return check_counts(known, graph), missing
    except NOT_THE_FILE:
        raise
    except Exception as error:  # the network, the disk and every parser have their own
        # the classes make the folder of their results between the download and the reading
        fetched = fetched or (stage / known.processed).parent.is_dir()
        cause = reason(error)
        disk = isinstance(error, OSError) and error.errno is not None
    if not fetched:
        raise InputError(
            f"{known.name}: {len(missing)} of {len(known.files)} files are missing from {raw}: {', '.join(missing)}; "
            f"the download failed ({cause}); put them there by hand, or set root or GPATCHER_DATA to the folder "
            "that holds them"
        )
    if missing:
        raise InputError(
            f"{known.name}: what was downloaded, with what is in {raw}, cannot be read ({cause}) and was not kept; "
            "try again later, or with that folder deleted"
        )
    if disk:
        raise InputError(f"{known.name}: the files in {raw} could not be copied to {stage.parent} and read ({cause})")
    raise InputError(f"{known.name}: the files in {raw} are damaged ({cause}); delete that folder and load it again")


def publish(known: NamedSet, stage: Path, base: Path, downloaded: list[str], *, replace: bool) -> bool:
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


def read_processed(known: NamedSet, path: Path) -> Graph:
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


def check_counts(known: NamedSet, graph: Graph) -> Graph:
    found = (graph.n, graph.stored_edges, graph.splits[0].test.size)
    if known.size is not None and found != known.size:
        counts = "{:,} nodes, {:,} edges and {:,} test nodes"
        raise InputError(f"{counts.format(*found)} were read where there should be {counts.format(*known.size)}")
    return graph


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
