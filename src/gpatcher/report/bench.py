"""The page of `gpatcher report`: result tables beside the paper's, tests, plots and cost, from the records alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.subplots import make_subplots

from gpatcher.bench.leaderboard import NOT_RUN, OURS, ResultTable, compare, head, verdict
from gpatcher.bench.plan import dataset_title, row_title
from gpatcher.bench.statistics import Ranks
from gpatcher.report.page import Figure, Notes, Table, write_page
from gpatcher.trust.palette import GREY, class_colour, model_colour

_NOT_RUN = Markup('<span class="absent">{}</span>').format(NOT_RUN)
_MAX_FAILURES = 30
_LEGEND = [
    "A cell: mean ± standard deviation over the runs, in %; below it the 95 % interval of the mean by Student's t over "
    "the runs, then the result in the paper and the difference to it. Bold: the largest mean of the column.",
    "† Many test nodes have a duplicate in train: the score rewards memorisation.",
    "Runs: every split of the data set, or several seeds if it has one split. The code of the splits is a hash: equal "
    "codes mean equal splits.",
    "Paired tests: corrected resampled t-test over splits (the plain t-test treats overlapping splits as independent). "
    "On a data set with one split the runs differ by seed only, and the test holds for that split only. p-values are "
    "not corrected for the number of comparisons.",
    "Mean rank: 1 is best, over the data sets on which all ranked models were run. Models joined by a bar do not "
    "differ at 5 % (Nemenyi).",
    "Memory: peak resident memory of the process during a run, libraries included.",
]

Parts = list[Figure | Table | Notes]


def write_bench(tables: Sequence[ResultTable], path: str | Path) -> Path:
    """Write the page of a benchmark, see `gpatcher.bench.leaderboard.read_bench`, and return its path."""
    parts: Parts = [Notes("Summary", verdict(tables))]
    if any(table.is_table for table in tables):
        parts.append(Notes("How to read the tables", _LEGEND))
    views = {
        "table": _table_parts,
        "grid": _grid_parts,
        "sweep": _sweep_parts,
        "response": _response_parts,
        "statistics": _statistics_parts,
        "runtime": _runtime_parts,
    }
    for table in tables:
        parts += views[table.experiment.view](table)
    parts += _failures(tables)
    parts.append(_environment(tables))
    records = [record for table in tables for record in table.records]
    hours = sum(r["seconds"] for r in records) / 3600
    subtitle = f"{len(records):,} runs, {hours:.1f} hours of computation; {', '.join(table.name for table in tables)}"
    return write_page(path, "GPatcher benchmark", subtitle, parts)


def _table_parts(table: ResultTable) -> Parts:
    ranks = table.ranks()
    parts: list[Figure | Table | None] = [_result_table(table, ranks)]
    if table.is_comparison:
        parts += [_paired_table(table), _rank_figure(table, ranks), _filter_figure(table)]
        parts.append(_cost_table(table) if table.runs else None)
    return [part for part in parts if part is not None]


def _result_table(table: ResultTable, ranks: Ranks | None) -> Table:
    rows: list[list[str]] = []
    for row in (row for row in table.rows if table.is_run(row) or row in table.paper):
        mean = "" if ranks is None else f"{ranks.mean[row]:.2f}" if row in ranks.models else "-"
        rows.append([_name(row_title(row)), mean, *(_result_cell(table, row, d) for d in table.datasets)])
    rows.append([_small("runs"), "", *(_small(table.run_counts(d)) for d in table.datasets)])
    rows.append([_small("splits"), "", *(_small(table.split_codes(d)) for d in table.datasets)])
    columns = ("", "mean rank", *map(head, table.datasets))
    return Table(table.experiment.title, table.experiment.description, columns, rows)


def _name(text: str) -> Markup:
    return Markup('<b class="name">{}</b>').format(text)


def _small(text: str) -> Markup:
    return Markup('<span class="small">{}</span>').format(text)


def _lines(*lines: str) -> Markup:
    return Markup("<br>").join(lines)


def _result_cell(table: ResultTable, row: str, dataset: str) -> Markup:
    cell, printed, best = table.cell(row, dataset), table.printed(row, dataset), table.best(dataset)
    paper = "" if printed is None else f"paper {printed[0]:.1f}"
    if cell is None:
        return _lines(_NOT_RUN, _small(paper))
    form = "<b>{}</b>" if best is not None and cell.mean >= best - 1e-12 else "{}"
    mean = Markup(form).format(f"{100 * cell.mean:.1f}")
    lines = [Markup('<span class="mean">{} <i>{}</i></span>').format(mean, cell.spread)]
    if cell.low is not None and cell.high is not None:
        lines.append(_small(f"{100 * cell.low:.1f} to {100 * cell.high:.1f}"))
    if printed is not None:
        lines.append(_small(Markup("{} {}").format(paper, _difference(100 * cell.mean - printed[0]))))
    return Markup('<div class="cell">{}</div>').format(_lines(*lines))


def _difference(value: float, significant: bool = True) -> Markup:
    """Return a difference in blue if positive, in orange if negative."""
    sense = "even" if not significant or abs(value) < 0.05 else "better" if value > 0 else "worse"
    return Markup('<span class="difference {}">{:+z.1f}</span>').format(sense, value)


def _paired_table(table: ResultTable) -> Table | None:
    if not any((OURS, d) in table.runs for d in table.datasets):
        return None
    rows = []
    for row in (row for row in table.rows if row != OURS and table.is_run(row)):
        cells: list[str] = []
        for dataset in table.datasets:
            comparison = compare(table, OURS, row, dataset)
            if comparison is None:
                cells.append(_NOT_RUN)
                continue
            gap, p, _ = comparison
            text = "too few runs" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
            cells.append(_lines(_difference(100 * gap, p is not None and p < 0.05), _small(text)))
        rows.append([_name(row_title(row)), *cells])
    caption = "Mean difference in points over the runs that both models have; coloured if p < 0.05."
    return Table(f"GPatcher minus each model ({table.name})", caption, ("", *map(head, table.datasets)), rows)


def _cost_table(table: ResultTable) -> Table:
    rows = []
    for row in filter(table.is_run, table.rows):
        cells: list[str] = []
        peak = 0.0
        for dataset in table.datasets:
            runs = table.runs.get((row, dataset))
            if runs is None:
                cells.append(_NOT_RUN)
                continue
            memory = max(r["peak_rss_mb"] for r in runs.records)
            peak = max(peak, memory)
            extraction = runs.mean("extract_seconds")
            lines = [_seconds(runs.mean("train_seconds")), _small(f"{memory:,.0f} MB")]
            cells.append(_lines(*lines, *([_small(f"patches {_seconds(extraction)}")] if extraction else [])))
        rows.append([_name(row_title(row)), *cells, f"{peak:,.0f} MB" if peak else ""])
    caption = "Mean training time per run and peak memory; the time to extract the patches is shared by the runs."
    return Table(f"Cost ({table.name})", caption, ("", *map(dataset_title, table.datasets), "peak memory"), rows)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def _statistics_parts(table: ResultTable) -> Parts:
    plain = ("nodes", "edges", "classes", "features", "node_heterophily", "adjusted_homophily", "label_informativeness")
    names = {name: name.replace("_", " ") for name in plain} | {"train_duplicates": "test nodes duplicated in train"}
    rows = []
    for dataset in table.datasets:
        runs = table.runs.get(("measures", dataset))
        measured = {} if runs is None else runs.records[-1]["measures"]
        cells: list[str] = []
        for name in names:
            printed = table.paper.get(dataset, {}).get(name)
            lines = [_number(measured[name], percent=name == "train_duplicates") if measured else _NOT_RUN]
            if printed is not None:
                differs = measured and abs(measured[name] - printed) > 0.0051
                note = _small(f"paper {printed:,}")
                lines.append(Markup('<span class="differs">{}</span>').format(note) if differs else note)
            cells.append(_lines(*lines))
        rows.append([_name(head(dataset)), *cells])
    caption = f"{table.experiment.description} Orange: the paper has another value."
    return [Table(table.experiment.title, caption, ("", *names.values()), rows)]


def _number(value: float | None, percent: bool = False) -> str:
    if value is None:
        return "not defined"
    if percent:
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _failures(tables: Sequence[ResultTable]) -> Parts:
    failed = [r for table in tables for r in table.failures]
    if not failed:
        return []
    rows = [
        (r["experiment"], dataset_title(r["dataset"]), row_title(r["row"]), str(r["split"]), r["error"])
        for r in failed[:_MAX_FAILURES]
    ]
    hidden = len(failed) - len(rows)
    caption = f"'gpatcher bench {failed[0]['experiment']} --retry' runs them again."
    caption += f" {hidden} more are not shown." if hidden else ""
    return [Table("Failed jobs", caption, ("experiment", "data set", "model", "split", "error"), rows)]


def _environment(tables: Sequence[ResultTable]) -> Table:
    versions: dict[str, Counter[str]] = defaultdict(Counter)
    for record in (record for table in tables for record in table.records):
        for name, version in record["versions"].items():
            versions[name][version] += 1
    rows = [(name, "; ".join(f"{v} ({c:,} runs)" for v, c in count.most_common())) for name, count in versions.items()]
    return Table(
        "Environment", "Versions of the packages used by the runs, and threads of torch.", ("package", "version"), rows
    )


def _rank_figure(table: ResultTable, ranks: Ranks | None) -> Figure | None:
    if ranks is None or ranks.distance is None:
        return None
    names, values = list(ranks.mean), list(ranks.mean.values())
    groups = ranks.groups()
    plot = go.Figure()
    plot.add_scatter(
        x=values,
        y=[row_title(name) for name in names],
        mode="markers+text",
        text=[f"{v:.2f}" for v in values],
        textposition="middle right",
        marker={"size": 11, "color": [model_colour(row_title(n)) for n in names]},
        showlegend=False,
    )
    for i, group in enumerate(groups):
        x = max(values) + 1.9 + 0.35 * i
        plot.add_scatter(
            x=[x, x],
            y=[row_title(group[0]), row_title(group[-1])],
            mode="lines",
            line={"width": 5, "color": GREY},
            hoverinfo="skip",
            showlegend=False,
        )
    plot.update_layout(height=480)
    plot.update_xaxes(title="mean rank (1 is best)", range=[0.5, max(values) + 2.2 + 0.35 * len(groups)])
    plot.update_yaxes(autorange="reversed", type="category")
    p = "" if ranks.friedman_p is None else f" Friedman test that all models are equal: p = {ranks.friedman_p:.2g}."
    caption = (
        f"Over {len(ranks.datasets)} data sets. Models joined by a bar differ by less than the critical difference "
        f"at 5 %, {ranks.distance:.2f}.{p}"
    )
    return Figure(f"Mean ranks ({table.name})", caption, plot)


def _filter_figure(table: ResultTable) -> Figure | None:
    plot = go.Figure()
    for row in table.rows:
        for dataset in table.datasets:
            runs = table.runs.get((row, dataset))
            curves = [r["response"] for r in runs.records if r.get("response")] if runs is not None else []
            if not curves:
                continue
            mean = np.mean([np.array(c) / max(np.abs(c).max(), 1e-12) for c in curves], axis=0)
            plot.add_scatter(
                x=np.linspace(-1, 1, len(mean)),
                y=np.round(mean, 4),
                name=dataset_title(dataset) + ("" if row == OURS else f", {row_title(row)}"),
                mode="lines",
                line_color=class_colour(len(plot.data)),
            )
    if not plot.data:
        return None
    plot.update_xaxes(title="eigenvalue λ (low frequency on the left)", range=[1.02, -1.02])
    plot.update_yaxes(title="response g(λ), scaled")
    plot.update_layout(height=480 if table.is_comparison else 420)  # the height of the figure beside it
    caption = "Frequency response, mean over the runs; each run is scaled to a maximum of |g| of 1."
    return Figure(f"Learned filters ({table.name})", caption, plot)


def _grid_parts(table: ResultTable) -> Parts:
    pairs = [tuple(int(part.split("=")[1]) for part in row.split()) for row in table.rows]
    sizes, filters = sorted({p for p, _ in pairs}), sorted({k for _, k in pairs})
    run = [d for d in table.datasets if any((row, d) in table.runs for row in table.rows)]
    plot = make_subplots(1, max(1, len(run)), subplot_titles=[head(d) for d in run])
    for i, dataset in enumerate(run):
        cells = [[table.cell(f"p={p} k={k}", dataset) for p in sizes] for k in filters]
        heatmap = go.Heatmap(
            z=[[None if c is None else round(100 * c.mean, 2) for c in line] for line in cells],
            x=[f"p = {p}" for p in sizes],
            y=[f"K = {k}" for k in filters],
            text=[[NOT_RUN if c is None else f"{100 * c.mean:.1f}<br>{c.spread}" for c in line] for line in cells],
            texttemplate="%{text}",
            showscale=False,
            hoverongaps=False,
        )
        plot.add_trace(heatmap, 1, i + 1)
    plot.update_layout(height=380)
    counts = "; ".join(
        f"{dataset_title(d)} " + (f"{table.run_counts(d)}, splits {table.split_codes(d)}" if d in run else NOT_RUN)
        for d in table.datasets
    )
    caption = f"{table.experiment.description} Test results in %. Runs: {counts}."
    return [Figure(table.experiment.title, caption, plot, wide=True)]


def _sweep_parts(table: ResultTable) -> Parts:
    plot = go.Figure()
    phi = {d: float(d.partition("phi=")[2].partition(",")[0]) for d in table.datasets}
    for row in table.rows:
        cells = [(d, c) for d in table.datasets if (c := table.cell(row, d)) is not None]
        if not cells:
            continue
        own = row in (OURS, "fast")
        plot.add_scatter(
            x=[phi[d] for d, _ in cells],
            y=[round(100 * c.mean, 2) for _, c in cells],
            error_y={"type": "data", "array": [round(100 * (c.std or 0), 2) for _, c in cells], "visible": own},
            name=row_title(row),
            mode="lines+markers",
            line={"width": 3.5 if own else 1.5, "color": model_colour(row_title(row))},
        )
    plot.update_layout(height=480)
    plot.update_xaxes(title="φ (-1: neighbours disagree, 1: neighbours agree)")
    plot.update_yaxes(title="test accuracy, %")
    caption = f"{table.experiment.description} Error bars: standard deviation, for GPatcher and Fast-GPatcher only."
    ranks = table.ranks()
    figure = _rank_figure(table, ranks)
    results = replace(_result_table(table, ranks), title=f"Results ({table.name})", caption="Test accuracy in %.")
    parts: Parts = [Figure(table.experiment.title, caption, plot, wide=True), results]
    return parts if figure is None else [*parts, figure]


def _response_parts(table: ResultTable) -> Parts:
    plot = go.Figure()
    for (_, dataset), runs in table.runs.items():
        name = dataset_title(dataset)
        plot.add_scatter(
            x=[r["node_heterophily"] for r in runs.records],
            y=[round(r["mean_response"], 4) for r in runs.records],
            name=name,
            mode="markers+text",
            text=[name] + [""] * (len(runs.records) - 1),
            textposition="top center",
            marker={"size": 9, "opacity": 0.75},
        )
    plot.update_layout(height=420, showlegend=False)
    plot.update_xaxes(title="node heterophily of the graph", range=[0, 1])
    plot.update_yaxes(title="mean response")
    missing = ", ".join(dataset_title(d) for d in table.datasets if (OURS, d) not in table.runs)
    caption = f"{table.experiment.description} One point per run." + (f" Not run: {missing}." if missing else "")
    filters = _filter_figure(table)
    parts: Parts = [Figure(table.experiment.title, caption, plot)]
    return parts if filters is None else [*parts, filters]


def _runtime_parts(table: ResultTable) -> Parts:
    plot = go.Figure()
    for position, row in enumerate(table.rows):
        points = sorted(
            (runs.records[-1]["nodes"], runs.records[-1]["mixer_seconds"])
            for (name, _), runs in table.runs.items()
            if name == row
        )
        plot.add_scatter(
            x=[nodes for nodes, _ in points],
            y=[seconds for _, seconds in points],
            name=row_title(row),
            mode="lines+markers",
            line_color=class_colour(position),
        )
    plot.update_xaxes(type="log", title="nodes", dtick=1)
    plot.update_yaxes(type="log", title="seconds", dtick=1, exponentformat="power")
    return [Figure(table.experiment.title, f"{table.experiment.description} Both axes are logarithmic.", plot)]
