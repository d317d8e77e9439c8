"""The project's docstrings for mkdocstrings: `name : words` on one line are words, not a type; formulas are code."""

import re
from typing import Any

from griffe import Extension, Object

SECTIONS = re.compile(r"^(Parameters|Attributes)\n-+\n((?:(?!\n\n).)*)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^([\w*]+(?:, [\w*]+)*) : *(.*)$", re.MULTILINE)
FORMULA = re.compile(r"^\.\. math::\n?((?:(?!\n\n).)*)", re.MULTILINE | re.DOTALL)


def _entries(found: re.Match[str]) -> str:
    body = ENTRY.sub(lambda entry: f"{entry[1]} :\n    {entry[2]}", found[2])
    return f"{found[1]}\n{'-' * len(found[1])}\n{body}"


def _formula(found: re.Match[str]) -> str:
    lines = (line.strip() for line in found[1].strip().splitlines())
    return "```latex\n" + "\n".join(lines) + "\n```"


def plain(text: str) -> str:
    r"""Return a docstring in the form that mkdocstrings reads.

    >>> plain("Parameters\n----------\na, b : two numbers\n    of one kind\n")
    'Parameters\n----------\na, b :\n    two numbers\n    of one kind\n'
    >>> plain(".. math:: a + b")
    '```latex\na + b\n```'
    """
    return FORMULA.sub(_formula, SECTIONS.sub(_entries, text))


class Docstrings(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
