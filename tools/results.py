"""Write the README's tables of results, docs/results.md and its other forms from the records: python tools/results.py.

The records come from `gpatcher bench PRESET --out results/bench/PRESET`; a cell without records is shown as not run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpatcher.bench.leaderboard import ResultTable, head, rank_sentence, read_bench
from gpatcher.bench.plan import TITLES, paper_figures, read_tuned
from gpatcher.bench.statistics import rank, sum_up
from gpatcher.errors import counted
from gpatcher.report.text_tables import csv_text, latex, markdown
from gpatcher.runs.models import settings
from gpatcher.runs.records import read_records

README = Path("README.md")
BENCH = Path("results/bench")
DATASETS = ("texas", "wisconsin", "cornell", "chameleon", "squirrel", "actor", "cora", "citeseer")
# title → preset, row, model and where its settings come from
ROWS = {
    "**GPatcher**": ("table1", "gpatcher", "gpatcher", None),
    "**Fast-GPatcher**": ("table1", "fast", "fast", None),
    "GPatcher, not tuned (`--preset default`)": ("defaults", "default", "gpatcher", "default"),
    "GPatcher, `--preset paper`": ("defaults", "paper's plain reading", "gpatcher", "paper"),
}


def cell(values: Sequence[float], usual: int = 10) -> str:
    """Return mean ± standard deviation, and how many runs where they are not as many as usual."""
    if not values:
        return "not run"
    short = "" if len(values) == usual else f" ({counted(len(values), 'run')})"
    return f"{sum_up(values)}{short}"


def lines_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def shipped() -> str:
    """Return the table of the settings that ship with the package, beside the paper's figures."""
    rows: list[list[str]] = []
    for title, (preset, row, model, base) in ROWS.items():
        records = [r for r in read_records(BENCH / preset / "records.jsonl") if r["row"] == row and r["error"] is None]
        cells = []
        for dataset in DATASETS:
            config = settings(model, dataset, {}, base)[0]
            cells.append(cell([r["test"] for r in records if r["dataset"] == dataset and r["config"] == config]))
        rows.append([title, *cells])
        if base is None:
            theirs = paper_figures(preset)[row]
            rows.append(["the paper's figure", *(f"{theirs[d][0]:.1f}" for d in DATASETS)])
    return lines_of(["test accuracy, %", *map(head, DATASETS)], rows)


def tuned(boards: Sequence[ResultTable]) -> str:
    """Return the table of all models, on the data sets on which all were tuned alike."""
    trials: dict[str, Any] = {d: {m: e["trials"] for m, e in models.items()} for d, models in read_tuned().items()}
    columns = [(board, d) for board in boards for d in board.datasets if d in board.budgets]
    for board, dataset in columns:
        if set(trials[dataset].values()) != {board.budgets[dataset]}:
            raise SystemExit(f"the records of {dataset} are not those of the package's tuned.json; run them again")
    found = {name: {d: board.runs[name, d] for board, d in columns if (name, d) in board.runs} for name in TITLES}
    scores = {name: {d: runs.cell.mean for d, runs in own.items() if runs.cell} for name, own in found.items()}
    ranked, alone = rank(scores), rank({name: own for name, own in scores.items() if name != "fast"})
    means = {} if ranked is None else ranked.mean
    rows = []
    for name, title in TITLES.items():
        cells = [cell(list(found[name][d].by_run.values()) if d in found[name] else []) for _, d in columns]
        rows.append([title, *cells, f"{means[name]:.2f}" if name in means else "not ranked"])
    trial_row = ["trials for each model", *(str(board.budgets[d]) for board, d in columns), ""]
    table = lines_of(["test, %", *(head(d) for _, d in columns), "mean rank"], [trial_row, *rows])
    if ranked is None or alone is None:
        return table
    parts = {f"`{board.name}` alone": board.ranks(board.budgets) for board in boards}
    whole = {"All of these": ranked, "Against the eleven baselines alone": alone, **parts}
    lines = [f"- {where}: {rank_sentence(found)}" for where, found in whole.items() if found is not None]
    return "\n".join([table, "", *lines])


def put(text: str, name: str, table: str) -> str:
    """Return a text with the table between its marks."""
    start, end = f"<!-- {name}: made by tools/results.py -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    return before + start + "\n" + table + "\n" + end + rest.partition(end)[2]


def made() -> dict[Path, str]:
    """Return all that is made from the records: each file's text."""
    boards = read_bench(BENCH)
    compared = [board for board in boards if board.name in ("table1", "honest")]
    text = put(README.read_text(), "results", shipped())
    return {
        README: put(text, "comparison", tuned(compared)),
        Path("docs/results.md"): markdown(boards),
        Path("results/cells.csv"): csv_text(boards),
        Path("results/tables.tex"): latex(boards),
    }


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text)
        print(path)
