"""One encoder per node type: a block of features for each, then a feature that says which type a node has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import Features
from gpatcher.io import write_json
from gpatcher.kernels.columns import append_block, append_dense_block
from gpatcher.tables.edge_columns import EdgePlan
from gpatcher.tables.encoder import FORMAT, SPARSE, VERSION, ColumnSummary, TableEncoder, read_encoder


@dataclass(frozen=True)
class TypedEncoder:
    """Encodes the columns of several tables of nodes, each in a block of features that is 0 for other types.

    Parameters
    ----------
    blocks : mapping of str to TableEncoder
        The encoder of each node type, in the order of the features.
    sparse : bool
        Whether the features are a SciPy CSR array.
    """

    blocks: Mapping[str, TableEncoder]
    sparse: bool = False

    @classmethod
    def of(cls, blocks: Mapping[str, TableEncoder], rows: Mapping[str, int]) -> TypedEncoder:
        """Return the encoder of these blocks, sparse if the features of that many rows are mostly 0."""
        encoder = cls(dict(blocks))
        filled = sum(rows[name] * (1 + block.width) for name, block in blocks.items())
        mostly_zero = filled < SPARSE * encoder.width * sum(rows.values())
        return replace(encoder, sparse=mostly_zero or any(block.sparse for block in blocks.values()))

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.blocks) + sum(block.width for block in self.blocks.values())

    @property
    def columns(self) -> dict[str, str]:
        """Kind of each column that is used, named type.column."""
        return {
            f"{name}.{column}": kind for name, block in self.blocks.items() for column, kind in block.columns.items()
        }

    @property
    def edges(self) -> tuple[EdgePlan, ...]:
        """How the columns of each edge type are aggregated to node columns."""
        return tuple({plan.name: plan for block in self.blocks.values() for plan in block.edges}.values())

    def names(self) -> list[str]:
        """Return the names of the features, in order."""
        names = [f"{name}.{feature}" for name, block in self.blocks.items() for feature in block.names()]
        return names + [f"type = {name}" for name in self.blocks]

    def describe(self, columns: Mapping[str, Mapping[str, Any]]) -> list[ColumnSummary]:
        """Return for each column of each type how it is encoded."""
        return [
            row._replace(column=f"{name}.{row.column}")
            for name, block in self.blocks.items()
            for row in block.describe(columns[name])
        ]

    def join(self, parts: Mapping[str, Features | None], rows: Mapping[str, int]) -> Features:
        """Return the features of all nodes from those of each type; the types come in the order of ``rows``."""
        first = dict(zip(self.blocks, np.cumsum([0, *(block.width for block in self.blocks.values())]), strict=False))
        indicator = {name: self.width - len(self.blocks) + j for j, name in enumerate(self.blocks)}
        if not self.sparse:
            x = np.zeros((sum(rows.values()), self.width), np.float32)
            start = 0
            for name, count in rows.items():
                part = parts.get(name)
                if part is not None:
                    x[start : start + count, first[name] : first[name] + part.shape[1]] = part
                x[start : start + count, indicator[name]] = 1.0
                start += count
            return x
        empty = {name: np.empty((count, 0), np.float32) for name, count in rows.items()}
        blocks: list[Any] = [empty[name] if parts.get(name) is None else parts[name] for name in rows]
        n = sum(rows.values())
        entries = n + sum(int(block.nnz if sp.issparse(block) else np.count_nonzero(block)) for block in blocks)
        indptr = np.zeros(n + 1, np.int32 if entries < 2**31 else np.int64)
        indices, data = np.empty(entries, indptr.dtype), np.empty(entries, np.float32)
        start = 0
        for (name, count), block in zip(rows.items(), blocks, strict=True):
            target = int(first[name]), indicator[name], (indptr[start : start + count + 1], indices, data)
            if sp.issparse(block):
                append_block((block.indptr, block.indices, block.data), *target)
            else:
                append_dense_block(np.asarray(block), *target)
            start += count
        return sp.csr_array((data, indices, indptr), shape=(n, self.width))

    def save(self, path: Path) -> Path:
        """Write the encoder as JSON."""
        types = [{"name": name, **block.content()} for name, block in self.blocks.items()]
        write_json(path, {"format": FORMAT, "version": VERSION, "types": types, "sparse": self.sparse})
        return path


Encoder: TypeAlias = TableEncoder | TypedEncoder


def load_encoder(path: Path) -> Encoder:
    """Read an encoder that was saved, of one node type or of several."""

    def make(content: Mapping[str, Any]) -> Encoder:
        if "types" not in content:
            return TableEncoder.from_content(content)
        blocks = {part["name"]: TableEncoder.from_content(part) for part in content["types"]}
        return TypedEncoder(blocks, bool(content["sparse"]))

    encoder: Encoder = read_encoder(path, make)
    return encoder
