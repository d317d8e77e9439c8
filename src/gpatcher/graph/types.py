"""Types of nodes, for graphs that are read from several tables of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import IntArray


@dataclass(frozen=True, eq=False)
class NodeTypes:
    """The type of each node. Ids are unique within a type, so ``Graph.node_ids`` has them as text, ``type:id``.

    Parameters
    ----------
    codes : int8 array, shape (n,)
        Position of each node's type in ``names``.
    names : tuple of str
    labelled : str
        The type that has labels, whose nodes are predicted.
    integer_ids : tuple of str
        Types whose ids are integers in their tables.
    """

    codes: IntArray
    names: tuple[str, ...]
    labelled: str
    integer_ids: tuple[str, ...] = ()

    def nodes(self, name: str | None = None) -> IntArray:
        """Return the nodes of a type, by default of the one with labels."""
        return np.flatnonzero(self.codes == self.names.index(self.labelled if name is None else name))

    def ids(self, node_ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the ids of nodes of the labelled type as their table has them, without the type."""
        bare = np.array([text.partition(":")[2] for text in node_ids], object)
        return bare.astype(np.int64) if self.labelled in self.integer_ids else bare
