"""Commands that show data and settings: `datasets`, `diagnose` and `settings`."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from gpatcher.cli.console import check_out, console, option, step, table
from gpatcher.cli.sources import AsJson, Root, load_source, load_source_tables, takes_graph


def datasets(root: Root = None, as_json: AsJson = False) -> None:
    """List the named data sets with their sizes, and whether their files are on this machine."""
    from gpatcher.datasets.registry import NAMED, dataset_root, is_present

    # measured once by tools/datasets.py: to load them all takes half a minute
    measured = json.loads(resources.files("gpatcher.cli").joinpath("datasets.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = [
        {"name": dataset.name, "splits": dataset.protocol, "present": is_present(key, root), **measured.get(key, {})}
        for key, dataset in NAMED.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows))
        return

    heads = {"nodes": "nodes", "edges": "edges", "classes": "classes", "features": "features", "heterophily": "hetero."}
    width = max(len(row["name"]) for row in rows)
    typer.echo("data set".ljust(width) + "".join(f"{head:>9}" for head in heads.values()) + "  here")
    for row in rows:
        cells = [f"{row[name]:.3g}" if name == "heterophily" else f"{row[name]:,}" for name in heads if name in row]
        cells = [f"{cell:>9}" for cell in cells or [""] * len(heads)]
        typer.echo("".join([row["name"].ljust(width), *cells, "  yes" if row["present"] else ""]).rstrip())
    typer.echo("\nhetero.: mean fraction of a node's neighbours with another label; --json also has the splits.")
    typer.echo(f"Files that are not here are downloaded on first use, to {dataset_root(root)}.")


@takes_graph
def diagnose(
    source: dict[str, Any],
    out: Annotated[Path | None, option("FILE", "Also write a page with the plots, e.g. report.html.")] = None,
    as_json: AsJson = False,
    spectral: Annotated[
        bool, typer.Option(help="Measure the frequencies too; without them the cost is O(n + m).")
    ] = True,
    root: Root = None,
) -> None:
    """Measure the heterophily of a graph and the frequencies of its labels; list problems and what to try."""
    check_out(out)
    with step("reading the graph"):
        tables = load_source_tables(source) if "edges" in source else None
        graph = load_source(source, root) if tables is None else tables.graph
    with step("measuring"):
        from gpatcher.spectral.diagnosis import diagnose as measure

        result = measure(graph, spectral=spectral)
    if out is not None:
        with step("writing the page"):
            from gpatcher.report.diagnosis import write_diagnosis

            write_diagnosis(result, out)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
        return

    from gpatcher.report.diagnosis import measure_rows

    screen = console()
    if tables is not None and tables.columns:
        screen.print(table(("column", "kind", "features", "missing", "note"), tables.describe_columns(), "Columns"))
    screen.print(table(("measure", "value", "meaning"), measure_rows(result), result.name))
    for title, lines in (("About the data", result.problems), ("Try", result.advice)):
        if lines:
            screen.print(f"\n{title}", style="bold")
            for line in lines:
                screen.print(f"  - {line}", soft_wrap=True)
    if out is not None:
        screen.print(f"\nThe page is in {out}", soft_wrap=True)


def settings(
    dataset: Annotated[
        str | None, typer.Argument(metavar="DATASET", help="Show the settings shipped for this data set.")
    ] = None,
    model: Annotated[str, option("NAME", "gpatcher, fast, deep or a baseline.")] = "gpatcher",
    preset: Annotated[str | None, option("NAME", "paper, default or a data set.")] = None,
    as_json: AsJson = False,
) -> None:
    """List all settings with their values: what 'gpatcher fit --set NAME=VALUE' takes."""
    from gpatcher.runs.settings import PATCHERS, describe_settings, resolve_settings, sources_text

    values, trials = resolve_settings(model, dataset or "", preset)
    if as_json:
        typer.echo(json.dumps(values))
        return

    descriptions, rows = {}, []
    if model in PATCHERS:
        sources = values["patches"] if isinstance(values["patches"], list) else [values["patches"]]
        descriptions = describe_settings(sources[0]["name"])
        if len(sources) > 1:
            rows.append(("patches", sources_text(values.pop("patches")), "Several patch sources, joined by +."))
    flat = {f"{section}.{name}": value for section, part in values.items() for name, value in part.items()}
    for name, value in flat.items():
        shown = ",".join(value) if isinstance(value, list) else value if isinstance(value, str) else json.dumps(value)
        rows.append((name, shown, descriptions.get(name, "")))
    chosen = f"the best of {trials} trials on {preset or dataset}" if trials else "not tuned"
    console().print(table(("setting", "value", "meaning"), rows, f"{model}, {chosen}"))
