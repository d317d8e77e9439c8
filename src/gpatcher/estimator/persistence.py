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
from gpatcher.codec import from_json
from gpatcher.errors import InputError, check_at_least
from gpatcher.estimator.folder import MODEL, MODEL_FORMAT, MODEL_VERSION, read_model_manifest
from gpatcher.graph.split import Split
from gpatcher.io import check_file, list_files, make_folder, write_bytes, write_json
from gpatcher.trust.calibration import Calibration, Intervals

_TENSORS = "model.safetensors"
_PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class _Parameters:
    """The parameters of the models of all kinds."""

    settings: dict[str, Any] | None = None
    memory: int | None = None
    device: str = "cpu"
    seed: int = 0
    quality: str = "good"
    budget: float | None = None

    def __post_init__(self) -> None:
        check_at_least(1, memory=1 if self.memory is None else self.memory)


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A fitted model as it is saved on disk."""

    kind: str  # of classifier, see `gpatcher.estimator.ensemble.load_model`
    parameters: dict[str, Any]  # of the classifier
    details: dict[str, Any]  # results of fitting besides the weights
    classes: list[str]  # empty in a regression
    fingerprint: str  # of the graph
    split: Split
    calibration: Calibration | Intervals
    state: dict[str, Tensor]  # weights of the model
    source: dict[str, Any] | None = None  # where the graph came from, for the command line
    folder: Path | None = None  # where it was read from, for messages

    def write(self, folder: Path) -> None:
        """Write both files, each atomically."""
        make_folder(folder)
        tensors = {name: value.contiguous().clone() for name, value in self.state.items()}
        tensors |= {f"split.{part}": torch.as_tensor(getattr(self.split, part).copy()) for part in _PARTS}
        tensors["calibration.scores"] = torch.as_tensor(self.calibration.scores)
        manifest = {
            "format": MODEL_FORMAT,
            "version": MODEL_VERSION,
            "gpatcher": __version__,
            "kind": self.kind,
            "parameters": self.parameters,
            "details": self.details,
            "classes": self.classes,
            "fingerprint": self.fingerprint,
            "calibration": self.calibration.to_dict(),
            "source": self.source,
        }
        write_bytes(folder / _TENSORS, safetensors.torch.save(tensors))
        write_json(folder / MODEL, manifest | {"files": list_files([folder / _TENSORS])})

    @classmethod
    def read(cls, folder: Path) -> SavedModel:
        """Read and check both files."""
        manifest = read_model_manifest(folder)
        path = folder / _TENSORS
        for name, entry in manifest.files.items():
            check_file(folder / name, entry, "train again")
        try:
            state = safetensors.torch.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"{path} is missing or damaged ({error}); train again") from None
        try:
            from_json(_Parameters, manifest.parameters, "parameters")
            calibration = from_json(dict[str, float], manifest.calibration, "calibration")
            return cls(
                kind=manifest.kind,
                parameters=manifest.parameters,
                details=manifest.details,
                classes=manifest.classes,
                fingerprint=manifest.fingerprint,
                split=Split(*(state.pop(f"split.{part}").numpy() for part in _PARTS)),
                calibration=(Calibration if manifest.classes else Intervals)(
                    **calibration, scores=np.asarray(state.pop("calibration.scores").numpy())
                ),
                state=state,
                source=manifest.source,
                folder=folder,
            )
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(f"the saved model in {folder} is incomplete ({error}); train again") from None
