"""Commands that look at data: `datasets` and `diagnose`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gpatcher.cli.common import AsJson, Root, console, load_origin, takes_graph


def datasets(root: Root = None, as_json: AsJson = False) -> None:
    """List the data sets that have a name: what is in them, and whether their files are here."""
    from gpatcher.datasets.load import load_dataset
    from gpatcher.datasets.registry import NAMED, dataset_root, is_present
    from gpatcher.spectral.diagnosis import diagnose

    rows = []
    for key, named in NAMED.items():
        row: dict[str, object] = {"name": named.name, "splits": named.protocol, "present": is_present(key, root)}
        if row["present"]:
            found = diagnose(load_dataset(key, root), spectral=False)
            row |= {"nodes": found.nodes, "edges": found.edges, "classes": found.classes, "features": found.features}
            row["heterophily"] = found.node_heterophily
        rows.append(row)
    if as_json:
        typer.echo(json.dumps(rows))
        return

    from rich.table import Table

    columns = ("nodes", "edges", "classes", "features", "heterophily")
    table = Table("data set", *columns, "splits", "files", header_style="bold")
    for name in columns:
        table.columns[[c.header for c in table.columns].index(name)].justify = "right"
    for row in rows:
        shown = [row.get(name) for name in columns]
        cells = [f"{v:.3f}" if isinstance(v, float) else f"{v:,}" if v is not None else "" for v in shown]
        table.add_row(str(row["name"]), *cells, str(row["splits"]), "here" if row["present"] else "on first use")
    screen = console()
    screen.print(table)
    screen.print(f"Folder: {dataset_root(root)}. Sets not there are downloaded on first use.", style="dim")


@takes_graph
def diagnose(
    origin: dict[str, Any],
    out: Annotated[Path | None, typer.Option(help="Also write a page with the plots, e.g. report.html.")] = None,
    as_json: AsJson = False,
    spectral: Annotated[
        bool, typer.Option(help="Measure the frequencies too; without them the cost is O(n + m).")
    ] = True,
    root: Root = None,
) -> None:
    """Tell how heterophilous a graph is, where its labels live, what is wrong with it and what to try."""
    from gpatcher.spectral.diagnosis import diagnose as measure

    graph = load_origin(origin, root)
    found = measure(graph, spectral=spectral)
    if out is not None:
        from gpatcher.report.diagnosis import write_diagnosis

        write_diagnosis(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return

    from rich.table import Table

    from gpatcher.report.diagnosis import measure_rows

    screen = console()
    table = Table("measure", "value", "meaning", title=found.name, title_justify="left", header_style="bold")
    for row in measure_rows(found):
        table.add_row(*row)
    screen.print(table)
    for title, lines in (("To know about the data", found.problems), ("To try", found.advice)):
        if lines:
            screen.print(f"\n{title}", style="bold")
            for line in lines:
                screen.print(f"  - {line}", soft_wrap=True)
    if out is not None:
        screen.print(f"\nThe page is in {out}")
