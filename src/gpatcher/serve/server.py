"""Start and stop the service: one process, or several workers that share a run."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpatcher.codec import from_json, to_json
from gpatcher.errors import InputError, check_count
from gpatcher.estimator.folder import read_model_manifest
from gpatcher.io import write_json
from gpatcher.serve.guard import Limits

_VARIABLE = "GPATCHER_SERVE"  # where workers find the settings
_SETTINGS = "settings.json"
_CONNECTIONS = 256  # of a worker at the same time
_FAILED = 3  # exit code that tells uvicorn not to start the worker again


@dataclass(frozen=True)
class Settings:
    """What is served, where and how.

    Parameters
    ----------
    folder : str
        The run.
    root : str or None
        Folder of the data sets, for a run on one of them.
    host : str
    port : int
        0 for any that is free.
    workers : int
        Processes that answer.
    token : str or None
        Digest of the token, see `gpatcher.serve.guard.check_token`.
    limits : Limits
    """

    folder: str
    root: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_count(workers=self.workers)
        if not 0 <= self.port < 2**16:
            raise InputError(f"the port must lie between 0 and 65535, got {self.port}")


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve a run until the process is told to stop; requests in hand are answered first.

    ``announce`` is called with the address once requests are about to be taken.
    """
    uvicorn = import_uvicorn()
    read_model_manifest(Path(settings.folder))  # a wrong folder is told before anything is started
    port = _free_port(settings.host, settings.port)
    late: list[bool] = []
    with tempfile.TemporaryDirectory(prefix="gpatcher-serve-") as scratch:
        # uvicorn ends gracefully, then raises the signal again: without a handler the folder would stay behind
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            app: Any = f"{__name__}:create_app"
            if settings.workers > 1:
                write_json(Path(scratch) / _SETTINGS, to_json(settings))
                os.environ[_VARIABLE] = scratch
            else:
                app = _load(settings, Path(scratch), lambda: late.append(True))
            shown = f"[{settings.host}]" if ":" in settings.host else settings.host
            announce(f"http://{shown}:{port}")
            uvicorn.run(
                app,
                host=settings.host,
                port=port,
                workers=settings.workers,
                factory=settings.workers > 1,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=int(settings.limits.seconds) + 1,
                timeout_worker_healthcheck=60,
            )
        finally:
            signal.signal(signal.SIGTERM, before)
            os.environ.pop(_VARIABLE, None)
            if late:
                shutil.rmtree(scratch)
                _leave()


def create_app() -> Any:
    """Return the application of a worker, with the settings that `serve` wrote."""
    scratch = Path(os.environ[_VARIABLE])
    settings = from_json(Settings, json.loads((scratch / _SETTINGS).read_text()))
    try:
        return _load(settings, scratch, _leave)
    except InputError as error:
        logging.getLogger("uvicorn.error").error("error: %s", error)
        sys.exit(_FAILED)


def import_uvicorn() -> Any:
    """Return uvicorn; an error says how to install the extra."""
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as error:
        raise InputError(f"the service needs the package {error.name}: pip install 'gpatcher[serve]'") from None
    return uvicorn


def _leave() -> None:
    """End the process without waiting for a thread whose result nobody wants, which an ordinary exit would do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _load(settings: Settings, scratch: Path, abandon: Callable[[], None]) -> Any:
    from gpatcher.serve.app import make_app
    from gpatcher.serve.metrics import Metrics
    from gpatcher.serve.run import ServedRun

    root = None if settings.root is None else Path(settings.root)
    run = ServedRun.open(Path(settings.folder), scratch, root)
    return make_app(run, settings.limits, settings.token, Metrics(scratch), abandon)


def _free_port(host: str, port: int) -> int:
    """Return the port, a free one for 0; an error where it is taken, before the run is loaded."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
            return int(tried.getsockname()[1])
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{host}:{port} cannot be used ({reason}); choose another --host or --port") from None
