"""Commands that show what there is: `datasets`, `diagnose` and `settings`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gpatcher.cli.console import console, option, table
from gpatcher.cli.sources import AsJson, Root, load_source, takes_graph


def datasets(root: Root = None, as_json: AsJson = False) -> None:
    """List the named data sets: what is in them, and whether their files are on this machine."""
    from gpatcher.datasets.load import load_dataset
    from gpatcher.datasets.registry import NAMED, dataset_root, is_present
    from gpatcher.spectral.diagnosis import diagnose

    rows = []
    for key, dataset in NAMED.items():
        row: dict[str, object] = {"name": dataset.name, "splits": dataset.protocol, "present": is_present(key, root)}
        if row["present"]:
            result = diagnose(load_dataset(key, root), spectral=False)
            row |= {name: getattr(result, name) for name in ("nodes", "edges", "classes", "features")}
            row["heterophily"] = result.node_heterophily
        rows.append(row)
    if as_json:
        typer.echo(json.dumps(rows))
        return

    columns = ("nodes", "edges", "classes", "features", "heterophily")
    listed = table(("data set", *columns, "splits", "files"), ())
    for column in listed.columns[1:-2]:
        column.justify = "right"
    for row in rows:
        shown = [row.get(name) for name in columns]
        cells = [f"{v:.3f}" if isinstance(v, float) else f"{v:,}" if v is not None else "" for v in shown]
        listed.add_row(str(row["name"]), *cells, str(row["splits"]), "here" if row["present"] else "on first use")
    screen = console()
    screen.print(listed)
    screen.print(f"Folder: {dataset_root(root)}. Other sets are downloaded on first use.", style="dim")


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
    """Measure how heterophilous a graph is, in which frequencies its labels lie, what is wrong and what to try."""
    from gpatcher.spectral.diagnosis import diagnose as measure

    result = measure(load_source(source, root), spectral=spectral)
    if out is not None:
        from gpatcher.report.diagnosis import write_diagnosis

        write_diagnosis(result, out)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
        return

    from gpatcher.report.diagnosis import measure_rows

    screen = console()
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
