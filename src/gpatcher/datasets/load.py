"""Load a graph from one string: the name of a data set, a generator, or the folder of a stored graph."""

from __future__ import annotations

import tempfile
import threading
import warnings
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path

from gpatcher.datasets.download import download, download_failed, publish
from gpatcher.datasets.raw import read_raw
from gpatcher.datasets.registry import NAMED, canonical_key, dataset_root, missing_files, named_set, suggestion
from gpatcher.datasets.synthetic import GENERATORS, parse_source
from gpatcher.datasets.targets import component_target
from gpatcher.errors import InputError, InputWarning, warn_input
from gpatcher.graph.graph import Graph

# Warning filters are global to the process: only one thread at a time may change them.
_LOCK = threading.Lock()


def load_graph(source: str, root: str | Path | None = None) -> Graph:
    """Load a data set by name, generate a graph from ``family:key=value,...``, or open the folder of a stored one.

    Parameters
    ----------
    source : str
        Name of a data set such as ``Cora``, a generator with its arguments such as ``csbm:phi=-0.5,n=5000``,
        ``component:`` and one of these for a regression, see `component_target`, or the folder that `save_graph` wrote.
        Write ``./cora`` for a folder with the name of a data set.
    root : str or Path, optional
        Folder of all data sets; by default ``$GPATCHER_DATA``, else a folder in the user's cache.

    Returns
    -------
    Graph
    """
    family, _, rest = source.partition(":")
    family = family.strip()
    if family in GENERATORS:
        return parse_source(source)
    if family == "component":
        return replace(component_target(load_graph(rest, root)), name=source)
    if canonical_key(source) in NAMED:
        return load_dataset(source, root)
    if Path(source).is_dir():
        from gpatcher.graph.storage import open_graph  # pyarrow takes half a second to import

        return open_graph(source)
    names = {key: dataset.name for key, dataset in NAMED.items()}
    generators = {family: family for family in GENERATORS}
    raise InputError(
        f"{source!r} is neither a data set, a generator, nor the folder of a stored graph; "
        f"{suggestion(canonical_key(family), names | generators)}The data sets are: {', '.join(names.values())}. "
        f"The generators, with arguments as in csbm:n=5000, are: {', '.join(generators)}"
    )


def load_dataset(name: str, root: str | Path | None = None) -> Graph:
    """Load a benchmark graph, a key of `NAMED`, with its splits; missing files are downloaded.

    The direction of the edges is kept as filed (Texas, Cornell, Wisconsin, Chameleon, Squirrel, Actor and the two sets
    ``...-filtered-directed``); the other sets are undirected. Only raw files are read, and nothing in them is executed.
    A download is compared with the published hash where that is on record, read, and only then put into the data
    folder, so that a failure, an interruption or a second process leaves nothing incomplete.
    """
    dataset, base = named_set(name), dataset_root(root)
    raw = base / dataset.raw
    missing = [path.name for path in missing_files(name, base)]
    with tempfile.TemporaryDirectory(prefix="gpatcher-", ignore_cleanup_errors=True) as stage:
        try:
            download(dataset, missing, Path(stage))
        except (OSError, HTTPException, InputError) as error:
            raise download_failed(dataset, missing, raw, error) from None
        paths = {file: (Path(stage) if file in missing else raw) / file for file in dataset.files}
        try:
            with _LOCK, warnings.catch_warnings():
                # peculiarities of a published file are not the user's concern here; the diagnosis shows them
                warnings.simplefilter("ignore", InputWarning)
                graph = read_raw(dataset, paths)
        except InputError as error:
            kept = "; the downloaded files were not kept" if missing else ""
            raise InputError(f"{dataset.name}, files in {raw}: {error}{kept}") from None
        if missing and not publish(dataset, missing, Path(stage), base):
            warn_input(
                f"{dataset.name}: {base} cannot be written, so the {len(missing)} files downloaded were not kept"
            )
    return graph
