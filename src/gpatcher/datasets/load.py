"""A graph by one string: the name of a data set, a generator, or the folder of a stored graph."""

from __future__ import annotations

import difflib
import warnings
from pathlib import Path

from gpatcher.datasets.download import LOCK, NOT_THE_FILE, build, check_counts, publish, read_processed, reason, staging
from gpatcher.datasets.registry import NAMED, canonical_key, dataset_root, named_set
from gpatcher.datasets.synthetic import GENERATORS, parse_source
from gpatcher.errors import InputError, InputWarning, warn_input
from gpatcher.graph.graph import Graph


def load_graph(source: str, root: str | Path | None = None) -> Graph:
    """Load a data set by its name, generate a graph from ``family:key=value,...``, or open the folder of a stored one.

    Parameters
    ----------
    source : str
        The name of a data set such as ``Cora``, a generator with its arguments such as ``csbm:phi=-0.5,n=5000``, or
        the folder that `save_graph` wrote. Write ``./cora`` for a folder with the name of a data set.
    root : str or Path, optional
        Folder of the data sets, see `load_dataset`.

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
    names = {key: known.name for key, known in NAMED.items()} | {family: family for family in GENERATORS}
    close = [names[match] for match in difflib.get_close_matches(canonical_key(family), names)]
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(
        f"{source!r} is neither a data set, a generator, nor the folder of a stored graph; {meant}"
        f"The data sets are: {', '.join(known.name for known in NAMED.values())}. "
        f"The generators, with arguments as in csbm:n=5000, are: {', '.join(GENERATORS)}"
    )


def load_dataset(name: str, root: str | Path | None = None) -> Graph:
    """Load a benchmark graph with its splits, downloading what is not there.

    Parameters
    ----------
    name : one of `NAMED`, in any case, with ``-`` or ``_``
    root : the folder of all data sets; by default ``$GPATCHER_DATA``, else one in the user's cache
    """
    known, base = named_set(name), dataset_root(root)
    damage: str | None = None
    with LOCK, warnings.catch_warnings():
        # what is odd about a well-known file is no news; the diagnosis shows it
        warnings.simplefilter("ignore", InputWarning)
        if known.reader is not None and (base / known.processed).is_file():
            try:
                return check_counts(known, read_processed(known, base / known.processed))
            except NOT_THE_FILE:
                raise
            except Exception as error:  # whatever a broken pickle raises
                damage = reason(error)
        with staging(base) as (stage, keep):
            graph, downloaded = build(known, base, stage)
            kept = keep and publish(known, stage, base, downloaded, replace=damage is not None)
    if damage is not None:
        warn_input(
            f"{known.name}: {base / known.processed} could not be read ({damage}); it was made anew from the raw files"
        )
    if downloaded and not kept:
        warn_input(f"{known.name}: {base} cannot be written, so the {len(downloaded)} files downloaded were not kept")
    return graph
