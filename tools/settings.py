"""Write the default and the description of every setting, from the configurations and their docstrings.

python tools/settings.py
"""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import gpatcher.runs.settings
from gpatcher.codec import to_json
from gpatcher.estimator.settings import CONFIGS
from gpatcher.io import write_json
from gpatcher.patches import EXTRACTORS

PATH = Path(gpatcher.runs.settings.__file__).with_name("reference.json")


def describe(config: type[Any]) -> dict[str, list[Any]]:
    """Return [default, description] of each field, from the numpydoc docstrings of a dataclass and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(config.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Parameters\n----------\n")
        for names, text in re.findall(r"^(\w[\w, ]*)(?: : .*)?\n((?:    .*\n?)+)", section, re.MULTILINE):
            docs |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return {field.name: [to_json(getattr(config(), field.name)), docs.get(field.name, "")] for field in fields(config)}


def reference() -> dict[str, Any]:
    """Return the content of the file."""
    return {
        "extractors": {name: describe(extractor) for name, extractor in EXTRACTORS.items()},
        "sections": {section: describe(config) for section, config in CONFIGS.items()},
    }


if __name__ == "__main__":
    write_json(PATH, reference())
