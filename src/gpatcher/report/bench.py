"""The page of a bench: tables beside the paper's figures, tests, plots, cost; made from records alone, never trains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.subplots import make_subplots

from gpatcher.bench.leaderboard import NOT_RUN, OURS, Board, compare, head, verdict
from gpatcher.bench.plan import dataset_title, row_title
from gpatcher.bench.statistics import Ranks
from gpatcher.report.page import BLUE, GREEN, GREY, ORANGE, PURPLE, Figure, Notes, Table, write_page

_PALETTE = (
    *("#2f6fb0", "#e07b39", "#3c9d6b", "#8b6bb1", "#1d2733", "#c44e6b", "#7fb3d9", "#b59a1f", "#5bb8b0"),
    *("#9c6b4a", "#8a94a0", "#d68fc0", "#6b8e23"),
)
_COLOURS = {"gpatcher": ORANGE, "fast": BLUE}
_MOST_FAILURES = 30

Parts = list[Figure | Table | Notes]


# ------------------------------------------------------------------------------------------------- the page


def write_bench(boards: Sequence[Board], path: str | Path) -> Path:
    """Write the page."""
    parts: Parts = [Notes("What the records say", verdict(boards))]
    if any(board.is_table for board in boards):
        parts.append(Notes("How to read this", _legend()))
    views = {
        "table": _table_parts,
        "grid": _grid_parts,
        "dial": _dial_parts,
        "response": _response_parts,
        "statistics": _statistics_parts,
        "runtime": _runtime_parts,
    }
    for board in boards:
        parts += views[board.preset.view](board)
    parts += _failures(boards)
    parts.append(_environment(boards))
    records = [r for board in boards for runs in board.runs.values() for r in runs.records]
    hours = sum(r["seconds"] for r in records) / 3600
    subtitle = f"{len(records):,} runs, {hours:.1f} hours of computing, {', '.join(b.name for b in boards)}"
    return write_page(path, "GPatcher, measured", subtitle, _filled(parts))


def _filled(parts: Parts) -> Parts:
    """Let a figure that would stand alone in its line take the whole of it."""
    out: Parts = []
    half = 0
    for number, part in enumerate(parts):
        wide = isinstance(part, Table) or (isinstance(part, Figure) and part.wide)
        half = 0 if wide else half + 1
        following = parts[number + 1] if number + 1 < len(parts) else None
        alone = following is None or isinstance(following, Table) or (isinstance(following, Figure) and following.wide)
        if isinstance(part, Figure) and not wide and half % 2 and alone:
            part = replace(part, wide=True)
        out.append(part)
    return out


def _legend() -> list[str]:
    return [
        "A cell: mean ± standard deviation over the runs, in %; below it the 95 % interval of the mean by bootstrap "
        "over the runs, and the paper's figure with the difference to it. Bold: the largest mean of the column.",
        "† Copies of many test nodes are in train: the score rewards memory.",
        "Runs: every split of the data set, or several seeds on the one it has. The code of the splits is a hash: "
        "equal codes, equal splits.",
        "Paired tests: corrected resampled t-test over splits (the plain one takes overlapping splits for "
        "independent); on a data set with one split the runs differ by seed alone, and the test speaks of that split "
        "only. p-values are not corrected for the number of comparisons.",
        "Mean rank: 1 is best, over the data sets that all ranked models were run on; models joined by a bar do not "
        "differ at 5 % (Nemenyi).",
        "Memory: the largest resident memory of the process during a run, libraries included.",
    ]


# ---------------------------------------------------------------------------------------------------- tables


def _table_parts(board: Board) -> Parts:
    found = board.ranks()
    parts: Parts = [_result_table(board, found)]
    if not board.is_comparison:
        return parts
    if found is not None and found.distance is not None:
        parts.append(_rank_figure(board, found))
    paired = _paired_table(board)
    if paired is not None:
        parts.insert(1, paired)
    filters = _filter_figure(board)
    if filters is not None:
        parts.append(filters)
    if board.runs:
        parts.append(_cost_table(board))
    return parts


def _result_table(board: Board, found: Ranks | None) -> Table:
    best = {}
    for dataset in board.datasets:
        means = [c.mean for row in board.rows if (c := board.cell(row, dataset)) is not None]
        best[dataset] = max(means) if len(means) > 1 else None
    rows: list[list[str]] = []
    for row in board.rows:
        cells = [_cell_html(board, row, dataset, best[dataset]) for dataset in board.datasets]
        place = "" if found is None else f"{found.mean[row]:.2f}" if row in found.models else "-"
        rows.append([_name(row_title(row)), place, *cells])
    rows.append([_soft("runs"), "", *(_soft(board.run_counts(d)) for d in board.datasets)])
    rows.append([_soft("splits"), "", *(_soft(board.split_codes(d)) for d in board.datasets)])
    return Table(board.preset.title, board.preset.about, ("", "rank", *map(head, board.datasets)), rows)


def _name(text: str) -> Markup:
    return Markup('<b style="white-space:nowrap;font-size:14px">{}</b>').format(text)


def _soft(text: str) -> Markup:
    return Markup('<span style="color:#5b6875;font-size:11px;white-space:nowrap">{}</span>').format(text)


def _cell_html(board: Board, row: str, dataset: str, best: float | None) -> Markup:
    cell, printed = board.cell(row, dataset), board.printed(row, dataset)
    paper = "" if printed is None else f"paper {printed[0]:.1f}"
    if cell is None:
        return Markup('<span style="color:#8a94a0">{}</span><br>{}').format(NOT_RUN, _soft(paper))
    mean = f"{100 * cell.mean:.1f}"
    shown = Markup("<b>{}</b>").format(mean) if best is not None and cell.mean >= best - 1e-12 else Markup(mean)
    spread = Markup('<span style="color:#5b6875">{}</span>').format(cell.spread)
    text = Markup('<span style="white-space:nowrap;font-size:14px">{} {}</span>').format(shown, spread)
    if cell.low is not None and cell.high is not None:
        text += Markup("<br>") + _soft(f"{100 * cell.low:.1f} to {100 * cell.high:.1f}")
    if printed is not None:
        text += Markup("<br>") + _soft(paper) + Markup("&nbsp;") + _difference(100 * cell.mean - printed[0])
    return Markup('<div style="line-height:1.3">{}</div>').format(text)


def _difference(value: float, strong: bool = True, size: int = 11) -> Markup:
    """Return a difference, blue where it is above 0 and orange where it is below."""
    colour = GREY if not strong or abs(value) < 0.05 else BLUE if value > 0 else "#c05a17"
    return Markup('<span style="color:{};font-size:{}px;font-weight:600;white-space:nowrap">{}</span>').format(
        colour, size, f"{value:+.1f}"
    )


def _paired_table(board: Board) -> Table | None:
    rows = []
    for row in board.rows:
        if row == OURS:
            continue
        cells: list[str] = []
        for dataset in board.datasets:
            found = compare(board, OURS, row, dataset)
            if found is None:
                cells.append(Markup('<span style="color:#8a94a0">{}</span>').format(NOT_RUN))
                continue
            gap, p, _ = found
            tested = "too few runs" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
            cells.append(_difference(100 * gap, p is not None and p < 0.05, 14) + Markup("<br>") + _soft(tested))
        rows.append([_name(row_title(row)), *cells])
    if not any((OURS, d) in board.runs for d in board.datasets):
        return None
    caption = "Mean difference to each model over the splits that both have; coloured where p < 0.05."
    return Table(f"GPatcher less each model ({board.name})", caption, ("", *map(head, board.datasets)), rows)


def _cost_table(board: Board) -> Table:
    rows = []
    for row in board.rows:
        cells: list[str] = []
        peak = 0.0
        for dataset in board.datasets:
            runs = board.runs.get((row, dataset))
            if runs is None:
                cells.append(Markup('<span style="color:#8a94a0">{}</span>').format(NOT_RUN))
                continue
            memory = max(r["peak_rss_mb"] for r in runs.records)
            peak = max(peak, memory)
            extraction = runs.mean("extract_seconds")
            shown = Markup("{}<br>{}").format(_seconds(runs.mean("train_seconds")), _soft(f"{memory:,.0f} MB"))
            if extraction:
                shown += Markup("<br>") + _soft(f"patches {_seconds(extraction)}")
            cells.append(shown)
        rows.append([_name(row_title(row)), *cells, f"{peak:,.0f} MB" if peak else ""])
    caption = "Mean seconds of training per run and the largest memory; the making of patches is shared by the runs."
    return Table(f"Cost ({board.name})", caption, ("", *map(dataset_title, board.datasets), "peak"), rows)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def _statistics_parts(board: Board) -> Parts:
    names = {
        "nodes": "nodes",
        "edges": "edges",
        "classes": "classes",
        "features": "features",
        "node_heterophily": "node heterophily",
        "adjusted_homophily": "adjusted homophily",
        "label_informativeness": "label informativeness",
        "train_duplicates": "test nodes with a twin in train",
    }
    rows = []
    for dataset in board.datasets:
        runs = board.runs.get(("measures", dataset))
        measured = {} if runs is None else runs.records[-1]["measures"]
        cells: list[str] = []
        for name in names:
            printed = board.paper.get(dataset, {}).get(name)
            paper = "" if printed is None else f"paper {_number(printed)}"
            ours = NOT_RUN if not measured else _number(measured[name], share=name == "train_duplicates")
            text = Markup("{}").format(ours)
            if paper:
                differs = measured and abs(measured[name] - printed) > 0.0051
                colour = "#c05a17" if differs else "#5b6875"
                text += Markup('<br><span style="color:{};font-size:11.5px;white-space:nowrap">{}</span>').format(
                    colour, paper
                )
            cells.append(text)
        rows.append([_name(head(dataset)), *cells])
    caption = f"{board.preset.about} Orange: the paper's figure differs."
    return [Table(board.preset.title, caption, ("", *names.values()), rows)]


def _number(value: float | None, share: bool = False) -> str:
    if value is None:
        return "not defined"
    return (
        f"{value:.1%}" if share else f"{value:,}" if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")
    )


def _failures(boards: Sequence[Board]) -> Parts:
    failed = [r for board in boards for r in board.failures]
    if not failed:
        return []
    rest = f" {len(failed) - _MOST_FAILURES} more are not shown." if len(failed) > _MOST_FAILURES else ""
    rows = [
        (r["preset"], dataset_title(r["dataset"]), row_title(r["row"]), str(r["split"]), r["error"])
        for r in failed[:_MOST_FAILURES]
    ]
    caption = "'gpatcher bench PRESET --retry' runs them again." + rest
    return [Table("Jobs that failed", caption, ("preset", "data set", "model", "split", "error"), rows)]


def _environment(boards: Sequence[Board]) -> Table:
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for board in boards:
        for runs in board.runs.values():
            for record in runs.records:
                for name, version in record["versions"].items():
                    seen[name][version] += 1
    rows = [(name, "; ".join(f"{v} ({c:,} runs)" for v, c in found.most_common())) for name, found in seen.items()]
    return Table("Environment", "What the runs were made with.", ("package", "version"), rows)


# ----------------------------------------------------------------------------------------------------- plots


def _rank_figure(board: Board, found: Ranks) -> Figure:
    names, values = list(found.mean), list(found.mean.values())
    titles = [row_title(name) for name in names]
    plot = go.Figure()
    plot.add_scatter(
        x=values,
        y=titles,
        mode="markers+text",
        text=[f"{v:.2f}" for v in values],
        textposition="middle right",
        marker={"size": 11, "color": [_COLOURS.get(n, GREY) for n in names]},
        showlegend=False,
    )
    for number, group in enumerate(found.groups()):
        at = max(values) + 1.4 + 0.35 * number
        plot.add_scatter(
            x=[at, at],
            y=[row_title(group[0]), row_title(group[-1])],
            mode="lines",
            line={"width": 5, "color": "#c3ccd5"},
            hoverinfo="skip",
            showlegend=False,
        )
    plot.update_layout(height=480)
    plot.update_xaxes(title="mean rank (1 is best)", range=[0.5, max(values) + 1.7 + 0.35 * len(found.groups())])
    plot.update_yaxes(autorange="reversed", automargin=True, type="category")
    p = "" if found.friedman_p is None else f" Friedman's test that all are alike: p = {found.friedman_p:.2g}."
    caption = (
        f"Over {len(found.datasets)} data sets. Models joined by a bar differ by less than {found.distance:.2f}, the "
        f"critical difference at 5 %.{p}"
    )
    return Figure(f"Mean ranks ({board.name})", caption, plot)


def _filter_figure(board: Board) -> Figure | None:
    plot = go.Figure()
    for row in board.rows:
        for dataset in board.datasets:
            runs = board.runs.get((row, dataset))
            curves = [r["response"] for r in runs.records if r.get("response")] if runs is not None else []
            if not curves:
                continue
            mean = np.mean([np.array(c) / max(np.abs(c).max(), 1e-12) for c in curves], axis=0)
            name = dataset_title(dataset) + ("" if row == OURS else f", {row_title(row)}")
            colour = _PALETTE[len(plot.data) % len(_PALETTE)]
            plot.add_scatter(
                x=np.linspace(-1, 1, len(mean)), y=np.round(mean, 4), name=name, mode="lines", line_color=colour
            )
    if not plot.data:
        return None
    plot.update_xaxes(title="eigenvalue λ (low frequency on the left)", range=[1.02, -1.02])
    plot.update_yaxes(title="response g(λ), largest size 1")
    plot.update_layout(height=480 if board.is_comparison else 420)  # as the figure beside it
    return Figure(
        f"The learned filters ({board.name})", "Mean over the runs, each scaled to a largest size of 1.", plot
    )


def _grid_parts(board: Board) -> Parts:
    pairs = [tuple(int(part.split("=")[1]) for part in row.split()) for row in board.rows]
    sizes, filters = sorted({p for p, _ in pairs}), sorted({k for _, k in pairs})
    there = [d for d in board.datasets if any((row, d) in board.runs for row in board.rows)]
    plot = make_subplots(1, max(1, len(there)), subplot_titles=[head(d) for d in there])
    for number, dataset in enumerate(there):
        cells = [[board.cell(f"p={p} k={k}", dataset) for p in sizes] for k in filters]
        values = [[None if c is None else round(100 * c.mean, 2) for c in line] for line in cells]
        text = [[NOT_RUN if c is None else f"{100 * c.mean:.1f}<br>{c.spread}" for c in line] for line in cells]
        x, y = [f"p = {p}" for p in sizes], [f"K = {k}" for k in filters]
        heat = go.Heatmap(
            z=values,
            x=x,
            y=y,
            text=text,
            texttemplate="%{text}",
            colorscale="Blues",
            showscale=False,
            hoverongaps=False,
        )
        plot.add_trace(heat, 1, number + 1)
    plot.update_layout(height=380)
    counts = "; ".join(
        f"{dataset_title(d)}: "
        + (f"{board.run_counts(d)} runs, splits {board.split_codes(d)}" if d in there else NOT_RUN)
        for d in board.datasets
    )
    return [Figure(board.preset.title, f"{board.preset.about} Test results in %. {counts}.", plot, wide=True)]


def _dial_parts(board: Board) -> Parts:
    plot = go.Figure()
    phi = {d: float(d.partition("phi=")[2].partition(",")[0]) for d in board.datasets}
    others = iter(_PALETTE[2:])
    for row in board.rows:
        cells = [(d, c) for d in board.datasets if (c := board.cell(row, d)) is not None]
        if not cells:
            continue
        ours = row in _COLOURS
        plot.add_scatter(
            x=[phi[d] for d, _ in cells],
            y=[round(100 * c.mean, 2) for _, c in cells],
            error_y={"type": "data", "array": [round(100 * (c.std or 0), 2) for _, c in cells], "visible": ours},
            name=row_title(row),
            mode="lines+markers",
            line={"width": 3.5 if ours else 1.5, "color": _COLOURS.get(row) or next(others, GREY)},
        )
    plot.update_layout(height=480)
    plot.update_xaxes(title="φ (-1: neighbours disagree, 1: they agree)")
    plot.update_yaxes(title="test accuracy, %")
    about = f"{board.preset.about} Bars: standard deviation, for GPatcher and Fast-GPatcher alone."
    parts: Parts = [Figure(board.preset.title, about, plot, wide=True), _result_table(board, board.ranks())]
    found = board.ranks()
    if found is not None and found.distance is not None:
        parts.append(_rank_figure(board, found))
    return parts


def _response_parts(board: Board) -> Parts:
    points = [
        (dataset_title(d), r["node_heterophily"], r["mean_response"], r["split"])
        for (_, d), runs in board.runs.items()
        for r in runs.records
    ]
    plot = go.Figure()
    for name in dict.fromkeys(point[0] for point in points):
        own = [point for point in points if point[0] == name]
        plot.add_scatter(
            x=[p[1] for p in own],
            y=[round(p[2], 4) for p in own],
            name=name,
            mode="markers+text",
            text=[name] + [""] * (len(own) - 1),
            textposition="top center",
            marker={"size": 9, "opacity": 0.75},
        )
    plot.update_layout(height=420, showlegend=False)
    plot.update_xaxes(title="node heterophily of the graph", range=[0, 1])
    plot.update_yaxes(title="mean response", automargin=True)
    missing = [dataset_title(d) for d in board.datasets if ("gpatcher", d) not in board.runs]
    lacking = f" Not run: {', '.join(missing)}." if missing else ""
    parts: Parts = [Figure(board.preset.title, f"{board.preset.about} One point per run.{lacking}", plot)]
    filters = _filter_figure(board)
    return parts if filters is None else [*parts, filters]


def _runtime_parts(board: Board) -> Parts:
    plot = go.Figure()
    for row, colour in zip(board.rows, (GREEN, BLUE, PURPLE, ORANGE), strict=False):
        found = [
            (r["nodes"], r["mixer_seconds"])
            for (name, _), runs in board.runs.items()
            for r in runs.records[-1:]
            if name == row
        ]
        found.sort()
        plot.add_scatter(
            x=[n for n, _ in found],
            y=[s for _, s in found],
            name=row_title(row),
            mode="lines+markers",
            line_color=colour,
        )
    plot.update_xaxes(type="log", title="nodes", dtick=1)
    plot.update_yaxes(type="log", title="seconds", dtick=1, exponentformat="power")
    return [Figure(board.preset.title, f"{board.preset.about} Both axes logarithmic.", plot)]
