"""Commands that use a trained model: `predict`, `explain` and `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gpatcher.cli.console import check_out, console, option, step, table, warnings_as_notes
from gpatcher.cli.sources import AsJson, Root, RunFolder, load_run_graph, load_run_model, read_unseen
from gpatcher.errors import InputError, counted


def predict(
    folder: RunFolder,
    out: Annotated[Path, option("FILE", "Where to write, .parquet or .csv.")] = Path("predictions.parquet"),
    patches: Annotated[Path | None, option("FOLDER", "The patch table of the model, where it has moved.")] = None,
    nodes: Annotated[Path | None, option("FILE", "Table of unseen nodes: predict these alone.")] = None,
    edges: Annotated[
        Path | None, option("FILE", "Table of their edges, among themselves and to nodes of the graph.")
    ] = None,
    conformal: Annotated[
        float | None, option("LEVEL", "Also conformal sets, which hold the true class with probability LEVEL.")
    ] = None,
    root: Root = None,
) -> None:
    """Write a class and calibrated probabilities for every node of a trained model's graph, or for unseen nodes."""
    if (nodes is None) != (edges is None):
        raise InputError("unseen nodes need both tables: --nodes with the nodes, --edges with their edges")
    if nodes is not None and patches is not None:
        raise InputError(
            "--patches is the table of the graph; patches of unseen nodes are made from --edges, leave it out"
        )
    check_out(out)
    screen = console()
    with step("reading the graph"):
        graph, source = load_run_graph(folder, root)
    if nodes is not None and edges is not None:
        with warnings_as_notes(), step("reading the tables"):
            unseen = read_unseen(graph, nodes, edges, folder, source)
        with step("predicting"):
            from gpatcher.estimator.ensemble import load_model
            from gpatcher.runs.predict import prediction_columns
            from gpatcher.tables.write import write_table

            as_text = out.suffix.lower() == ".csv"
            classifier = load_model(folder)
            write_table(prediction_columns(classifier, unseen, None, conformal, as_text), out)
        screen.print(f"{counted(unseen.count, 'row')} in {out}", soft_wrap=True)
        return
    classifier = load_run_model(folder, graph, patches)

    from rich.progress import Progress

    from gpatcher.runs.predict import conformal_coverage, write_predictions

    with warnings_as_notes(), Progress(console=screen, transient=True) as bar:
        task = bar.add_task("predicting", total=graph.n)
        write_predictions(classifier, graph, out, lambda done, _: bar.update(task, completed=done), conformal)
    screen.print(f"{counted(graph.n, 'row')} in {out}", soft_wrap=True)
    measured = None if conformal is None else conformal_coverage(classifier, graph, conformal)
    if measured is not None:
        coverage, size, count = measured
        screen.print(
            f"Sets at level {conformal}: {size:.2f} classes on average; they hold the label of {coverage:.1%} of "
            f"{counted(count, 'test node')}",
            soft_wrap=True,
        )


def explain(
    folder: RunFolder,
    node: Annotated[str, typer.Argument(metavar="ID", help="The node's id; positions from 0 where there are no ids.")],
    out: Annotated[Path | None, option("FILE", "Also write a page with the patch drawn, e.g. node.html.")] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Explain why a node got its class: in a sentence, then by its own columns and by the members of its patch."""
    check_out(out)
    with step("looking the node up"):
        from gpatcher.estimator.folder import open_tables
        from gpatcher.trust.lookup import find_node

        graph, _ = load_run_graph(folder, root)
        position = find_node(graph, node)
        kept = open_tables(folder)
    classifier = load_run_model(folder, graph)
    with step("explaining"):
        explanation = classifier.explain(position, graph, None if kept is None else kept[1])
    if out is not None:
        with step("writing the page"):
            from gpatcher.report.explanation import write_explanation

            write_explanation(explanation, out)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict()))
        return

    from gpatcher.trust.words import COLUMNS, OWN_COLUMNS, column_rows, member_rows, sentences

    screen = console()
    for line in sentences(explanation):
        screen.print(line, soft_wrap=True, markup=False)
    if explanation.columns:
        screen.print(table(OWN_COLUMNS, column_rows(explanation), f"Own columns of {explanation.id}"))
    screen.print(table(COLUMNS, member_rows(explanation), f"Patch of {explanation.id}, largest contribution first"))
    if out is not None:
        screen.print(f"The page is in {out}", soft_wrap=True)


def export(
    folder: RunFolder, out: Annotated[Path, option("FILE", "Where to write.")] = Path("model.onnx"), root: Root = None
) -> None:
    """Write the trained model as ONNX and check with onnxruntime that its outputs agree."""
    check_out(out)
    with step("reading the graph"):
        graph, _ = load_run_graph(folder, root)
    classifier = load_run_model(folder, graph)
    with step("exporting"):
        from gpatcher.estimator.onnx import export_onnx

        largest = export_onnx(classifier, out)
    size = out.stat().st_size / 1e6
    console().print(f"{out}: {size:.1f} MB, largest difference of an output {largest:.1g}", soft_wrap=True)
