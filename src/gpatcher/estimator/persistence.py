"""Saved models: weights and split in ``model.safetensors``, everything else in ``model.json``; no pickle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gpatcher import __version__
from gpatcher.errors import InputError
from gpatcher.graph.split import Split
from gpatcher.io import draft_of, make_folder, read_manifest, write_json
from gpatcher.patches.base import Extractor
from gpatcher.patches.extract import extractor_parameters, make_extractor
from gpatcher.trust.calibration import Calibration

_FORMAT = "gpatcher-model"
_VERSION = 2
_MANIFEST, _TENSORS = "model.json", "model.safetensors"
_PARAMETERS = ("settings", "memory", "device", "seed")
_PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A fitted model as it is on disk."""

    parameters: dict[str, Any]  # settings, memory, device and seed of the classifier
    extractors: tuple[Extractor, ...]  # in use, one per patch source
    compared: dict[str, float]  # validation loss of each choice of extractors that was trained
    classes: list[str]
    fingerprint: str  # of the graph
    split: Split
    calibration: Calibration
    state: dict[str, Tensor]  # weights of the model
    source: dict[str, Any] | None = None  # where the graph came from, for the command line
    table: Path | None = None  # folder of the patch table

    def write(self, folder: Path) -> None:
        """Write both files, each whole or not at all."""
        make_folder(folder)
        tensors = {name: value.contiguous().clone() for name, value in self.state.items()}
        tensors |= {f"split.{part}": torch.as_tensor(getattr(self.split, part).copy()) for part in _PARTS}
        tensors["calibration.scores"] = torch.as_tensor(self.calibration.scores)
        manifest = {
            "format": _FORMAT,
            "version": _VERSION,
            "gpatcher": __version__,
            "parameters": self.parameters,
            "extractors": [{"name": e.name, **extractor_parameters(e)} for e in self.extractors],
            "compared": self.compared,
            "classes": self.classes,
            "fingerprint": self.fingerprint,
            "calibration": self.calibration.to_dict(),
            "source": self.source,
            "patch_table": None if self.table is None else str(self.table.absolute()),
        }
        with draft_of(folder / _TENSORS) as draft:
            safetensors.torch.save_file(tensors, draft)
        write_json(folder / _MANIFEST, manifest)

    @classmethod
    def read(cls, folder: Path) -> SavedModel:
        """Read and check both files."""
        manifest = read_model_manifest(folder)
        path = folder / _TENSORS
        try:
            state = safetensors.torch.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"{path} is missing or damaged ({error}); train again") from None
        try:
            return cls(
                parameters={name: manifest["parameters"][name] for name in _PARAMETERS},
                extractors=tuple(
                    make_extractor(e["name"], {k: v for k, v in e.items() if k != "name"})
                    for e in manifest["extractors"]
                ),
                compared=dict(manifest["compared"]),
                classes=list(manifest["classes"]),
                fingerprint=str(manifest["fingerprint"]),
                split=Split(*(state.pop(f"split.{part}").numpy() for part in _PARTS)),
                calibration=Calibration(
                    **manifest["calibration"], scores=np.asarray(state.pop("calibration.scores").numpy())
                ),
                state=state,
                source=manifest["source"],
                table=None if manifest["patch_table"] is None else Path(manifest["patch_table"]),
            )
        except (TypeError, KeyError) as error:
            raise InputError(f"the saved model in {folder} is incomplete ({error}); train again") from None


def read_model_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the description of a saved model."""
    path = folder / _MANIFEST
    if not path.is_file():
        raise InputError(f"{folder} holds no saved model: it has no {_MANIFEST}; 'gpatcher fit' writes one")
    return read_manifest(path, _FORMAT, _VERSION, "saved model")
