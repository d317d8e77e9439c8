"""Extension of griffe that prepares the docstrings for mkdocstrings.

A formula becomes a block of code. A parameter on one line (``name : words``) has a description there and no type; one
with an indented description below has its type on the first line, as in numpydoc.
"""

import re
from typing import Any

from griffe import Extension, Object

SECTIONS = re.compile(r"^(Parameters|Attributes)\n-+\n((?:(?!\n\n).)*)", re.MULTILINE | re.DOTALL)
ONE_LINE = re.compile(r"^([\w*]+(?:, [\w*]+)*) : *(.*)$(?!\n +\S)", re.MULTILINE)
FORMULA = re.compile(r"^\.\. math::\n?((?:(?!\n\n).)*)", re.MULTILINE | re.DOTALL)


def _section(match: re.Match[str]) -> str:
    body = ONE_LINE.sub(lambda entry: f"{entry[1]} :\n    {entry[2]}", match[2])
    return f"{match[1]}\n{'-' * len(match[1])}\n{body}"


def _formula(match: re.Match[str]) -> str:
    lines = (line.strip() for line in match[1].strip().splitlines())
    return "```latex\n" + "\n".join(lines) + "\n```"


def prepare(text: str) -> str:
    r"""Return a docstring in the form that mkdocstrings reads.

    Parameters
    ----------
    text : str
        Docstring as it is in the source.

    Examples
    --------
    >>> prepare("Parameters\n----------\na, b : two numbers\nc : float\n    In (0, 1).\n")
    'Parameters\n----------\na, b :\n    two numbers\nc : float\n    In (0, 1).\n'
    >>> prepare(".. math:: a + b")
    '```latex\na + b\n```'
    """
    return FORMULA.sub(_formula, SECTIONS.sub(_section, text))


class Docstrings(Extension):
    """Prepares every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Prepare the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = prepare(obj.docstring.value)
