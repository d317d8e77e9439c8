"""The command that compares files with their checksums: `verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpatcher.errors import InputError, counted


def verify(path: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run, stored graph or patch table.")]) -> None:
    """Compare every file of a run, a stored graph or a patch table with its checksum; exit code 1 if one differs."""
    from gpatcher import io

    if not path.is_dir():
        raise InputError(f"{path} is not a folder; pass that of a run, a stored graph or a patch table")
    manifests = files = 0
    problems: list[str] = []
    for _, count, found in io.verify(path):
        manifests, files = manifests + 1, files + count
        problems += found
    if not manifests:
        raise InputError(f"{path} contains nothing to verify: no file in it lists checksums")
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    summary = f"{counted(manifests, 'manifest')} and {counted(files, 'listed file')} in {path}"
    typer.echo(f"{summary}: {counted(len(problems), 'problem') if problems else 'all as written'}")
    if problems:
        raise typer.Exit(1)
