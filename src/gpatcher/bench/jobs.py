"""Running jobs: each is done once, whoever asks, and leaves one record when it ends or fails.

A folder holds ``records.jsonl`` and ``claims``. Before it starts a job, a process claims its id, then reads the records
once more. The system releases the locks of a process that dies, so a killed run continues where it was, and two
processes share the work of one folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from gpatcher.bench.tasks import perform
from gpatcher.io import claimed, make_folder
from gpatcher.runs.records import Record, append_record, parse_record, read_records
from gpatcher.runs.run import Job
from gpatcher.scale.executors import Engine, ProcessEngine

RECORDS, CLAIMS = "records.jsonl", "claims"


class Ledger:
    """Which jobs of a folder are done and how often each has failed; reads only what was appended since."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS
        self._offset = 0
        self._ended: Counter[tuple[str, bool]] = Counter()  # (job, whether it failed)

    def _read(self) -> Counter[tuple[str, bool]]:
        if not self.path.is_file():
            return self._ended
        with self.path.open("rb") as file:
            file.seek(self._offset)
            lines, _, tail = file.read().rpartition(b"\n")
        self._ended.update(_outcomes(lines))
        self._offset += len(lines) + 1 if lines else 0
        # a record without its line end counts, and is read again next time
        return self._ended + Counter(_outcomes(tail)) if tail else self._ended

    def is_done(self, job: str) -> bool:
        """Return whether a job has succeeded."""
        return self._read()[job, False] > 0

    def failures(self, job: str) -> int:
        """Return how often a job has failed."""
        return self._read()[job, True]


def _outcomes(lines: bytes) -> Iterator[tuple[str, bool]]:
    for line in lines.splitlines():
        with suppress(ValueError, TypeError, KeyError, AttributeError):  # damaged; `read_records` counts such lines
            record = parse_record(line)
            yield record["job"], record.get("error") is not None


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    job: Job  # that ended last
    state: str  # ran, failed, recorded (another process did it since it was planned) or elsewhere (is at it)
    record: Record | None  # where this run made one


def pending(jobs: Sequence[Job], out: Path, retry: bool = False) -> list[tuple[Job, int]]:
    """Return the jobs that are still to be run, each with how often it has failed so far."""
    make_folder(out)
    read_records(out / RECORDS)  # refuses a damaged file
    ledger = Ledger(out)
    left = [(job, ledger.failures(job.id)) for job in jobs if not ledger.is_done(job.id)]
    return [(job, failures) for job, failures in left if retry or not failures]


def run_jobs(
    jobs: Sequence[tuple[Job, int]], out: Path, engine: Engine | None = None, root: Path | None = None
) -> Iterator[Progress]:
    """Run what `pending` returned, each job claimed when a process is free for it; yield the progress.

    This process alone claims and writes, so the workers of a cluster need no shared folder for the records.
    """
    out = out.resolve()
    ledger = Ledger(out)
    claims: dict[str, ExitStack] = {}
    skipped: list[Progress] = []

    def hand_out() -> Iterator[Job]:
        for job, failures in jobs:
            stack = ExitStack()
            if not stack.enter_context(claimed(out / CLAIMS, job.id)):
                skipped.append(Progress(job, "elsewhere", None))
            elif ledger.is_done(job.id) or ledger.failures(job.id) != failures:
                stack.close()
                skipped.append(Progress(job, "recorded", None))
            else:
                claims[job.id] = stack
                yield job

    try:
        for job, record in (engine or ProcessEngine()).map(perform, hand_out(), (root,)):
            append_record(ledger.path, record)
            claims.pop(job.id).close()
            yield Progress(job, "ran" if record["error"] is None else "failed", record)
        yield from skipped
    finally:
        for stack in claims.values():
            stack.close()
