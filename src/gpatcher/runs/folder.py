"""The folder of a run: it has a single run, and one process at a time writes to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpatcher.errors import InputError
from gpatcher.io import exchange_folders, locked, make_folder, read_manifest, remove_folder, write_json

_FORMAT, _VERSION = "gpatcher-run", 1
MANIFEST, RECORDS, PREDICTIONS = "run.json", "records.jsonl", "predictions.parquet"


@dataclass(frozen=True)
class _Manifest:
    identity: dict[str, Any]


def check_folder(out: Path, *, resume: bool, overwrite: bool) -> bool:
    """Return whether a folder has files; an error if it may not be written to. See `run_folder`."""
    if resume and overwrite:
        raise InputError("--resume continues the run in the folder, --overwrite replaces it; pass one of them")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose another folder")
    occupied = out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir())
    if occupied and not overwrite:
        _check_is_run(out)
        if not resume:
            raise InputError(
                f"{out} already contains a run; choose another folder with --out, continue it with --resume, or "
                "replace it with --overwrite"
            )
    return occupied


@contextmanager
def run_folder(out: Path, identity: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Yield the folder to write a run into, locked; an error if it has another run.

    Parameters
    ----------
    out : Path
    identity : mapping
        What identifies the run, as JSON values; saved in ``run.json``.
    resume : bool
        Whether to continue the run in the folder, which must have the same identity.
    overwrite : bool
        Whether to replace the run in the folder: the new one is written to a temporary folder, which replaces it at the
        end.
    """
    occupied = check_folder(out, resume=resume, overwrite=overwrite)  # before a lock is put into somebody's folder
    if not occupied or not overwrite:
        with locked(out):
            if occupied:
                _check_is_run(out)
                _check_identity(out, identity)
            write_json(out / MANIFEST, {"format": _FORMAT, "version": _VERSION, "identity": dict(identity)})
            yield out
        return
    beside = out.with_name(f".{out.name}.next")
    with locked(out):
        remove_folder(beside)
        make_folder(beside)
        write_json(beside / MANIFEST, {"format": _FORMAT, "version": _VERSION, "identity": dict(identity)})
        try:
            yield beside
        except BaseException:
            remove_folder(beside)
            raise
        exchange_folders(beside, out)
        remove_folder(beside)  # the run before


def _check_is_run(out: Path) -> None:
    if not (out / MANIFEST).is_file():
        raise InputError(
            f"{out} is not empty and contains no run of 'gpatcher fit' ({MANIFEST} is missing); choose another folder, "
            "or pass --overwrite to replace what is in it"
        )


def _check_identity(out: Path, identity: Mapping[str, Any]) -> None:
    kept = read_manifest(out / MANIFEST, _FORMAT, _VERSION, "run", _Manifest).identity
    wanted = json.loads(json.dumps(dict(identity)))
    changed = [name for name in {**kept, **wanted} if kept.get(name) != wanted.get(name)]
    if changed:
        name = changed[0]
        raise InputError(
            f"--resume continues the run in {out}, but its {name} was {_short(kept.get(name))} and is now "
            f"{_short(wanted.get(name))}; choose another folder with --out, or replace the run with --overwrite"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
