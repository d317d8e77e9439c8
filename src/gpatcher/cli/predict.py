"""Commands that use a trained model: `predict`, `explain` and `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpatcher.cli.console import check_out, console, option, step, table, warnings_as_notes
from gpatcher.cli.sources import (
    LABEL_TYPE,
    AsJson,
    Root,
    RunFolder,
    load_run_graph,
    load_run_model,
    read_unseen,
    table_places,
)
from gpatcher.errors import InputError, counted

if TYPE_CHECKING:
    from gpatcher.tables.database import TargetTable

_LISTED = 20  # members of a patch in the terminal; --json has all


def predict(
    folder: RunFolder,
    out: Annotated[
        Path | None, option("FILE", "Where to write, .parquet or .csv. Default: predictions.parquet.")
    ] = None,
    patches: Annotated[Path | None, option("FOLDER", "Patch table of the model, if it has moved.")] = None,
    nodes: Annotated[
        list[str] | None, option("TABLE", "Table of unseen nodes: predict these alone. By type as in 'gpatcher fit'.")
    ] = None,
    edges: Annotated[
        list[str] | None, option("TABLE", "Table of their edges, among themselves and to nodes of the graph.")
    ] = None,
    conformal: Annotated[
        float | None,
        option("LEVEL", "Add conformal sets or intervals, which contain the truth with probability LEVEL."),
    ] = None,
    escape_formulas: Annotated[
        bool,
        option(
            None, "In a .csv, put an apostrophe before text that a spreadsheet would run (=cmd).", "--escape-formulas"
        ),
    ] = False,
    database: Annotated[
        str | None, option("URL", "Database of --nodes, --edges and --to-table, as for 'gpatcher fit'.")
    ] = None,
    to_table: Annotated[
        str | None, option("NAME", "Write to a new table of --database, in one transaction, instead of a file.")
    ] = None,
    overwrite: Annotated[bool, option(None, "Replace the table of --to-table.", "--overwrite")] = False,
    root: Root = None,
) -> None:
    """Write a class and calibrated probabilities, or a number, for every node of a run's graph, or for unseen nodes."""
    if bool(nodes) != bool(edges):
        raise InputError("unseen nodes need both tables: --nodes with the nodes, --edges with their edges")
    if nodes and patches is not None:
        raise InputError(
            "--patches is the table of the graph; patches of unseen nodes are made from --edges, leave it out"
        )
    places = table_places(nodes, edges, database)
    target = _target(out, to_table, overwrite, places)
    if escape_formulas and (not isinstance(target, Path) or target.suffix.lower() != ".csv"):
        raise InputError(f"--escape-formulas is for a .csv file, and predictions go to {target}; leave it out")
    screen = console()
    with step("reading the graph"):
        graph, source, encoder = load_run_graph(folder, root)
    if to_table is not None and str(places["database"]) == source.get("database"):
        _check_not_read(to_table, source)

    from gpatcher.runs.predict import conformal_coverage, predicted_nodes, write_predictions

    label_type = source.get(LABEL_TYPE)
    if nodes:
        with warnings_as_notes(), step("reading the tables"):
            unseen = read_unseen(graph, places, source, encoder)
        with step("predicting"):
            from gpatcher.estimator.ensemble import load_model

            write_predictions(load_model(folder), unseen, target, None, conformal, label_type, escape_formulas)
        screen.print(f"{counted(len(unseen.predicted()), 'row')} in {target}", soft_wrap=True)
        return
    classifier = load_run_model(folder, graph, patches)

    from rich.progress import Progress

    with warnings_as_notes(), Progress(console=screen, transient=True) as bar:
        rows = len(predicted_nodes(graph))
        task = bar.add_task("predicting", total=graph.n)
        write_predictions(
            classifier,
            graph,
            target,
            lambda done, _: bar.update(task, completed=done),
            conformal,
            label_type,
            escape_formulas,
        )
    screen.print(f"{counted(rows, 'row')} in {target}", soft_wrap=True)
    measured = None if conformal is None else conformal_coverage(classifier, graph, conformal)
    if measured is not None:
        coverage, size, count = measured
        about = f"Intervals at level {conformal}: {size:.6g} wide on average"
        if classifier.class_names_:
            about = f"Sets at level {conformal}: {size:.2f} classes on average"
        screen.print(
            f"{about}; they contain the label of {coverage:.1%} of {counted(count, 'test node')}", soft_wrap=True
        )


