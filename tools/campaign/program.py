"""Run gpatcher in processes of its own: forked from one that has imported everything, so that a try takes no import.

The fork calls ``gpatcher.cli.main`` with a command line, as the installed command does. Tries with worker processes,
and those under a limit on memory from the start, run a new interpreter instead.
"""

import os
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

IDLE_SECONDS = 60.0  # a process that does nothing for so long, hangs
OPTIONAL = ("gpatcher.serve", "gpatcher.scale.ray_training")  # not part of the campaign
INTERPRETER = (sys.executable, "-c", "from gpatcher.cli import main; main()")


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None  # exit code, below 0 for a signal, None if it hung and was killed
    out: str
    err: str
    cpu: float  # seconds of the processor

    @property
    def outcome(self) -> str:
        """How it ended, before anybody looks at the answer: done, refused, failed, traceback, signal or hang."""
        if self.code is None:
            return "hang"
        if "Traceback (most recent call last)" in self.err:
            return "traceback"
        if self.code < 0:
            return "signal"
        if self.code == 0:
            return "done"
        said = any(line.startswith(("error:", "Usage:", "failed:", "stopped", "damaged:")) for line in self.lines)
        return "refused" if said else "failed"

    @property
    def lines(self) -> list[str]:
        """The lines of stderr, and of stdout, without indentation."""
        return [line.strip() for line in (self.err + "\n" + self.out).splitlines()]

    @property
    def message(self) -> str:
        """The last line that says something, for the record."""
        said = [line for line in self.err.splitlines() if line.strip()] or [""]
        errors = [line for line in said if line.startswith("error:")]
        return (errors or said)[-1]


def import_all() -> None:
    """Import every module of the package, once, in the process that forks."""
    import gpatcher

    for module in pkgutil.walk_packages(gpatcher.__path__, "gpatcher."):
        if not module.name.startswith(OPTIONAL):
            import_module(module.name)
    for name in ("pyarrow.csv", "pyarrow.parquet", "rich.live", "rich.progress", "sklearn.linear_model", "optuna"):
        import_module(name)


class Process:
    """A run of the program; `wait` returns how it ended."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: dict[str, str] | None = None,
        *,
        before: Callable[[], None] | None = None,
        fork: bool = True,
    ) -> None:
        log = Path(tempfile.gettempdir()) / f"campaign-{os.getpid()}-{os.urandom(4).hex()}"  # never on a full disk
        self.logs = log.with_suffix(".out"), log.with_suffix(".err")
        # all that it may write elsewhere is in the folder of the try too
        environment = {"COLUMNS": "400", "TMPDIR": str(folder), "HOME": str(folder), **(environment or {})}
        if fork:
            self.process = None
            self.pid = os.fork()
            if self.pid:
                with suppress(OSError):
                    os.setpgid(self.pid, self.pid)  # whoever is first
            else:
                self._run(words, folder, environment, before)
        else:
            with self.logs[0].open("wb") as out, self.logs[1].open("wb") as err:
                self.process = subprocess.Popen(
                    [*INTERPRETER, *words],
                    cwd=folder,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    process_group=0,
                    preexec_fn=before,
                )
            self.pid = self.process.pid

    def _run(
        self, words: Sequence[str], folder: Path, environment: dict[str, str], before: Callable[[], None] | None
    ) -> None:
        """Be the child: never returns."""
        code = 70
        try:
            os.setpgid(0, 0)  # a group of its own, for signals; the session, and so the priority, of the campaign
            os.chdir(folder)
            for number, path in enumerate((Path(os.devnull), *self.logs)):
                handle = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o644)
                os.dup2(handle, number)
                os.close(handle)
            os.environ.update(environment)
            tempfile.tempdir = None  # as TMPDIR says
            sys.argv = ["gpatcher", *words]
            if before is not None:
                before()
            code = _call_main()
        finally:
            os._exit(code)

    def signal(self, number: int) -> None:
        """Send a signal to the process and its workers, as a terminal does."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def poll(self) -> int | None:
        """Return the exit code, below 0 for a signal, None while it runs."""
        if not hasattr(self, "_code"):
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if not pid:
                return None
            self._code = os.waitstatus_to_exitcode(status)
            self._cpu = used.ru_utime + used.ru_stime
            if self.process is not None:
                self.process.returncode = self._code
        return self._code

    def cpu(self) -> float:
        """Return the seconds of the processor that it has used, without its workers while it runs."""
        if self.poll() is not None:
            return self._cpu
        with suppress(OSError):
            return time.clock_gettime((~self.pid << 3) | 2)  # the clock of another process: clock_getcpuclockid(3)
        return 0.0

    def until(self, cpu: float) -> None:
        """Wait until it has used these seconds of the processor, or ended: a moment that load does not shift."""
        while self.poll() is None and self.cpu() < cpu:
            time.sleep(0.002)

    def wait(self, timeout: float = 300.0) -> Ended:
        """Wait for the end; a process hangs if it uses more than ``timeout`` seconds of the processor, or is idle."""
        cpu, busy = 0.0, time.monotonic()
        look = busy + 1.0
        while (code := self.poll()) is None:
            time.sleep(0.004)
            if (now := time.monotonic()) < look:
                continue
            look = now + 1.0
            if (used := self.cpu()) > cpu + 0.5 or self._waits_for_a_core():  # a spinner takes 0.1 s a minute
                cpu, busy = used, now
            if cpu > timeout or now - busy > IDLE_SECONDS:
                break
        self.signal(signal.SIGKILL)  # workers that are left, too
        while self.poll() is None:
            time.sleep(0.004)
        texts = []
        for log in self.logs:
            texts.append(log.read_text(errors="replace") if log.exists() else "")
            log.unlink(missing_ok=True)
        return Ended(code, *texts, self._cpu)

    def _waits_for_a_core(self) -> bool:
        """Whether it, or a worker, could run if the machine were not busy."""
        import psutil

        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            states = {one.status() for one in (process, *process.children(recursive=True))}
            return bool(states & {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP, psutil.STATUS_STOPPED})
        return False


def _call_main() -> int:
    from gpatcher import cli

    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 1
    return code


def run(
    words: Sequence[str],
    folder: Path,
    environment: dict[str, str] | None = None,
    *,
    timeout: float = 300.0,
    before: Callable[[], None] | None = None,
    fork: bool = True,
) -> Ended:
    """Run a command line in a folder."""
    return Process(words, folder, environment, before=before, fork=fork).wait(timeout)


def limit_memory(extra: int) -> Callable[[], None]:
    """Return what limits the address space of a fork to what it has, and some bytes more."""

    def limit() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        total = pages * resource.getpagesize() + extra
        resource.setrlimit(resource.RLIMIT_AS, (total, total))

    return limit


def limit_files(size: int) -> Callable[[], None]:
    """Return what limits the size of a file: the write that crosses it is short, the next one fails."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit
