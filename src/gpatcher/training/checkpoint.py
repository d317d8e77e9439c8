"""Checkpoints: tensors in safetensors, the rest as JSON in its metadata; no pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gpatcher.errors import InputError
from gpatcher.io import write_bytes


def write_checkpoint(path: Path, identity: str, groups: dict[str, dict[str, Tensor]], values: dict[str, Any]) -> None:
    """Write named groups of tensors, and values as JSON, atomically; ``identity`` identifies the run."""
    tensors = {
        f"{group}.{name}": tensor.contiguous().clone()
        for group, parts in groups.items()
        for name, tensor in parts.items()
    }
    tensors["random"] = torch.get_rng_state()
    run = json.dumps({"identity": identity, **values})
    write_bytes(path, safetensors.torch.save(tensors, {"run": run, "checksum": _checksum(run, tensors)}))


def _checksum(run: str, tensors: dict[str, Tensor]) -> str:
    """Return the checksum of the content of a checkpoint."""
    digest = hashlib.sha256(run.encode())
    for name in sorted(tensors):
        array = tensors[name].cpu().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()[:16]


def read_checkpoint(
    path: Path, identity: str, groups: tuple[str, ...]
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return groups and values of a checkpoint, and restore the state of torch's random number generator from it.

    A checkpoint with another ``identity`` is an error.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
        if metadata["checksum"] != _checksum(metadata["run"], tensors):
            raise ValueError("its content does not match its checksum")
        values = json.loads(metadata["run"])
        if values["identity"] != identity:
            raise ValueError("it has another split, seed or configuration")
        torch.set_rng_state(tensors["random"])
    except (safetensors.SafetensorError, KeyError, TypeError, RuntimeError, ValueError) as error:
        raise checkpoint_error(path, error) from None
    parts = {
        group: {name[len(group) + 1 :]: value for name, value in tensors.items() if name.startswith(f"{group}.")}
        for group in groups
    }
    return parts, values


def checkpoint_error(path: Path, error: Exception) -> InputError:
    """Return the error for a checkpoint that cannot be used."""
    cause = next(iter(str(error).splitlines()), type(error).__name__)
    return InputError(
        f"the checkpoint {path} does not belong to this run or is damaged ({cause}); delete it to start again"
    )
