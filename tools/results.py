"""Write the README's result tables, docs/results.md, results/cells.csv and results/tables.tex from the records.

The records come from `gpatcher bench NAME --out results/bench/NAME`; a cell without records is shown as not run.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpatcher.bench.leaderboard import Board, head, read_bench, standing
from gpatcher.bench.plan import TITLES, paper_figures, read_tuned
from gpatcher.bench.statistics import rank, sum_up
from gpatcher.errors import counted
from gpatcher.io import write_text
from gpatcher.report.text_tables import csv_text, latex, markdown
from gpatcher.runs.models import settings
from gpatcher.runs.records import read_records

README = Path("README.md")
BENCH = Path("results/bench")
DATASETS = ("texas", "wisconsin", "cornell", "chameleon", "squirrel", "actor", "cora", "citeseer")
# title → experiment, row, model and origin of its settings
ROWS = {
    "**GPatcher**": ("table1", "gpatcher", "gpatcher", None),
    "**Fast-GPatcher**": ("table1", "fast", "fast", None),
    "GPatcher, not tuned (`--preset default`)": ("defaults", "default", "gpatcher", "default"),
    "GPatcher, `--preset paper`": ("defaults", "paper's plain reading", "gpatcher", "paper"),
}


def cell(values: Sequence[float], expected: int = 10) -> str:
    """Return mean ± standard deviation, with the number of runs where it is not the expected one."""
    if not values:
        return "not run"
    count = "" if len(values) == expected else f" ({counted(len(values), 'run')})"
    return f"{sum_up(values)}{count}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def shipped() -> str:
    """Return the table of results with the shipped settings, beside the paper's figures."""
    rows: list[list[str]] = []
    for title, (experiment, row, model, base) in ROWS.items():
        records = read_records(BENCH / experiment / "records.jsonl")
        records = [r for r in records if r["row"] == row and r["error"] is None]
        cells = []
        for dataset in DATASETS:
            config = settings(model, dataset, {}, base)[0]
            cells.append(cell([r["test"] for r in records if r["dataset"] == dataset and r["config"] == config]))
        rows.append([title, *cells])
        if base is None:
            paper = paper_figures(experiment)[row]
            rows.append(["the paper's figure", *(f"{paper[d][0]:.1f}" for d in DATASETS)])
    return markdown_table(["test accuracy, %", *map(head, DATASETS)], rows)


def tuned(boards: Sequence[Board]) -> str:
    """Return the table of all models, on the data sets where each had the same number of trials."""
    trials: dict[str, Any] = {d: {m: e["trials"] for m, e in models.items()} for d, models in read_tuned().items()}
    columns = [(board, d) for board in boards for d in board.datasets if d in board.budgets]
    for board, dataset in columns:
        if set(trials[dataset].values()) != {board.budgets[dataset]}:
            raise SystemExit(f"the records of {dataset} do not match the package's tuned.json; run the bench again")
    runs = {name: {d: board.runs[name, d] for board, d in columns if (name, d) in board.runs} for name in TITLES}
    scores = {name: {d: r.cell.mean for d, r in by_set.items() if r.cell} for name, by_set in runs.items()}
    ranked, alone = rank(scores), rank({name: by_set for name, by_set in scores.items() if name != "fast"})
    means = {} if ranked is None else ranked.mean
    rows = []
    for name, title in TITLES.items():
        cells = [cell(list(runs[name][d].by_run.values()) if d in runs[name] else []) for _, d in columns]
        rows.append([title, *cells, f"{means[name]:.2f}" if name in means else "not ranked"])
    trial_row = ["trials for each model", *(str(board.budgets[d]) for board, d in columns), ""]
    table = markdown_table(["test, %", *(head(d) for _, d in columns), "mean rank"], [trial_row, *rows])
    if ranked is None or alone is None:
        return table
    parts = {f"`{board.name}` alone": board.ranks(board.budgets) for board in boards}
    rankings = {"All of these": ranked, "Against the eleven baselines alone": alone, **parts}
    lines = [f"- {title}: {standing(ranks)}" for title, ranks in rankings.items() if ranks is not None]
    return "\n".join([table, "", *lines])


def insert_table(text: str, name: str, table: str) -> str:
    """Return the text with the table between its two markers."""
    start, end = f"<!-- {name}: made by tools/results.py -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    return before + start + "\n" + table + "\n" + end + rest.partition(end)[2]


def made() -> dict[Path, str]:
    """Return the text of each file that is written from the records."""
    boards = read_bench(BENCH)
    compared = [board for board in boards if board.name in ("table1", "honest")]
    text = insert_table(README.read_text(), "results", shipped())
    return {
        README: insert_table(text, "comparison", tuned(compared)),
        Path("docs/results.md"): markdown(boards),
        Path("results/cells.csv"): csv_text(boards),
        Path("results/tables.tex"): latex(boards),
    }


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for path, text in made().items():
        write_text(path, text)
        print(path)
