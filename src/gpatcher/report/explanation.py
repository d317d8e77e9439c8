"""The page of `gpatcher explain`, and the words that it shares with the terminal."""

from __future__ import annotations

from pathlib import Path

from gpatcher.errors import counted
from gpatcher.report.page import Figure, Notes, Table, write_page
from gpatcher.trust.explain import Explanation, hops_text, label_text

COLUMNS = ("place", "id", "score", "distance", "label", "contribution")


def sentences(found: Explanation) -> list[str]:
    """Say what was decided, and how the contributions add up."""
    label = label_text(found)
    total = sum(member.contribution for member in found.members)
    return [
        f"Predicted {found.predicted} with probability {found.probability:.1%}; runner-up {found.runner_up}; "
        f"label {label}.",
        f"Difference of their logits {found.margin:+.3f} = {found.start:+.3f} for a patch of average nodes "
        f"{total:+.3f} from the members below {found.remainder:+.1g} left by the integration.",
    ]


def member_rows(found: Explanation) -> list[tuple[str, ...]]:
    """Return a row of text for each member, ready for reading."""
    return [
        (str(m.place), str(m.id), f"{m.score:.4f}", hops_text(m.hops), label_text(m), f"{m.contribution:+.3f}")
        for m in found.members
    ]


def write_explanation(found: Explanation, path: str | Path) -> Path:
    """Write a page with the patch drawn and listed."""
    caption = (
        f"In the middle the node, around it the members by distance. Blue speaks for {found.predicted}, orange for "
        f"{found.runner_up}; larger is stronger. Lines are edges of the graph."
    )
    return write_page(
        path,
        f"Why {found.id} was called {found.predicted}",
        f"a patch of {counted(len(found.members), 'node')}",
        [
            Notes("The decision", sentences(found), wide=True),
            Figure("The patch", caption, found.plot(), wide=True),
            Table("Members", "In the order of the patch; contributions in logits.", COLUMNS, member_rows(found)),
        ],
    )
