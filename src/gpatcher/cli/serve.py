"""The command `serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from gpatcher.cli.console import console, option, warnings_as_notes
from gpatcher.cli.sources import Root, RunFolder
from gpatcher.errors import InputError

_MIB = 1 << 20


def serve(
    folder: RunFolder,
    host: Annotated[
        str, option("ADDRESS", "Where to listen; beyond this machine, e.g. 0.0.0.0, requests need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, option("NUMBER", "Port to listen on; 0 for any that is free.")] = 8000,
    token_file: Annotated[
        Path | None, option("FILE", "File with the token that requests need. Default: $GPATCHER_TOKEN, else none.")
    ] = None,
    workers: Annotated[int, option("NUMBER", "Processes that answer; they share the run.")] = 1,
    max_nodes: Annotated[int, option("NUMBER", "Nodes that one request may ask for.")] = 1000,
    max_body: Annotated[float, option("MIB", "Size of the body of a request.")] = 1.0,
    timeout: Annotated[float, option("SECONDS", "Time that a request may take.")] = 10.0,
    root: Root = None,
) -> None:
    """Serve predictions and explanations over HTTP, with a page to look up nodes."""
    from gpatcher.serve.guard import Limits, check_token, is_loopback
    from gpatcher.serve.server import Settings, serve

    if not 0 < max_body < 2**20:
        raise InputError(f"--max-body must be a number of MiB above 0, got {max_body}")
    digest = check_token(_read_token(token_file), host)
    limits = Limits(body=int(max_body * _MIB), nodes=max_nodes, seconds=timeout)
    settings = Settings(
        folder=str(folder.absolute()),
        root=None if root is None else str(root.absolute()),
        host=host,
        port=port,
        workers=workers,
        token=digest,
        limits=limits,
    )
    screen = console()

    def announce(address: str) -> None:
        token = "" if digest is None else "; requests need the token"
        screen.print(f"{folder} is served at {address}{token}. Ctrl-C stops the service", soft_wrap=True)
        if not is_loopback(host):
            screen.print("Nothing is encrypted: put a proxy with TLS before it", soft_wrap=True)

    with warnings_as_notes():
        serve(settings, announce)


def _read_token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("GPATCHER_TOKEN") or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise InputError(f"{file} is not text in UTF-8; write the token into it as text") from None
