"""Download and read the raw files of the named data sets, and publish them in the data folder."""

from __future__ import annotations

import io
import shutil
import threading
import urllib.request
from contextlib import redirect_stderr, suppress
from pathlib import Path

import numpy as np

from gpatcher.datasets.registry import NamedSet, missing_files
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.io import draft_of, make_folder, new_folder

FILTERED_URL = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"
_DOWNLOAD_TIMEOUT = 60  # seconds without an answer
# errors that do not mean a damaged file: out of memory, a warning turned into an error
NOT_THE_FILE = (MemoryError, Warning)
# Warning filters and sys.stderr are global to the process: only one thread at a time may change them.
LOCK = threading.Lock()


def build(dataset: NamedSet, base: Path, stage: Path) -> tuple[Graph, list[str]]:
    """Read the raw files, copied or downloaded to ``stage``; return the graph and the names of the downloaded files."""
    if dataset.reader is not None:
        import torch_geometric.datasets  # outside the try: a broken installation is not a broken file
    raw, copies = base / dataset.raw, stage / dataset.raw
    copies.mkdir(parents=True)
    missing = [path.name for path in missing_files(dataset.name, base)]
    try:
        for name in set(dataset.files).difference(missing):
            # a copy, not a link: a class that downloads again must not write into the user's file
            shutil.copyfile(raw / name, copies / name)
        if dataset.reader is None:
            path = copies / dataset.files[0]
            if missing:
                # no pooch: it would serve this file only, as the classes of torch_geometric download all other sets
                url = f"{FILTERED_URL}/{dataset.files[0]}"
                with urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT) as answer, path.open("wb") as file:
                    shutil.copyfileobj(answer, file)
            graph = _read_npz(dataset, path)
        else:
            reader = getattr(torch_geometric.datasets, dataset.reader)
            with redirect_stderr(io.StringIO()):  # it reports its progress there
                data = reader(str(stage / dataset.reader), **dataset.arguments)[0]
            graph = Graph.from_pyg(data, dataset.name)
        return check_counts(dataset, graph), missing
    except NOT_THE_FILE:
        raise
    except Exception as error:  # network, disk and parsers raise errors of many types
        cause = reason(error)
        disk = isinstance(error, OSError) and error.errno is not None
    if not missing and disk:
        raise InputError(f"{dataset.name}: the files in {raw} could not be copied to {stage.parent} and read ({cause})")
    if not missing:
        raise InputError(f"{dataset.name}: the files in {raw} are damaged ({cause}); delete that folder and try again")
    if all((copies / file).is_file() for file in missing):
        raise InputError(
            f"{dataset.name}: the downloaded files, together with those in {raw}, cannot be read ({cause}) and were "
            "not kept; try again later, or delete that folder first"
        )
    raise InputError(
        f"{dataset.name}: {len(missing)} of {len(dataset.files)} files are missing from {raw}: {', '.join(missing)}; "
        f"the download failed ({cause}); copy them to that folder by hand, or set root or GPATCHER_DATA to the folder "
        "that holds them"
    )


def publish(dataset: NamedSet, stage: Path, base: Path, downloaded: list[str], *, replace: bool) -> bool:
    """Copy new raw files and the processed folder to ``base``, each whole or not at all; False where it fails."""
    try:
        raw = make_folder(base / dataset.raw)
        for file in downloaded:
            with draft_of(raw / file) as draft:
                shutil.copyfile(stage / dataset.raw / file, draft)
    except InputError:
        return False
    if dataset.reader is not None:
        processed = base / dataset.processed
        if replace or not processed.is_file():  # damaged, or left by an interrupted run
            shutil.rmtree(processed.parent, ignore_errors=True)
        # the folder of a faster process stays, and where the data folder is read-only nothing is kept
        with suppress(InputError), new_folder(processed.parent) as folder:
            shutil.copytree((stage / dataset.processed).parent, folder, dirs_exist_ok=True)
    return True


def read_processed(dataset: NamedSet, path: Path) -> Graph:
    """Read the file that the class of a data set wrote after reading the raw ones."""
    from torch_geometric.data import InMemoryDataset

    # not through the class itself: where the file has disappeared it would write a new one in place
    saved = InMemoryDataset()
    saved.load(str(path))
    return Graph.from_pyg(saved[0], dataset.name)


def _read_npz(dataset: NamedSet, path: Path) -> Graph:
    # opened here because NumPy does not close a file that it cannot read
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        source, target = arrays["edges"].T
        if not dataset.directed:  # each edge is filed once
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        masks = [arrays[f"{part}_masks"] for part in ("train", "val", "test")]
        return Graph.from_edge_index(
            (source, target),
            x=arrays["node_features"],
            y=arrays["node_labels"],
            splits=[Split(*parts) for parts in zip(*masks, strict=True)],
            name=dataset.name,
        )


def check_counts(dataset: NamedSet, graph: Graph) -> Graph:
    """Return the graph; an error where its size is not the published one."""
    counts = (graph.n, graph.stored_edges, graph.splits[0].test.size)
    if dataset.size is not None and counts != dataset.size:
        text = "{:,} nodes, {:,} edges and {:,} test nodes"
        raise InputError(f"the files hold {text.format(*counts)} instead of {text.format(*dataset.size)}")
    return graph


def reason(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
