"""The page of `gpatcher explain`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpatcher.errors import counted
from gpatcher.report.page import Figure, Notes, Part, Table, write_page
from gpatcher.trust.explanation import Explanation
from gpatcher.trust.words import COLUMNS, OWN_COLUMNS, column_rows, member_rows, sentences

_LISTED = 200  # members of a patch in the table


def write_explanation(explanation: Explanation, path: str | Path, change: Sequence[str] = ()) -> Path:
    """Write a page with the patch of a node, drawn and listed, and return its path; ``change`` is a counterfactual."""
    caption = (
        "The node is in the centre, the members of its patch around it by distance. Each has the colour of the class "
        f"that it speaks for, {explanation.predicted} or {explanation.runner_up}; larger: stronger. Lines are edges of "
        "the graph."
    )
    unit, title = "in log-odds", f"Why {explanation.id} was called {explanation.predicted}"
    if not explanation.classes:
        unit, title = "in the unit of the label", f"Why {explanation.id} was predicted {explanation.predicted}"
        caption = (
            "The node is in the centre, the members of its patch around it by distance. The two colours tell members "
            "that raise the number from those that lower it; larger: more. Lines are edges of the graph."
        )
    rows = member_rows(explanation, _LISTED)
    parts: list[Part] = [Notes("The decision", [*sentences(explanation), *change], wide=True)]
    if explanation.columns:
        own = f"Largest contribution first, {unit}; together {explanation.own():+.3f}, what the node itself adds."
        parts.append(Table("Its own columns", own, OWN_COLUMNS, column_rows(explanation)))
    parts += [
        Figure("The patch", caption, explanation.plot(), wide=True),
        Table("Members of the patch", f"Largest contribution first, {unit}.", COLUMNS, rows),
    ]
    return write_page(path, title, f"a patch of {counted(len(explanation.members), 'node')}", parts)
