"""Benchmark results as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gpatcher.bench.leaderboard import NOT_RUN, OURS, ResultTable, compare, head, is_leaky, metric_of, verdict
from gpatcher.bench.plan import row_title
from gpatcher.bench.statistics import Ranks


def markdown(tables: Sequence[ResultTable]) -> str:
    """Return the summary and the result tables in Markdown."""
    lines = ["# Benchmark results", "", *(f"- {line}" for line in verdict(tables)), ""]
    for table in (table for table in tables if table.is_table):
        ranks = table.ranks()
        lines += [f"## {table.experiment.title}", "", table.experiment.description, ""]
        lines.append("| % | " + " | ".join(map(head, table.datasets)) + " | mean rank |")
        lines.append("|---" * (len(table.datasets) + 2) + "|")
        for row in table.rows:
            cells = [_cell(table, row, d) for d in table.datasets]
            mean = f"{ranks.mean[row]:.2f}" if ranks is not None and row in ranks.models else ""
            lines.append(f"| {row_title(row)} | " + " | ".join(cells) + f" | {mean} |")
        lines.append("| runs | " + " | ".join(table.run_counts(d) for d in table.datasets) + " | |")
        lines.append("| splits | " + " | ".join(table.split_codes(d) for d in table.datasets) + " | |")
        lines.append("")
    lines += ["In parentheses: the result in the paper. † Many test nodes have a duplicate in train.", ""]
    return "\n".join(lines)


def _cell(table: ResultTable, row: str, dataset: str) -> str:
    cell, printed = table.cell(row, dataset), table.printed(row, dataset)
    paper = "" if printed is None else f" ({printed[0]:.1f})"
    return NOT_RUN + paper if cell is None else f"{cell}{paper}"


COLUMNS = (
    *("experiment", "model", "dataset", "metric", "leaky", "runs", "mean", "std", "low", "high", "paper_mean"),
    *("paper_std", "difference", "mean_rank", "p_against_gpatcher", "splits", "settings_hash", "trials"),
    *("train_seconds", "extract_seconds", "peak_rss_mb"),
)


def csv_text(tables: Sequence[ResultTable]) -> str:
    """Return one line per cell of every table, in %; the results of a cell that was not run are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for table in (table for table in tables if table.is_table):
        ranks = table.ranks()
        for row in table.rows:
            for dataset in table.datasets:
                writer.writerow(_csv_row(table, row, dataset, ranks))
    return text.getvalue()


def _csv_row(table: ResultTable, row: str, dataset: str, ranks: Ranks | None) -> dict[str, Any]:
    line: dict[str, Any] = {"experiment": table.name, "model": row, "dataset": dataset, "runs": 0}
    line |= {"metric": metric_of(dataset), "leaky": is_leaky(dataset)}
    printed, cell, runs = table.printed(row, dataset), table.cell(row, dataset), table.runs.get((row, dataset))
    if printed is not None:
        line |= {"paper_mean": printed[0], "paper_std": printed[1]}
    if ranks is not None and row in ranks.models:
        line["mean_rank"] = round(ranks.mean[row], 3)
    if cell is None or runs is None:
        return line
    figures = {"mean": cell.mean, "std": cell.std, "low": cell.low, "high": cell.high}
    comparison = compare(table, OURS, row, dataset) if row != OURS else None
    return line | {
        "runs": cell.count,
        **{name: None if value is None else round(100 * value, 3) for name, value in figures.items()},
        "difference": None if printed is None else round(100 * cell.mean - printed[0], 3),
        "p_against_gpatcher": None if comparison is None or comparison[1] is None else f"{comparison[1]:.4g}",
        "splits": runs.splits,
        "settings_hash": runs.records[-1]["settings_hash"],
        "trials": runs.records[-1]["trials"],
        "train_seconds": round(runs.mean("train_seconds"), 3),
        "extract_seconds": round(runs.mean("extract_seconds"), 3),
        "peak_rss_mb": max(r["peak_rss_mb"] for r in runs.records),
    }


def latex(tables: Sequence[ResultTable]) -> str:
    """Return the result tables in LaTeX (booktabs)."""
    blocks = []
    for table in (table for table in tables if table.is_table):
        titles = " & ".join(_escape(head(d)) for d in table.datasets)
        lines = [
            f"% {table.name}: {table.experiment.title}",
            r"\begin{tabular}{l" + "c" * len(table.datasets) + "}",
            r"\toprule",
            f"Model & {titles} \\\\",
            r"\midrule",
        ]
        for row in table.rows:
            cells = []
            for dataset in table.datasets:
                cell, best = table.cell(row, dataset), table.best(dataset)
                if cell is None:
                    cells.append("--")
                    continue
                mean = f"{100 * cell.mean:.1f}"
                shown = rf"\textbf{{{mean}}}" if best is not None and cell.mean >= best - 1e-12 else mean
                cells.append(f"{shown} {cell.spread}".rstrip().replace("±", r"$\pm$"))
            lines.append(f"{_escape(row_title(row))} & " + " & ".join(cells) + r" \\")
        lines += [
            r"\midrule",
            "Runs & " + " & ".join(table.run_counts(d) or "0" for d in table.datasets) + r" \\",
            "Splits & " + " & ".join(rf"\texttt{{{table.split_codes(d)}}}" for d in table.datasets) + r" \\",
            r"\bottomrule",
            r"\end{tabular}",
        ]
        blocks.append("\n".join(lines))
    note = "% Mean and standard deviation in %; $^\\dagger$: many test nodes have a duplicate in train; --: not run.\n"
    return note + "\n\n".join(blocks) + "\n"


def _escape(text: str) -> str:
    for character, escaped in (("&", r"\&"), ("%", r"\%"), ("_", r"\_"), (" †", r"$^\dagger$"), ("φ", r"$\varphi$")):
        text = text.replace(character, escaped)
    return text
