"""What stands before every request: its host, its token, the size of its body and the time it may take."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import time
from dataclasses import dataclass
from typing import Any

from gpatcher.errors import InputError, check_count
from gpatcher.serve.metrics import Metrics

MIN_TOKEN = 16  # characters
_OPEN = ("/", "/docs", "/openapi.json", "/health")  # without a token: they tell nothing about the data
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_DRAINED = 4  # times the limit: what is read of a body that is too large, so that its sender reads the answer
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        b"img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    ),
]


@dataclass(frozen=True)
class Limits:
    """What one request may ask for.

    Parameters
    ----------
    body : int
        Bytes of the body.
    nodes : int
        Nodes that are predicted.
    seconds : float
        From the first byte to the answer.
    waiting : int
        Requests of a worker that wait for their turn; further ones are refused.
    """

    body: int = 1 << 20
    nodes: int = 1000
    seconds: float = 10.0
    waiting: int = 64

    def __post_init__(self) -> None:
        check_count(body=self.body, nodes=self.nodes, waiting=self.waiting)
        if not 0 < self.seconds < 1e6:
            raise InputError(f"the time of a request must be a number of seconds above 0, got {self.seconds}")


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(token: str | None, host: str) -> str | None:
    """Return the digest of a token, None without one; an address beyond this machine needs a token.

    Examples
    --------
    >>> check_token(None, "127.0.0.1") is None
    True
    >>> check_token(None, "0.0.0.0")
    Traceback (most recent call last):
    ...
    gpatcher.errors.InputError: 0.0.0.0 can be reached from other machines, so requests need a token: write one of at \
least 16 characters into a file and pass --token-file, or set GPATCHER_TOKEN; or keep to 127.0.0.1
    """
    if token is None:
        if is_loopback(host):
            return None
        raise InputError(
            f"{host} can be reached from other machines, so requests need a token: write one of at least {MIN_TOKEN} "
            "characters into a file and pass --token-file, or set GPATCHER_TOKEN; or keep to 127.0.0.1"
        )
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"the token must have at least {MIN_TOKEN} letters, digits or signs and no space, got {len(token)} "
            "characters; 'openssl rand -hex 32' makes one"
        )
    return _digest(token)


class Guard:
    """An ASGI application that lets acceptable requests through to another one, with their body read.

    Parameters
    ----------
    app
        The application.
    limits : Limits
    token : str or None
        Digest of the token that requests need.
    metrics : Metrics
        Where requests are counted.
    """

    def __init__(self, app: Any, limits: Limits, token: str | None, metrics: Metrics) -> None:
        self.app = app
        self.limits = limits
        self.token = token
        self.metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        scope["deadline"] = asyncio.get_running_loop().time() + self.limits.seconds
        status = 500

        async def send_with_headers(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        try:
            refused = self._refusal(scope)
            body = b""
            if refused is None:
                body, refused = await self._body(receive, scope["deadline"])
            if refused is not None:
                await _answer(send_with_headers, *refused)
                return
            await self.app(scope, _replay(body, receive), send_with_headers)
        finally:
            self.metrics.count(_kind(scope["path"]), status, time.perf_counter() - started)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        """Return status and message where the headers alone are reason to refuse."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if self.token is None:
            # a page elsewhere may give its own name this address; without a token only this check keeps it out
            host = headers.get(b"host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() not in _LOOPBACK:
                return 421, f"the host {name!r} is not served here; ask for 127.0.0.1 or localhost"
        elif scope["path"] not in _OPEN:
            kind, _, given = headers.get(b"authorization", "").partition(" ")
            # digests have one length, so the time tells nothing about the token
            if kind.lower() != "bearer" or not hmac.compare_digest(_digest(given.strip()), self.token):
                return 401, "the token is missing or wrong: send the header 'Authorization: Bearer TOKEN'"
        return None

    async def _body(self, receive: Any, deadline: float) -> tuple[bytes, tuple[int, str] | None]:
        """Return the body, or status and message where it is too large or too slow."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return b"", (400, "the connection was closed before the body was complete")
                    size += len(message.get("body", b""))
                    if size <= self.limits.body:
                        parts.append(message.get("body", b""))
                    if not message.get("more_body") or size > _DRAINED * self.limits.body:
                        break
        except TimeoutError:
            return b"", (408, f"the body did not arrive within {self.limits.seconds:g} seconds")
        if size > self.limits.body:
            return b"", (
                413,
                f"the body has more than {self.limits.body:,} bytes; send fewer nodes at a time, or start the service "
                "with a larger --max-body",
            )
        return b"".join(parts), None


def _replay(body: bytes, receive: Any) -> Any:
    """Return a channel that gives a body that was read, then what follows."""
    waiting = True

    async def again() -> Any:
        nonlocal waiting
        if waiting:
            waiting = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


async def _answer(send: Any, status: int, message: str) -> None:
    content = json.dumps({"detail": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _kind(path: str) -> str:
    """Return the path as it is counted."""
    first = path.strip("/").split("/")[0]
    if first in ("", "docs", "openapi.json"):
        return "page"
    return first if first in ("predict", "explain", "health", "metrics") else "other"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
