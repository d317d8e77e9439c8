"""Write the README's table of results from the records of the bench: python tools/results.py.

The records come from `gpatcher bench table1 --out results/bench/table1` and
`gpatcher bench defaults --out results/bench/defaults`; a cell without records is shown as not run.
"""

from pathlib import Path
from typing import Any

from gpatcher.bench.plan import dataset_title, paper_figures
from gpatcher.data.named import NAMED
from gpatcher.records import read_records, summarise

README = Path("README.md")
BENCH = Path("results/bench")
DATASETS = ("texas", "wisconsin", "cornell", "chameleon", "squirrel", "actor", "cora", "citeseer")
# title → preset and row
ROWS = {
    "**GPatcher**": ("table1", "gpatcher"),
    "**Fast-GPatcher**": ("table1", "fast"),
    "GPatcher, not tuned (`--preset default`)": ("defaults", "default"),
    "GPatcher, `--preset paper`": ("defaults", "paper's plain reading"),
    "GCN": ("table1", "gcn"),
    "MLP": ("table1", "mlp"),
}
START, END = "<!-- results: made by tools/results.py -->", "<!-- end of results -->"


def latest(records: list[dict[str, Any]], row: str, dataset: str) -> list[float]:
    """Return the test figures of a cell, those of its newest configuration."""
    mine = [r for r in records if (r["row"], r["dataset"]) == (row, dataset) and r["error"] is None]
    return [r["test"] for r in mine if r["config_hash"] == mine[-1]["config_hash"]]


def cell(values: list[float]) -> str:
    """Return mean ± standard deviation, and how many runs where they are not ten."""
    if not values:
        return "not run"
    found = summarise(values)
    short = "" if len(values) == 10 else f" ({len(values)} runs)"
    return f"{100 * found.mean:.1f} ± {100 * found.std:.1f}{short}"


def table() -> str:
    """Return the table, from the records alone."""
    names = [dataset_title(d) + (" †" if NAMED[d].leaky else "") for d in DATASETS]
    lines = ["| test accuracy, % | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for title, (preset, row) in ROWS.items():
        records = read_records(BENCH / preset / "records.jsonl")
        lines.append(f"| {title} | " + " | ".join(cell(latest(records, row, d)) for d in DATASETS) + " |")
        theirs = paper_figures(preset).get(row, {})
        if title.startswith("**"):
            lines.append("| the paper's figure | " + " | ".join(f"{theirs[d][0]:.1f}" for d in DATASETS) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    before, _, rest = README.read_text().partition(START)
    README.write_text(before + START + "\n" + table() + "\n" + END + rest.partition(END)[2])
    print(table())
