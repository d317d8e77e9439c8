"""Write the result tables of README and docs, results/cells.csv and results/tables.tex from the records.

The records come from `gpatcher bench NAME --out results/bench/NAME`; a cell without records is shown as not run.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from gpatcher.baselines import PAPER_BASELINES
from gpatcher.bench.leaderboard import OWN_MODELS, ResultTable, head, rank_sentence, read_bench
from gpatcher.bench.plan import PAPER_MODELS, TITLES, load_experiment, paper_figures
from gpatcher.bench.statistics import rank
from gpatcher.errors import counted
from gpatcher.io import write_text
from gpatcher.report.text_tables import csv_text, latex, markdown
from gpatcher.runs.records import read_records, summarise
from gpatcher.runs.settings import PATCHERS, resolve_settings, shipped_settings

README, COMPARED, AUTO = Path("README.md"), Path("docs/compared.md"), Path("docs/how-to/auto.md")
BENCH, OWN_TABLES = Path("results/bench"), Path("results/portfolio/own_tables.jsonl")
FEWEST = 3  # splits that a tuned model must have been run on to stand beside the portfolio
DATASETS = ("texas", "wisconsin", "cornell", "chameleon", "squirrel", "actor", "cora", "citeseer")
# title → experiment, row, model and preset
ROWS = {
    "**GPatcher**": ("table1", "gpatcher", "gpatcher", None),
    "**Fast-GPatcher**": ("table1", "fast", "fast", None),
    "GPatcher, not tuned (`--preset default`)": ("defaults", "default", "gpatcher", "default"),
    "GPatcher, `--preset paper`": ("defaults", "paper's plain reading", "gpatcher", "paper"),
}


def cell(values: Sequence[float], expected: int = 10) -> str:
    """Return mean ± standard deviation, with the number of runs if it is not the expected one."""
    if not values:
        return "not run"
    count = "" if len(values) == expected else f" ({counted(len(values), 'run')})"
    summary = summarise(values)
    return f"{100 * summary.mean:.1f} {summary.spread}".rstrip() + count


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def against_paper() -> str:
    """Return the table of GPatcher's results, with shipped and with default settings, beside the paper's figures."""
    rows: list[list[str]] = []
    for title, (experiment, row, model, preset) in ROWS.items():
        records = read_records(BENCH / experiment / "records.jsonl")
        records = [r for r in records if r["row"] == row and r["error"] is None]
        cells = []
        for dataset in DATASETS:
            settings = resolve_settings(model, dataset, preset)[0]
            cells.append(cell([r["test"] for r in records if r["dataset"] == dataset and r["settings"] == settings]))
        rows.append([title, *cells])
        if preset is None:
            paper = paper_figures(experiment)[row]
            rows.append(["the paper's figure", *(f"{paper[d][0]:.1f}" for d in DATASETS)])
    return markdown_table(["test accuracy, %", *map(head, DATASETS)], rows)


def against_baselines(tables: Sequence[ResultTable]) -> str:
    """Return the table of all models, on data sets where all models of the paper had the same number of trials."""
    shipped = shipped_settings()
    columns = [
        (table, d)
        for table in tables
        for d in table.datasets
        if d in table.budgets and set(shipped.get(d, {})) >= set(PAPER_MODELS)
    ]
    for table, dataset in columns:
        if {shipped[dataset][name]["trials"] for name in PAPER_MODELS} != {table.budgets[dataset]}:
            raise SystemExit(f"the records of {dataset} do not match the shipped settings; run the bench again")
    runs = {name: {d: table.runs[name, d] for table, d in columns if (name, d) in table.runs} for name in TITLES}
    runs = {name: by_set for name, by_set in runs.items() if by_set}
    scores = {name: {d: r.summary.mean for d, r in by_set.items() if r.summary} for name, by_set in runs.items()}
    ranked, alone = rank(scores), rank({name: by_set for name, by_set in scores.items() if name not in OWN_MODELS[1:]})
    means = {} if ranked is None else ranked.mean
    rows = []
    for name in runs:
        cells = [cell(list(runs[name][d].by_run.values()) if d in runs[name] else []) for _, d in columns]
        rows.append([TITLES[name], *cells, f"{means[name]:.2f}" if name in means else "not ranked"])
    trial_row = ["trials for each model", *(str(table.budgets[d]) for table, d in columns), ""]
    text = markdown_table(["test, %", *(head(d) for _, d in columns), "mean rank"], [trial_row, *rows])
    if ranked is None or alone is None:
        return text
    parts = {f"`{table.name}` alone": table.ranks({d for t, d in columns if t is table}) for table in tables}
    rankings = {"All of these": ranked, "Against the baselines alone": alone, **parts}
    lines = [f"- {title}: {rank_sentence(ranks)}" for title, ranks in rankings.items() if ranks is not None]
    return "\n".join([text, "", *lines])


def as_filed(table: ResultTable) -> str:
    """Return the table of models that the paper does not have, on edges as filed, and what the mixer is worth."""
    trials = [
        sorted({r["trials"] for r in table.records if r["dataset"] == dataset and r["trials"] is not None})
        for dataset in table.datasets
    ]
    budgets = ["" if not t else str(t[0]) if len(t) == 1 else f"{t[0]} to {t[-1]}" for t in trials]
    rows = []
    for row in (row for row in table.rows if row not in PAPER_BASELINES):
        cells = []
        for dataset in table.datasets:
            runs = table.runs.get((row, dataset))
            # records of settings that no longer ship are left out
            current = runs is not None and runs.records[0]["settings"] == _shipped(row, dataset)
            cells.append(cell(list(runs.by_run.values()) if runs is not None and current else []))
        rows.append([f"**{TITLES[row]}**" if row in OWN_MODELS else TITLES[row], *cells])
    header = ["test, %", *map(head, table.datasets)]
    return f"{markdown_table(header, [['trials', *budgets], *rows])}\n\n{mixer_sentence()}"


def mean_ranks(tables: Sequence[ResultTable]) -> str:
    """Return the mean rank of each model on the leak-free sets and on the block models; bold near the first."""
    columns = [(table, ranks) for table in tables if (ranks := table.ranks()) is not None]
    order = sorted(TITLES, key=lambda name: fmean([ranks.mean.get(name, len(TITLES)) for _, ranks in columns]))
    rows = []
    for name in order:
        cells = []
        for _, ranks in columns:
            if name not in ranks.mean:
                cells.append("not ranked")
                continue
            gap, error = ranks.gap(name)
            cells.append(f"**{ranks.mean[name]:.2f}**" if gap <= error else f"{ranks.mean[name]:.2f}")
        rows.append([TITLES[name], *cells])
    header = [f"{table.experiment.title} ({len(ranks.datasets)})" for table, ranks in columns]
    return markdown_table(["mean rank", *header], rows)


@cache
def _shipped(model: str, dataset: str) -> dict[str, Any]:
    return resolve_settings(model, dataset)[0]


def never_seen() -> str:
    """Return the table of the portfolio on data sets it was not learned from, beside tuned models."""
    runs = [json.loads(line) for line in (Path("results/portfolio") / "leave_one_out.jsonl").read_text().splitlines()]
    records = [r for path in sorted(BENCH.glob("*/records.jsonl")) for r in read_records(path) if r["error"] is None]
    rows = []
    means: dict[str, dict[str, float]] = {"auto": {}}
    for dataset in dict.fromkeys(run["dataset"] for run in runs):
        own = {run["split"]: run["test"] for run in runs if run["dataset"] == dataset}
        # by row and data set, with or without direction; a run may be on record for several experiments
        scores: dict[tuple[str, str], dict[int, float]] = {}
        for record in records:
            # a data set with one split has a run per seed
            place = record["split"] if dataset not in ("cora", "citeseer") else record["seed"]
            tuned = record["trials"] is not None and record["row"] in TITLES and not record["ablation"]
            same = record["dataset"] in (dataset, dataset.removesuffix("-directed"))
            # records of settings that no longer ship are left out
            if tuned and place in own and same and record["settings"] == _shipped(record["model"], record["dataset"]):
                scores.setdefault((record["row"], record["dataset"]), {})[place] = record["test"]
        complete: dict[str, list[float]] = {}
        for (row, _), by_place in scores.items():
            values = list(by_place.values())
            if len(values) >= min(FEWEST, len(own)) and fmean(values) > fmean(complete.get(row, [0.0])):
                complete[row] = values
        ours = {row: values for row, values in complete.items() if row in PATCHERS}
        others = {row: values for row, values in complete.items() if row not in PATCHERS}
        means["auto"][dataset] = summarise(list(own.values())).mean
        for row, values in others.items():
            means.setdefault(row, {})[dataset] = summarise(values).mean
        cells = [head(dataset), str(len(own)), f"**{cell(list(own.values()), len(own))}**"]
        for group in (ours, others):
            best = max(group, key=lambda row: summarise(group[row]).mean, default=None)
            cells.append("not run" if best is None else f"{cell(group[best], len(own))} ({TITLES[best]})")
        rows.append(cells)
    header = [
        "test, %",
        "splits",
        "GPatcher (auto), never seen",
        "best of our models tuned on it",
        "best baseline tuned on it",
    ]
    note = (
        "The last two columns are the largest of several means on test nodes, of models with tuned settings, run\n"
        "on at least three of these splits: a high bar. Auto reads the filtered sets with the direction of their edges."
    )
    ranks = rank(means)
    if ranks is not None:
        order = sorted(ranks.mean, key=lambda row: ranks.mean[row])
        first = ", ".join(f"{TITLES[row]} {ranks.mean[row]:.2f}" for row in order[:3])
        note += (
            f"\nMean rank over the {len(ranks.datasets)} data sets on which {counted(len(order) - 1, 'baseline')} were "
            f"tuned, without our tuned models: {first}."
        )
    return markdown_table(header, rows) + "\n\n" + note


def own_tables() -> str:
    """Return the table of `gpatcher fit` on tables with hidden labels, beside plain methods."""
    scores: dict[str, dict[str, float]] = {}
    hidden: dict[str, int] = {}
    for line in OWN_TABLES.read_text().splitlines():
        record = json.loads(line)
        scores.setdefault(record["graph"], {})[record["row"]] = record["accuracy"]
        hidden[record["graph"]] = record["hidden"]
    rows = []
    for graph, accuracies in sorted(scores.items()):
        own = accuracies.pop("gpatcher")
        error = (own * (1 - own) / hidden[graph]) ** 0.5
        best = max(accuracies, key=lambda row: accuracies[row])
        cells = [graph, f"{hidden[graph]:,}", f"**{100 * own:.1f}** ± {100 * error:.1f}"]
        rows.append([*cells, f"{100 * accuracies[best]:.1f} ({best})", f"{(own - accuracies[best]) / error:+.1f}"])
    header = ["graph", "hidden labels", "gpatcher fit", "best of six plain methods", "difference in standard errors"]
    return markdown_table(header, rows)


def mixer_sentence() -> str:
    """Return a sentence on how many shipped settings use the mixer, and what it changes."""
    shipped = [
        resolve_settings(model, dataset)[0]["model"]["readout"]
        for dataset, models in shipped_settings().items()
        for model in PATCHERS
        if model in models
    ]
    wanted = sum("mixer" in readout for readout in shipped)
    return (
        f"The mixer of the paper is part of {wanted} of the {len(shipped)} shipped settings: elsewhere validation "
        f"preferred the node itself and the score-weighted mean of its patch alone.{mixer_table()}"
    )


def mixer_table() -> str:
    """Return a table of what the mixer changes in Fast-GPatcher at its defaults, by validation, and a verdict."""
    records = [r for r in read_records(BENCH / "parts" / "records.jsonl") if r["error"] is None]
    rows = ("fast, without the mixer", "fast, with the mixer", "fast, with the mixer, members shuffled")
    lines, gains = [], 0
    for dataset in load_experiment("parts").datasets:
        own = [r for r in records if r["dataset"] == dataset]
        runs = [{r["split"]: 100 * r["val"] for r in own if r["row"] == row} for row in rows]
        splits = sorted(set.intersection(*map(set, runs)))
        if len(splits) < 2:
            continue
        plain, mixed, shuffled = ([run[split] for split in splits] for run in runs)
        gain = [new - old for new, old in zip(mixed, plain, strict=True)]
        error = stdev(gain) / len(gain) ** 0.5
        gains += fmean(gain) > error
        means = [f"{fmean(values):.1f}" for values in (plain, mixed, shuffled)]
        lines.append([head(dataset), str(len(splits)), *means, f"{fmean(gain):+.1f} ± {error:.1f}"])
    if not lines:
        return ""
    header = [
        "Fast-GPatcher at its defaults, validation, %",
        "splits",
        "without mixer",
        "with mixer",
        "shuffled",
        "gain",
    ]
    verdict = "earns its place" if gains >= 4 else "does not earn its place"
    return (
        f"\n\n{markdown_table(header, lines)}\n\nBy these figures it {verdict}: it gains more than a standard error on "
        f"{gains} of {counted(len(lines), 'data set')}."
    )


def insert_table(text: str, name: str, table: str) -> str:
    """Return the text with the table between its two markers."""
    start, end = f"<!-- {name}: made by tools/results.py -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    return before + start + "\n" + table + "\n" + end + rest.partition(end)[2]


def made() -> dict[Path, str]:
    """Return the text of each file that is written from the records."""
    tables = read_bench(BENCH)
    named = {table.name: table for table in tables}
    directed, leak_free = named["directed"], named["leak_free"]
    parts = {
        "results": against_paper(),
        "comparison": against_baselines([directed, leak_free]),
        "ranks": mean_ranks([leak_free, named["csbm_sweep"]]),
        "rounds": as_filed(directed),
    }
    compared = COMPARED.read_text()
    for name, part in parts.items():
        compared = insert_table(compared, name, part)
    return {
        README: insert_table(README.read_text(), "unseen", never_seen()),
        COMPARED: compared,
        AUTO: insert_table(AUTO.read_text(), "own tables", own_tables()),
        Path("docs/results.md"): markdown(tables),
        Path("results/cells.csv"): csv_text(tables),
        Path("results/tables.tex"): latex(tables),
    }


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for path, text in made().items():
        write_text(path, text)
        print(path)
