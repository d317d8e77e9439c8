"""Commands that compare models: `compare`, `bench`, `tune` and `report`."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpatcher.cli.console import check_out, check_seed, console, note, option, step, stoppable, table, warnings_as_notes
from gpatcher.cli.sources import AsJson, Root
from gpatcher.errors import InputError, counted

if TYPE_CHECKING:
    from rich.console import Group

    from gpatcher.bench.jobs import Progress
    from gpatcher.runs.run import Job

Datasets = Annotated[str | None, option("NAMES", "Only these data sets, e.g. texas,cora.")]
Models = Annotated[str | None, option("NAMES", "Only these models (rows), e.g. mlp,gcn,fast.")]
Workers = Annotated[int, option("N", "Processes at a time, one thread each.")]
Engine = Annotated[str, option("NAME", "local (processes of this machine) or ray.")]
RayAddress = Annotated[str | None, option("HOST:PORT", "A running Ray cluster. Default: a local one.")]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def bench(
    experiment: Annotated[
        str | None, typer.Argument(metavar="EXPERIMENT", help="A table or figure; --list shows them.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    datasets: Datasets = None,
    models: Models = None,
    splits: Annotated[
        str | None, option("SPLITS", "'all' or numbers such as 0,1. Default: those of the experiment.")
    ] = None,
    out: Annotated[Path | None, option("FOLDER", "Folder for the records. Default: results/bench/EXPERIMENT.")] = None,
    jobs: Workers = 1,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed jobs again.")] = False,
    tuned: Annotated[
        Path | None, option("FILE", "Settings that 'gpatcher tune' chose. Default: those of the package.")
    ] = None,
    seed: Annotated[
        int, option("N", "Seed of the first run; each further run takes the next.", callback=check_seed)
    ] = 0,
    root: Root = None,
) -> None:
    """Run an experiment: a table or figure. Jobs on record are skipped, so an interrupted run continues."""
    from gpatcher.bench.plan import experiment_names, load_experiment, plan_jobs

    screen = console()
    if listing:
        listed = {name: load_experiment(name) for name in experiment_names()}
        rows = [(name, e.title, str(len(e.datasets)), str(len(e.rows))) for name, e in listed.items()]
        screen.print(table(("experiment", "what it shows", "data sets", "rows"), rows))
        return
    if experiment is None:
        raise InputError("name an experiment, e.g. 'gpatcher bench table1'; 'gpatcher bench --list' shows them")
    folder = out or Path("results", "bench", experiment)
    from gpatcher.runs.settings import read_settings
    from gpatcher.scale.executors import job_engine

    executor = job_engine(engine, jobs, ray_address)
    with screen.status("planning"), warnings_as_notes():
        planned, notes = plan_jobs(
            experiment,
            datasets=_names(datasets),
            rows=_names(models),
            splits=splits,
            seed=seed,
            shipped=None if tuned is None else read_settings(tuned),
            root=root,
        )
        from gpatcher.bench.jobs import pending, run_jobs

        left = pending(planned, folder, retry)
    for text in notes:
        note(text)

    from rich.live import Live

    failed_before = 0 if retry else len(pending(planned, folder, retry=True)) - len(left)
    board = Board(planned, [job for job, _ in left], jobs, failed_before)
    advice = stoppable(f"finished jobs are in {folder}/records.jsonl; the same command runs the others")
    with advice, Live(board.table(), console=screen, refresh_per_second=4, get_renderable=board.table):
        for progress in run_jobs(left, folder, executor, root):
            board.add(progress)
    screen.print()
    for line in board.failures:
        typer.echo(f"failed: {line}", err=True)
    screen.print(board.summary(folder), soft_wrap=True)
    if left and len(board.failures) == len(left):
        raise typer.Exit(1)  # every job failed


class Board:
    """The live table of a run: how many jobs of each data set are done, and how long the rest may take."""

    def __init__(self, planned: list[Job], left: list[Job], workers: int, failed_before: int) -> None:
        self.total = Counter(job.dataset for job in planned)
        self.left = Counter(job.dataset for job in left)
        self.workers = workers
        self.failed_before, self.before = failed_before, len(planned) - len(left) - failed_before
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.counts: Counter[str] = Counter()  # jobs by state
        self.failed: Counter[str] = Counter()  # by data set
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
            self.seconds[job.dataset].append(record["seconds"])
            self.last = f"{job.row} on {dataset_title(job.dataset)}, split {job.split}"
            if record["error"] is not None:
                self.failed[job.dataset] += 1
                self.failures.append(f"{self.last}: {record['error']}")
            elif record.get("test") is not None:
                self.last += f": test {100 * record['test']:.1f}"

    def remaining(self, dataset: str) -> float | None:
        """Estimate the seconds that are left for a data set, by its own jobs, else by all."""
        count = self.left[dataset]
        known = self.seconds.get(dataset) or [s for values in self.seconds.values() for s in values]
        if not count:
            return 0.0
        return count * sum(known) / len(known) / self.workers if known else None

    def table(self) -> Group:
        """Draw it."""
        from rich.console import Group
        from rich.text import Text

        from gpatcher.bench.plan import dataset_title

        sums = [self.remaining(name) for name in self.total]
        left = "?" if None in sums else _clock(sum(s for s in sums if s is not None))
        caption = f"{_clock(time.monotonic() - self.started)} so far, about {left} left. {self.last}"
        drawn = table(("data set", "done", "failed", "time left"), ())
        for name, total in self.total.items():
            seconds = self.remaining(name)
            done = total - self.left[name]
            cells = (f"{done} of {total}", str(self.failed.get(name, "")), "?" if seconds is None else _clock(seconds))
            drawn.add_row(dataset_title(name), *cells, style="dim" if done == total else None)
        return Group(drawn, Text(caption))

    def summary(self, folder: Path) -> str:
        """Say in a sentence how the run went, and what to do next."""
        counts = self.counts
        text = f"{counted(counts['ran'], 'job')} ran, {self.before + counts['recorded']} were on record before"
        if counts["failed"] or self.failed_before:
            text += f", {counts['failed'] + self.failed_before} failed (run them again with --retry)"
        if counts["elsewhere"]:
            text += f", {counts['elsewhere']} are run by another process"
        return f"{text}. Records: {folder}/records.jsonl; the page: gpatcher report {folder} --out page.html"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tune(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="An experiment, e.g. leak_free, or MODEL/DATASET, e.g. gcn/texas.")
    ],
    trials: Annotated[int, option("N", "Trials for every model on every data set.")] = 20,
    out: Annotated[Path, option("FOLDER", "Folder for the log and best.json.")] = Path("results/tuning"),
    space: Annotated[str, option("NAME", "paper (its grid) or broad.")] = "broad",
    splits: Annotated[str, option("SPLITS", "Splits that a trial is validated on: 'all' or numbers.")] = "0,1,2",
    datasets: Datasets = None,
    models: Models = None,
    jobs: Workers = 1,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    seed: Annotated[int, option("N", "Seed of the sampler; trial k uses seed + k.", callback=check_seed)] = 0,
    root: Root = None,
) -> None:
    """Choose settings on validation data, with the same number of trials for every model. Resumes by itself."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from gpatcher.bench.tuning import plan_searches, run_searches
    from gpatcher.scale.executors import job_engine

    screen = console()
    executor = job_engine(engine, jobs, ray_address)
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
    for text in notes:
        note(text)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    advice = stoppable(f"finished trials are in {out}/trials.jsonl; the same command continues")
    with advice, Bar(*columns, console=screen) as bar:
        task = bar.add_task("searches", total=len(searches))
        for search, outcome in run_searches(searches, out, executor, root):
            bar.console.print(f"{search.model} on {search.dataset}: {outcome}", soft_wrap=True)
            bar.advance(task)
    screen.print(
        f"Best settings: {out}/best.json, for 'gpatcher bench EXPERIMENT --tuned {out}'. Log: {out}/trials.jsonl",
        soft_wrap=True,
    )


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A run of 'gpatcher fit', or a folder with records of 'gpatcher bench' at any depth."
        ),
    ],
    out: Annotated[
        Path | None, option("FILE", "The page. Default: RUN/report.html, or report.html for a bench.")
    ] = None,
    markdown: Annotated[Path | None, option("FILE", "Also write the tables as Markdown.")] = None,
    csv: Annotated[Path | None, option("FILE", "Also write all cells as CSV.")] = None,
    latex: Annotated[Path | None, option("FILE", "Also write the tables as LaTeX.")] = None,
) -> None:
    """Rebuild the page of a run or a bench from its files, without training."""
    screen = console()
    if (folder / "evaluation.json").is_file():
        from gpatcher.report.run import write_run_page
        from gpatcher.runs.results import read_evaluation

        if markdown or csv or latex:
            raise InputError(f"--markdown, --csv and --latex are tables of a bench; {folder} is a run")
        page = write_run_page(read_evaluation(folder), out or folder / "report.html")
        screen.print(f"Written: {page}", soft_wrap=True)
        return

    from gpatcher.bench.leaderboard import read_bench, verdict
    from gpatcher.io import write_text
    from gpatcher.report import text_tables
    from gpatcher.report.bench import write_bench

    boards = read_bench(folder)
    written = [write_bench(boards, out or Path("report.html"))]
    texts = {markdown: text_tables.markdown, csv: text_tables.csv_text, latex: text_tables.latex}
    for path, make in texts.items():
        if path is not None:
            write_text(path, make(boards))
            written.append(path)
    for line in verdict(boards):
        screen.print(f"- {line}", soft_wrap=True)
    screen.print(f"Written: {', '.join(map(str, written))}", soft_wrap=True)


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that 'gpatcher fit' wrote.")],
    out: Annotated[Path | None, option("FILE", "Also write a page, e.g. compare.html.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs on the test nodes that all of them have, each with the first: difference and paired interval."""
    check_out(out)
    with step("reading the predictions"):
        from gpatcher.report.compare import comparison_columns, comparison_lines, comparison_rows, write_comparison
        from gpatcher.runs.compare import compare_runs

        comparison = compare_runs(folders)
    if out is not None:
        write_comparison(comparison, out)
    if as_json:
        runs = [
            {
                "run": str(folder),
                "model": run.model,
                **{name: value if math.isfinite(value) else None for name, value in run.figures.items()},
                "interval": list(run.interval),
                "difference": None if run.difference is None else vars(run.difference),
            }
            for folder, run in zip(folders, comparison.runs, strict=True)
        ]
        typer.echo(json.dumps({"nodes": len(comparison.y), "runs": runs}))
        return
    screen = console()
    screen.print(table(comparison_columns(comparison), comparison_rows(comparison)))
    for line in comparison_lines(comparison):
        screen.print(line, soft_wrap=True)
    if out is not None:
        screen.print(f"The page is in {out}", soft_wrap=True)
