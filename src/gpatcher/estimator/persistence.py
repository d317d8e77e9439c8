"""Saved models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpatcher.errors import InputError

FORMAT = "gpatcher-model"
FORMAT_VERSION = 1


def read_about(folder: Path) -> dict[str, Any]:
    """Read and check the description of a saved model."""
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no saved model: there is no {path.name} in it")
    try:
        about: Any = json.loads(path.read_text())
        if not isinstance(about, dict) or about["format"] != FORMAT:
            raise InputError(f"{path} does not describe a gpatcher model")
        version = int(about["format_version"])
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error}); train again") from None
    if version > FORMAT_VERSION:
        raise InputError(
            f"{path} was written by gpatcher {about.get('gpatcher')} in format {version}; this one reads up to "
            f"{FORMAT_VERSION}: install a newer gpatcher"
        )
    return about
