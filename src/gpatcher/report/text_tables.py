"""The tables of a bench in Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gpatcher.bench.leaderboard import NOT_RUN, OURS, Board, compare, head, is_leaky, metric_of, verdict
from gpatcher.bench.plan import row_title
from gpatcher.bench.statistics import Ranks


def markdown(boards: Sequence[Board]) -> str:
    """Return the verdict and the tables of results in Markdown."""
    lines = ["# GPatcher, measured", "", *(f"- {line}" for line in verdict(boards)), ""]
    for board in (board for board in boards if board.is_table):
        found = board.ranks()
        lines += [f"## {board.preset.title}", "", board.preset.about, ""]
        lines.append("| % | " + " | ".join(map(head, board.datasets)) + " | mean rank |")
        lines.append("|---" * (len(board.datasets) + 2) + "|")
        for row in board.rows:
            cells = [_plain(board, row, d) for d in board.datasets]
            place = f"{found.mean[row]:.2f}" if found is not None and row in found.models else ""
            lines.append(f"| {row_title(row)} | " + " | ".join(cells) + f" | {place} |")
        lines.append("| runs | " + " | ".join(board.run_counts(d) for d in board.datasets) + " | |")
        lines.append("| splits | " + " | ".join(board.split_codes(d) for d in board.datasets) + " | |")
        lines.append("")
    lines += ["In brackets: the paper's figure. † Copies of many test nodes are in train.", ""]
    return "\n".join(lines)


def _plain(board: Board, row: str, dataset: str) -> str:
    cell, printed = board.cell(row, dataset), board.printed(row, dataset)
    paper = "" if printed is None else f" ({printed[0]:.1f})"
    return NOT_RUN + paper if cell is None else f"{cell}{paper}"


COLUMNS = (
    *("preset", "model", "dataset", "metric", "leaky", "runs", "mean", "std", "low", "high", "paper_mean", "paper_std"),
    *("difference", "mean_rank", "p_against_gpatcher", "splits", "config_hash", "tuned_trials", "train_seconds"),
    *("extract_seconds", "peak_rss_mb"),
)


def csv_text(boards: Sequence[Board]) -> str:
    """Return one line per cell of every table, in %; empty where a cell was not run."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for board in (board for board in boards if board.is_table):
        found = board.ranks()
        for row in board.rows:
            for dataset in board.datasets:
                writer.writerow(_csv_row(board, row, dataset, found))
    return text.getvalue()


def _csv_row(board: Board, row: str, dataset: str, found: Ranks | None) -> dict[str, Any]:
    line: dict[str, Any] = {
        "preset": board.name,
        "model": row,
        "dataset": dataset,
        "metric": metric_of(dataset),
        "leaky": is_leaky(dataset),
        "runs": 0,
    }
    printed, cell, runs = board.printed(row, dataset), board.cell(row, dataset), board.runs.get((row, dataset))
    if printed is not None:
        line |= {"paper_mean": printed[0], "paper_std": printed[1]}
    if found is not None and row in found.models:
        line["mean_rank"] = round(found.mean[row], 3)
    if cell is None or runs is None:
        return line
    tested = compare(board, OURS, row, dataset) if row != OURS else None
    return line | {
        "runs": cell.count,
        "mean": round(100 * cell.mean, 3),
        "std": None if cell.std is None else round(100 * cell.std, 3),
        "low": None if cell.low is None else round(100 * cell.low, 3),
        "high": None if cell.high is None else round(100 * cell.high, 3),
        "difference": None if printed is None else round(100 * cell.mean - printed[0], 3),
        "p_against_gpatcher": None if tested is None or tested[1] is None else f"{tested[1]:.4g}",
        "splits": runs.splits,
        "config_hash": runs.records[-1]["config_hash"],
        "tuned_trials": runs.records[-1]["tuned"],
        "train_seconds": round(runs.mean("train_seconds"), 3),
        "extract_seconds": round(runs.mean("extract_seconds"), 3),
        "peak_rss_mb": max(r["peak_rss_mb"] for r in runs.records),
    }


def latex(boards: Sequence[Board]) -> str:
    """Return the tables of results in LaTeX (booktabs)."""
    blocks = []
    for board in (board for board in boards if board.is_table):
        heads = " & ".join(_escape(head(d)) for d in board.datasets)
        lines = [
            f"% {board.name}: {board.preset.title}",
            r"\begin{tabular}{l" + "c" * len(board.datasets) + "}",
            r"\toprule",
            f"Model & {heads} \\\\",
            r"\midrule",
        ]
        for row in board.rows:
            cells = []
            for dataset in board.datasets:
                cell = board.cell(row, dataset)
                means = [c.mean for r in board.rows if (c := board.cell(r, dataset)) is not None]
                if cell is None:
                    cells.append("--")
                    continue
                mean = f"{100 * cell.mean:.1f}"
                shown = rf"\textbf{{{mean}}}" if len(means) > 1 and cell.mean >= max(means) - 1e-12 else mean
                cells.append(f"{shown} {cell.spread}".rstrip().replace("±", r"$\pm$"))
            lines.append(f"{_escape(row_title(row))} & " + " & ".join(cells) + r" \\")
        lines += [
            r"\midrule",
            "Runs & " + " & ".join(board.run_counts(d) or "0" for d in board.datasets) + r" \\",
            "Splits & " + " & ".join(rf"\texttt{{{board.split_codes(d)}}}" for d in board.datasets) + r" \\",
            r"\bottomrule",
            r"\end{tabular}",
        ]
        blocks.append("\n".join(lines))
    note = "% Mean and standard deviation in %; $^\\dagger$: copies of many test nodes are in train; --: not run.\n"
    return note + "\n\n".join(blocks) + "\n"


def _escape(text: str) -> str:
    for plain, escaped in (("&", r"\&"), ("%", r"\%"), ("_", r"\_"), (" †", r"$^\dagger$"), ("φ", r"$\varphi$")):
        text = text.replace(plain, escaped)
    return text
