"""The README's table of results: `python tools/results.py run` trains, `python tools/results.py table` writes.

`run` trains every model on every data set with its shipped preset, on all splits, and appends to results/records.jsonl;
what is there already is not run again. `table` reads the records alone and rewrites the table in the README.
"""

import argparse
import warnings
from pathlib import Path

import torch

from gpatcher.data import load_dataset
from gpatcher.data.named import NAMED, is_present
from gpatcher.estimator import GPatcherClassifier
from gpatcher.experiment import plan_runs, run_splits
from gpatcher.graph import InputWarning
from gpatcher.presets import parameters
from gpatcher.records import append_record, config_hash, read_records, summarise

RECORDS = Path("results/records.jsonl")
RUNS = Path("results/runs")
README = Path("README.md")
DATASETS = ("texas", "wisconsin", "cornell", "chameleon", "squirrel", "actor", "cora", "citeseer")
# (model, preset) of each row; None is the shipped preset of the data set
ROWS = {
    "GPatcher": ("gpatcher", None),
    "Fast-GPatcher": ("fast", None),
    "GPatcher, `--preset paper`": ("gpatcher", "paper"),
}
# Table 1 of the paper
PAPER = {
    "GPatcher": (85.0, 83.2, 71.5, 57.3, 37.8, 37.8, 77.3, 64.5),
    "Fast-GPatcher": (81.3, 80.5, 69.9, 55.4, 36.7, 36.7, 76.3, 62.5),
}
START, END = "<!-- results: made by tools/results.py -->", "<!-- end of results -->"


def configuration(model: str, preset: str | None, dataset: str) -> str:
    """Return the hash under which the records of a row and data set are kept."""
    classifier = GPatcherClassifier(**parameters(model, dataset, preset))
    return config_hash({k: v for k, v in classifier.get_params().items() if k not in ("seed", "memory", "device")})


def run(datasets: list[str], rows: list[str]) -> None:
    """Train what is missing."""
    warnings.simplefilter("ignore", InputWarning)
    for dataset in datasets:
        graph = load_dataset(dataset)
        for row in rows:
            model, preset = ROWS[row]
            key = configuration(model, preset, dataset)
            have = {(r["split"], r["seed"]) for r in read_records(RECORDS) if _is(r, dataset, model, key)}
            if len(have) == len(plan_runs(graph, "all", 0)):
                continue
            out = RUNS / f"{dataset}-{model}-{key}"
            chosen = parameters(model, dataset, preset)
            done = run_splits(graph, model, chosen, out, splits="all", resume=True, compare=False)
            for record in done:
                if (record["split"], record["seed"]) not in have:
                    append_record(RECORDS, record)
            print(dataset, row, summarise([r["test_accuracy"] for r in done]), flush=True)


def _is(record: dict, dataset: str, model: str, key: str) -> bool:
    return record["dataset"].lower() == dataset and record["model"] == model and record["config_hash"] == key


def table() -> str:
    """Return the table, from the records alone."""
    records = read_records(RECORDS)
    names = [NAMED[d].name + (" †" if NAMED[d].leaky else "") for d in DATASETS]
    lines = ["| test accuracy, % | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, (model, preset) in ROWS.items():
        cells = []
        for dataset in DATASETS:
            key = configuration(model, preset, dataset)
            values = [r["test_accuracy"] for r in records if _is(r, dataset, model, key)]
            found = summarise(values) if values else None
            short = f" ({len(values)} runs)" if values and len(values) < 10 else ""
            cells.append("not run" if found is None else f"{100 * found.mean:.1f} ± {100 * found.std:.1f}{short}")
        lines.append(f"| **{row}** | " + " | ".join(cells) + " |")
        if preset is None:
            lines.append("| the paper's figure | " + " | ".join(f"{value:.1f}" for value in PAPER[row]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.what == "run":
        run([d for d in options.datasets if is_present(d)], options.rows)
    else:
        before, _, rest = README.read_text().partition(START)
        README.write_text(before + START + "\n" + table() + "\n" + END + rest.partition(END)[2])
        print(table())
