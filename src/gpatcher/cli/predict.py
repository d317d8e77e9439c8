"""Commands that use a trained model: `predict`, `explain` and `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gpatcher.cli.console import console, option, table, warnings_as_notes
from gpatcher.cli.sources import AsJson, Root, RunFolder, load_run, load_run_graph, read_unseen
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
    from gpatcher.runs.predict import conformal_coverage, prediction_columns, write_predictions

    screen = console()
    if nodes is not None and edges is not None:
        from gpatcher.estimator.classifier import GPatcherClassifier
        from gpatcher.tables.write import write_table

        graph, source = load_run_graph(folder, root)
        with warnings_as_notes():
            unseen = read_unseen(graph, nodes, edges, folder, source)
        write_table(prediction_columns(GPatcherClassifier.load(folder), unseen, conformal=conformal), out)
        screen.print(f"{counted(unseen.count, 'row')} in {out}", soft_wrap=True)
        return
    classifier, graph = load_run(folder, root, patches)

    from rich.progress import Progress

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
    """Explain why a node got its class: its patch in order, and what each member adds to the decision."""
    from gpatcher.trust.explain import find_node

    classifier, graph = load_run(folder, root)
    explanation = classifier.explain(find_node(graph, node))
    if out is not None:
        from gpatcher.report.explanation import write_explanation

        write_explanation(explanation, out)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict()))
        return

    from gpatcher.report.explanation import COLUMNS, member_rows, sentences

    screen = console()
    for line in sentences(explanation):
        screen.print(line, soft_wrap=True, markup=False)
    screen.print(table(COLUMNS, member_rows(explanation), f"Node {explanation.id}"))
    if out is not None:
        screen.print(f"The page is in {out}", soft_wrap=True)


def export(
    folder: RunFolder, out: Annotated[Path, option("FILE", "Where to write.")] = Path("model.onnx"), root: Root = None
) -> None:
    """Write the trained model as ONNX and check with onnxruntime that its outputs agree."""
    from gpatcher.estimator.onnx import export_onnx

    classifier, _ = load_run(folder, root)
    largest = export_onnx(classifier, out)
    size = out.stat().st_size / 1e6
    console().print(f"{out}: {size:.1f} MB, largest difference of an output {largest:.1g}", soft_wrap=True)
