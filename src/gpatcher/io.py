"""Files: reading and writing them whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpatcher.errors import InputError


def read_description(path: Path, kind: str, version: int, what: str) -> dict[str, Any]:
    """Read the JSON file that describes a folder; ``what`` the folder holds is for messages on other kinds of files."""
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        known = about["format"] == kind
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise InputError(f"{path} is not the description of a {what}; choose another folder")
    if about.get("version") != version:
        raise InputError(
            f"the {what} in {path.parent} has version {about.get('version')}, this gpatcher reads {version}; "
            "make it anew"
        )
    return about
