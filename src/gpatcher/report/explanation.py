"""The page of `gpatcher explain`, and the text that it shares with the terminal."""

from __future__ import annotations

from pathlib import Path

from gpatcher.errors import counted
from gpatcher.report.page import Figure, Notes, Table, write_page
from gpatcher.trust.explain import Explanation, hops_text, label_text, position_text

COLUMNS = ("position", "id", "score", "distance", "label", "contribution")


def sentences(explanation: Explanation) -> list[str]:
    """Return the decision and the sum of the contributions in words."""
    total = sum(member.contribution for member in explanation.members)
    return [
        f"Predicted {explanation.predicted} with probability {explanation.probability:.1%}; "
        f"runner-up {explanation.runner_up}; label {label_text(explanation)}.",
        f"Difference of the two logits {explanation.margin:+.3f} = {explanation.start:+.3f} (a patch of average nodes) "
        f"{total:+.3f} (the members) {explanation.remainder:+.1g} (integration error).",
    ]


def member_rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """Return the `COLUMNS` of each member as text."""
    return [
        (
            position_text(m, explanation),
            str(m.id),
            f"{m.score:.4f}",
            hops_text(m.hops),
            label_text(m),
            f"{m.contribution:+.3f}",
        )
        for m in explanation.members
    ]


def write_explanation(explanation: Explanation, path: str | Path) -> Path:
    """Write a page with the patch of a node, drawn and listed, and return its path."""
    caption = (
        f"The node is in the centre, the members of its patch around it by distance. Blue: evidence for "
        f"{explanation.predicted}; orange: evidence for {explanation.runner_up}; larger: stronger. Lines are edges of "
        "the graph."
    )
    rows = member_rows(explanation)
    return write_page(
        path,
        f"Why {explanation.id} was called {explanation.predicted}",
        f"a patch of {counted(len(rows), 'node')}",
        [
            Notes("The decision", sentences(explanation), wide=True),
            Figure("The patch", caption, explanation.plot(), wide=True),
            Table("Members", "In the order of the patch; contributions in logits.", COLUMNS, rows),
        ],
    )
