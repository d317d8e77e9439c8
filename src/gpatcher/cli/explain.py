"""Commands that open a trained model: `explain` and `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gpatcher.cli.common import AsJson, Root, RunFolder, console, load_run


def explain(
    folder: RunFolder,
    node: Annotated[str, typer.Argument(metavar="ID", help="The node's id; numbers from 0 where there are no ids.")],
    out: Annotated[Path | None, typer.Option(help="Also write a page with the patch drawn, e.g. node.html.")] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Tell why a node was given its class: its patch in order, and what each member adds to the decision."""
    from gpatcher.trust.explain import find_node

    classifier, graph = load_run(folder, root)
    found = classifier.explain(find_node(graph, node))
    if out is not None:
        from gpatcher.report.explanation import write_explanation

        write_explanation(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return

    from rich.table import Table

    from gpatcher.report.explanation import COLUMNS, member_rows, sentences

    screen = console()
    table = Table(*COLUMNS, title=f"Node {found.id}", title_justify="left", header_style="bold")
    for row in member_rows(found):
        table.add_row(*row)
    for line in sentences(found):
        screen.print(line, soft_wrap=True, markup=False)
    screen.print(table)
    if out is not None:
        screen.print(f"The page is in {out}")


def export(
    folder: RunFolder,
    out: Annotated[Path, typer.Option(help="Where to write, e.g. model.onnx.")] = Path("model.onnx"),
    root: Root = None,
) -> None:
    """Write the trained model as ONNX and check with onnxruntime that its outputs agree."""
    from gpatcher.estimator.onnx import export_onnx

    classifier, _ = load_run(folder, root)
    largest = export_onnx(classifier, out)
    size = out.stat().st_size / 1e6
    console().print(f"{out}: {size:.1f} MB, largest difference of an output {largest:.1g}")
