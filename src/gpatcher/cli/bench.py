"""Commands that compare models: `bench`, `tune` and `report`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpatcher.cli.common import Root, console, stoppable, warnings_as_notes
from gpatcher.report import text_tables

if TYPE_CHECKING:
    from rich.console import Group

    from gpatcher.bench.jobs import Progress
    from gpatcher.bench.plan import Job

Datasets = Annotated[str | None, typer.Option(help="Only these data sets, e.g. texas,cora.")]
Models = Annotated[str | None, typer.Option(help="Only these models (rows of the table), e.g. mlp,gcn,fast.")]
Workers = Annotated[int, typer.Option(help="Processes at a time, one thread each.")]
Engine = Annotated[str, typer.Option(help="local (processes of this machine) or ray.")]
RayAddress = Annotated[str | None, typer.Option(help="Of a running cluster, host:port. Default: one of its own.")]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def bench(
    preset: Annotated[str | None, typer.Argument(help="A table or figure; --list shows them.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the presets and stop.")] = False,
    datasets: Datasets = None,
    models: Models = None,
    splits: Annotated[
        str | None, typer.Option(help="'all' or numbers such as 0,1. Default: what the preset asks for.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the records. Default: results/bench/PRESET.")] = None,
    jobs: Workers = 1,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed jobs again.")] = False,
    tuned: Annotated[
        Path | None, typer.Option(help="Configurations that 'gpatcher tune' found. Default: those of the package.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first run; each further run takes the next.")] = 0,
    root: Root = None,
) -> None:
    """Rerun a table or figure of the paper. What is on record is not run again, so a killed run just goes on."""
    from gpatcher.bench.plan import experiment_names, load_experiment, plan_jobs, read_tuned
    from gpatcher.errors import InputError

    screen = console()
    if listing:
        from rich.table import Table

        table = Table("preset", "what it shows", "data sets", "rows", header_style="bold")
        for name in experiment_names():
            about = load_experiment(name)
            table.add_row(name, about.title, str(len(about.datasets)), str(len(about.rows)))
        screen.print(table)
        return
    if preset is None:
        raise InputError("name a preset, e.g. 'gpatcher bench table1'; 'gpatcher bench --list' shows them")
    folder = out or Path("results", "bench", preset)
    load_experiment(preset)  # a wrong name is told before anything is loaded
    from gpatcher.bench.jobs import pending, run_jobs
    from gpatcher.scale.executors import job_engine

    mapping = job_engine(engine, jobs, ray_address)

    with screen.status("planning"), warnings_as_notes():
        planned, notes = plan_jobs(
            preset,
            datasets=_names(datasets),
            rows=_names(models),
            splits=splits,
            seed=seed,
            tuned=read_tuned(tuned),
            root=root,
        )
        left = pending(planned, folder, retry)
    for note in notes:
        typer.echo(f"note: {note}", err=True)

    from rich.live import Live

    given_up = 0 if retry else len(pending(planned, folder, retry=True)) - len(left)
    board = Board(planned, [job for job, _ in left], jobs, given_up)
    going_on = stoppable(f"finished jobs are in {folder}/records.jsonl; the same command runs the others")
    with going_on, Live(board.table(), console=screen, refresh_per_second=4, get_renderable=board.table):
        for progress in run_jobs(left, folder, mapping, root):
            board.add(progress)
    screen.print()
    for line in board.failures:
        typer.echo(f"failed: {line}", err=True)
    screen.print(board.summary(folder), soft_wrap=True)


class Board:
    """The live table of a run: how many jobs of each data set are done, and how long the rest may take."""

    def __init__(self, planned: list[Job], left: list[Job], workers: int, given_up: int) -> None:
        self.total: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.workers = workers
        for job in planned:
            self.total[job.dataset] = self.total.get(job.dataset, 0) + 1
        for job in left:
            self.left[job.dataset] = self.left.get(job.dataset, 0) + 1
        self.given_up, self.before = given_up, len(planned) - len(left) - given_up
        self.seconds: dict[str, list[float]] = {}
        self.counts = {"ran": 0, "failed": 0, "known": 0, "elsewhere": 0}
        self.failed: dict[str, int] = {}
        self.failures: list[str] = []
        self.last = ""
        self.started = time.monotonic()

    def add(self, progress: Progress) -> None:
        """Count a job that ended."""
        from gpatcher.bench.plan import dataset_title

        job, record = progress.job, progress.record
        self.counts[progress.state] += 1
        self.left[job.dataset] -= 1
        if record is not None:
            self.seconds.setdefault(job.dataset, []).append(record["seconds"])
            self.last = f"{job.row} on {dataset_title(job.dataset)}, split {job.split}"
            if record["error"] is not None:
                self.failed[job.dataset] = self.failed.get(job.dataset, 0) + 1
                self.failures.append(f"{self.last}: {record['error']}")
            elif record.get("test") is not None:
                self.last += f": test {100 * record['test']:.1f}"

    def remaining(self, dataset: str) -> float | None:
        """Estimate the seconds that are left for a data set, by its own jobs, else by all."""
        count = self.left.get(dataset, 0)
        known = self.seconds.get(dataset) or [s for values in self.seconds.values() for s in values]
        if not count:
            return 0.0
        return count * sum(known) / len(known) / self.workers if known else None

    def table(self) -> Group:
        """Draw it."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        from gpatcher.bench.plan import dataset_title

        sums = [self.remaining(name) for name in self.total]
        left = "?" if None in sums else _clock(sum(s for s in sums if s is not None))
        caption = f"{_clock(time.monotonic() - self.started)} so far, about {left} left. {self.last}"
        table = Table("data set", "done", "failed", "time left", header_style="bold")
        for name, total in self.total.items():
            seconds = self.remaining(name)
            done = total - self.left.get(name, 0)
            cells = (f"{done} of {total}", str(self.failed.get(name, "")), "?" if seconds is None else _clock(seconds))
            table.add_row(dataset_title(name), *cells, style="dim" if done == total else None)
        return Group(table, Text(caption))

    def summary(self, folder: Path) -> str:
        """Say in a sentence how the run went, and what to do next."""
        from gpatcher.errors import counted

        counts = self.counts
        text = f"{counted(counts['ran'], 'job')} ran, {self.before + counts['known']} were on record before"
        if counts["failed"] or self.given_up:
            text += f", {counts['failed'] + self.given_up} failed (run them again with --retry)"
        if counts["elsewhere"]:
            text += f", {counts['elsewhere']} are at work in another process"
        return f"{text}. Records: {folder}/records.jsonl; the page: gpatcher report {folder} --out page.html"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tune(
    target: Annotated[str, typer.Argument(help="A preset, e.g. honest, or MODEL/DATASET, e.g. gcn/texas.")],
    trials: Annotated[int, typer.Option(help="Trials for every model on every data set.")] = 20,
    out: Annotated[Path, typer.Option(help="Folder for the log and best.json.")] = Path("results/tuning"),
    space: Annotated[str, typer.Option(help="paper (its grid) or broad.")] = "broad",
    splits: Annotated[str, typer.Option(help="Splits that a trial is validated on: 'all' or numbers.")] = "0,1,2",
    datasets: Datasets = None,
    models: Models = None,
    jobs: Workers = 1,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    seed: Annotated[int, typer.Option(help="Of the sampler; trial k draws by seed + k.")] = 0,
    root: Root = None,
) -> None:
    """Choose configurations on validation data, with the same number of trials for every model. Resumes by itself."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from gpatcher.bench.tuning import plan_searches, run_searches
    from gpatcher.scale.executors import job_engine

    screen = console()
    mapping = job_engine(engine, jobs, ray_address)
    with screen.status("planning"), warnings_as_notes():
        searches, notes = plan_searches(
            target,
            trials=trials,
            space=space,
            splits=splits,
            datasets=_names(datasets),
            models=_names(models),
            seed=seed,
            root=root,
        )
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    going_on = stoppable(f"finished trials are in {out}/trials.jsonl; the same command goes on")
    with going_on, Progress(*columns, console=screen) as bar:
        task = bar.add_task("searches", total=len(searches))
        for search, outcome in run_searches(searches, out, mapping, root):
            bar.console.print(f"{search.model} on {search.dataset}: {outcome}", soft_wrap=True)
            bar.advance(task)
    screen.print(f"The best: {out}/best.json, for 'gpatcher bench PRESET --tuned {out}'. Log: {out}/trials.jsonl")


def report(
    folder: Annotated[Path, typer.Argument(help="Folder with records of 'gpatcher bench', at any depth.")],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    markdown: Annotated[Path | None, typer.Option(help="Also the tables in Markdown.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also all cells as CSV.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Also the tables in LaTeX.")] = None,
) -> None:
    """Make one page of tables, tests and plots from the records alone."""
    from gpatcher.bench.leaderboard import read_bench, verdict
    from gpatcher.report.bench import write_bench

    boards = read_bench(folder)
    write_bench(boards, out)
    written = [out]
    for path, make in ((markdown, text_tables.markdown), (csv, text_tables.csv_text), (latex, text_tables.latex)):
        if path is not None:
            path.write_text(make(boards))
            written.append(path)
    screen = console()
    for line in verdict(boards):
        screen.print(f"- {line}", soft_wrap=True)
    screen.print(f"Written: {', '.join(map(str, written))}", soft_wrap=True)