def _target(out: Path | None, to_table: str | None, overwrite: bool, places: dict[str, Any]) -> Path | TargetTable:
    """Return where predictions go; a place that cannot be written to is refused before any work is done."""
    if to_table is None:
        if overwrite:
            raise InputError("--overwrite replaces the table of --to-table; a file is replaced without it")
        if "database" in places and places["nodes"] is None:
            raise InputError("--database says where tables are; pass --to-table, or --nodes and --edges, too")
        out = out or Path("predictions.parquet")
        check_out(out)
        return out
    if out is not None:
        raise InputError(f"predictions go to --out {out} or to --to-table {to_table!r}; pass one of them")
    if "database" not in places:
        raise InputError(f"--to-table {to_table!r} is a table of a database; say of which with --database URL")
    _check_not_read(to_table, places)

    from gpatcher.tables.database import TargetTable

    target = TargetTable(places["database"], to_table, overwrite)
    target.check()
    return target


def _check_not_read(to_table: str, source: dict[str, Any]) -> None:
    """Refuse to replace a table that the model or this command reads."""
    for name in ("nodes", "edges"):
        tables = source.get(name)
        read = tables.values() if isinstance(tables, dict) else [tables]
        if to_table.lower() in [text.lower() for text in read if text is not None]:
            raise InputError(f"--to-table {to_table!r} is the table of {name} itself; choose another name")


def explain(
    folder: RunFolder,
    node: Annotated[str, typer.Argument(metavar="ID", help="The node's id, or its index from 0 if nodes have no ids.")],
    out: Annotated[Path | None, option("FILE", "Also write a page that draws the patch, e.g. node.html.")] = None,
    counterfactual: Annotated[
        bool,
        option(None, "Also search the smallest change of its edges that changes the answer.", "--counterfactual"),
    ] = False,
    amount: Annotated[
        float | None,
        option("NUMBER", "The change that counts for a number. Default: half the conformal interval at 90 %."),
    ] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Explain the class or number of a node: in a sentence, then by its own columns and the members of its patch."""
    if amount is not None and not counterfactual:
        raise InputError(f"--amount {amount} says which change of a number counts for --counterfactual; pass both")
    check_out(out)
    with step("looking the node up"):
        import numpy as np

        from gpatcher.trust.lookup import find_node

        graph, _, encoder = load_run_graph(folder, root)
        position = find_node(graph, node)
    classifier = load_run_model(folder)
    with step("explaining"):
        explanation = classifier.explain(position, graph, encoder)
    found, change = {}, []
    if counterfactual:
        with step("changing its edges"):
            from gpatcher.estimator.counterfactual import find_counterfactual

            ranked = sorted(explanation.members, key=lambda member: -member.contribution)
            near = np.array([member.node for member in ranked if member.hops == 1], np.int64)
            result = find_counterfactual(classifier, graph, position, near, amount)
            found, change = {"counterfactual": vars(result)}, [result.sentence(explanation.predicted)]
    if out is not None:
        with step("writing the page"):
            from gpatcher.report.explanation import write_explanation

            write_explanation(explanation, out, change)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict() | found))
        return

    from gpatcher.trust.words import COLUMNS, OWN_COLUMNS, column_rows, member_rows, sentences

    screen = console()
    for line in [*sentences(explanation), *change]:
        screen.print(line, soft_wrap=True, markup=False)
    if explanation.columns:
        screen.print(table(OWN_COLUMNS, column_rows(explanation), f"Own columns of {explanation.id}"))
    rows = member_rows(explanation, _LISTED)
    screen.print(table(COLUMNS, rows, f"Patch of {explanation.id}, largest contribution first"))
    if out is not None:
        screen.print(f"The page is in {out}", soft_wrap=True)


def export(
    folder: RunFolder, out: Annotated[Path, option("FILE", "Where to write.")] = Path("model.onnx"), root: Root = None
) -> None:
    """Write the trained model as ONNX and check with onnxruntime that its outputs agree."""
    check_out(out)
    with step("reading the graph"):
        graph = load_run_graph(folder, root)[0]
    classifier = load_run_model(folder, graph)
    with step("exporting"):
        from gpatcher.estimator.onnx import export_onnx

        largest = export_onnx(classifier, out)
    size = out.stat().st_size / 1e6
    console().print(f"{out}: {size:.1f} MB, largest difference of an output {largest:.1g}", soft_wrap=True)
