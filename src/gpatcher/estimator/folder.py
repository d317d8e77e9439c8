"""The parts of a run folder that are read without torch: the model's manifest and the graph of its tables."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import open_graph
from gpatcher.io import FileEntry, read_manifest
from gpatcher.tables.options import TableOptions
from gpatcher.tables.typed_encoder import Encoder, load_encoder

MODEL, MODEL_FORMAT, MODEL_VERSION = "model.json", "gpatcher-model", 3
ENCODER, GRAPH = "encoder.json", "graph"


@dataclass(frozen=True)
class ModelManifest:
    """The description of a saved model, ``model.json``; see `gpatcher.estimator.persistence.SavedModel`."""

    gpatcher: str  # version
    kind: str
    parameters: dict[str, Any]
    details: dict[str, Any]
    classes: list[str]
    fingerprint: str
    calibration: dict[str, Any]
    source: dict[str, Any] | None
    files: dict[str, FileEntry]


def read_model_manifest(folder: Path) -> ModelManifest:
    """Read and check the description of a saved model."""
    path = folder / MODEL
    if not path.is_file():
        raise InputError(f"{folder} contains no saved model ({MODEL} is missing); 'gpatcher fit' writes one")
    manifest: ModelManifest = read_manifest(path, MODEL_FORMAT, MODEL_VERSION, "saved model", ModelManifest)
    options = {option.name for option in fields(TableOptions)}
    try:
        TableOptions(**{name: value for name, value in (manifest.source or {}).items() if name in options})
    except InputError as error:
        raise InputError(f"{path} is damaged: source: {error}; train again") from None
    return manifest


def open_tables(folder: Path) -> tuple[Graph, Encoder | None] | None:
    """Return the graph and the encoder that `keep_tables` wrote, None if there is no graph."""
    if not (folder / GRAPH).is_dir():
        return None
    graph, path = open_graph(folder / GRAPH), folder / ENCODER
    if not path.is_file():
        return graph, None
    encoder, width = load_encoder(path), 0 if graph.x is None else graph.x.shape[1]
    if encoder.width != width:
        raise InputError(
            f"{path} is damaged: it makes {encoder.width:,} features, the graph has {width:,}; train again"
        )
    return graph, encoder


def load_run_graph(folder: Path, root: Path | None = None) -> tuple[Graph, dict[str, Any], Encoder | None]:
    """Load the graph that a saved model was trained on; return it, where it came from and the encoder of its tables."""
    source = read_model_manifest(folder).source
    if not source:
        raise InputError(f"{folder} does not say which graph it belongs to; use it from Python with the graph")
    # a graph from tables is saved with the model: the tables may no longer exist
    kept = open_tables(folder)
    if kept is not None:
        return kept[0], source, kept[1]
    if source.get("name") is not None:
        return load_graph(str(source["name"]), root), source, None
    from gpatcher.tables.load import load_tables

    options = {name: value for name, value in source.items() if name != "label_type"}  # not an option
    return load_tables(**options).graph, source, None
