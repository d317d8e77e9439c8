"""A PostgreSQL server for tests and benchmarks: on the loopback address, with a password, removed afterwards."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

USER = "gpatcher"
PASSWORD = "hunter2 p@ss/w%rd"  # with characters that must be escaped in a URL


class NoServerError(Exception):
    """No server can be started on this machine; the message says why."""


@dataclass(frozen=True)
class Server:
    """The address of a server; its database is called postgres."""

    port: int
    user: str = USER
    password: str = PASSWORD

    @property
    def url(self) -> str:
        """The URL of its database, without the password."""
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/postgres"


@contextmanager
def server() -> Iterator[Server]:
    """Start a server with a database cluster in a temporary folder, and stop it; NoServerError if not possible."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = str(programs[-1]) if programs else shutil.which("initdb")
    if found is None:
        raise NoServerError("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    as_user: dict[str, object] = {}
    folder = Path(tempfile.mkdtemp(prefix="gpatcher-postgres-"))
    try:
        if os.geteuid() == 0:  # initdb refuses to run as root
            entry = _unprivileged()
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o644)  # read by the other user, who alone has access to the folder

        def call(program: str, *arguments: object) -> None:
            command = [str(Path(found).with_name(program)), "-D", str(folder / "data"), *map(str, arguments)]
            # not a pipe, which the server would keep open
            with (folder.parent / f"{folder.name}.log").open("w+") as log:
                done = subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False, **as_user)
                if done.returncode:
                    log.seek(0)
                    raise NoServerError(f"{program} failed: {log.read().strip()[-500:]}")

        call("initdb", "-U", USER, f"--pwfile={folder / 'password'}", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync")
        port = _free_port()
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
        call("pg_ctl", "-w", "-l", folder / "server.log", "-o", options, "start")
        try:
            yield Server(port)
        finally:
            call("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        (folder.parent / f"{folder.name}.log").unlink(missing_ok=True)


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServerError("there is no user postgres or nobody to run a server as, and root may not")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
