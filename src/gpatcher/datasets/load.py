"""Load a graph from one string: the name of a data set, a generator, or the folder of a stored graph."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from gpatcher.datasets.download import LOCK, NOT_THE_FILE, build, check_counts, publish, read_processed, reason
from gpatcher.datasets.registry import NAMED, canonical_key, dataset_root, named_set, suggestion
from gpatcher.datasets.synthetic import GENERATORS, parse_source
from gpatcher.errors import InputError, InputWarning, warn_input
from gpatcher.graph.graph import Graph


def load_graph(source: str, root: str | Path | None = None) -> Graph:
    """Load a data set by name, generate a graph from ``family:key=value,...``, or open the folder of a stored one.

    Parameters
    ----------
    source : str
        Name of a data set such as ``Cora``, a generator with its arguments such as ``csbm:phi=-0.5,n=5000``, or
        the folder that `save_graph` wrote. Write ``./cora`` for a folder with the name of a data set.
    root : str or Path, optional
        Folder of all data sets; by default ``$GPATCHER_DATA``, else a folder in the user's cache.

    Returns
    -------
    Graph
    """
    family = source.partition(":")[0].strip()
    if family in GENERATORS:
        return parse_source(source)
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
    ``...-filtered-directed``); the other sets are undirected. Raw files are read in a temporary folder and new files
    are published whole, so that a failure, an interruption or a second process leaves nothing incomplete.
    """
    dataset, base = named_set(name), dataset_root(root)
    processed = base / dataset.processed
    damage: str | None = None
    with LOCK, warnings.catch_warnings():
        # peculiarities of a published file are not the user's concern here; the diagnosis shows them
        warnings.simplefilter("ignore", InputWarning)
        if dataset.reader is not None and processed.is_file():
            try:
                return check_counts(dataset, read_processed(dataset, processed))
            except NOT_THE_FILE:
                raise
            except Exception as error:  # a broken pickle may raise anything
                damage = reason(error)
        with tempfile.TemporaryDirectory(prefix="gpatcher-", ignore_cleanup_errors=True) as stage:
            graph, downloaded = build(dataset, base, Path(stage))
            kept = publish(dataset, Path(stage), base, downloaded, replace=damage is not None)
    if damage is not None:
        warn_input(f"{dataset.name}: {processed} could not be read ({damage}); it was rebuilt from the raw files")
    if downloaded and not kept:
        warn_input(f"{dataset.name}: {base} cannot be written, so the {len(downloaded)} files downloaded were not kept")
    return graph
