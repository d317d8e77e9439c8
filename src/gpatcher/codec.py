"""Nested dataclasses to JSON and back without loss, by their type hints.

Arrays keep dtype, shape and bits. NaN and infinity, which JSON lacks, are written as text.
"""

from __future__ import annotations

import json
import math
import zlib
from base64 import b64decode, b64encode
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from gpatcher.errors import InputError

_WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    tuple: "a list",
    dict: "an object",
}


def to_json(value: Any) -> Any:
    """Return a dataclass, array, dict with string keys, list, tuple or scalar as JSON values, nested to any depth."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        packed = b64encode(zlib.compress(value.tobytes())).decode()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "zlib": packed}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, str) or (isinstance(value, int) and _fits(value)):
        return value
    raise TypeError(f"{type(value).__name__} {value!r} cannot be written as JSON")


def from_json(hint: Any, content: Any, where: str = "content") -> Any:
    """Return the value of this type that `to_json` was given; an `InputError` names the part that has another type.

    The type is a dataclass, an array type, ``dict[str, X]``, ``list[X]``, ``tuple[X, Y]``, ``tuple[X, ...]``,
    ``X | None``, str, int, float, bool or Any.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return content
    if isinstance(content, np.generic):  # of settings in Python, such as those of a search over np.logspace
        content = content.item()
    if origin in (Union, UnionType):
        (hint,) = (option for option in inner if option is not NoneType)
        return None if content is None else from_json(hint, content, where)
    if isinstance(hint, type) and is_dataclass(hint):
        hints, required = _fields(hint)
        if not isinstance(content, dict):
            raise InputError(f"{where} must have the fields {', '.join(hints)}, got {str(content)[:40]!r}")
        for name in (required - content.keys()) | (content.keys() - hints.keys()):
            raise InputError(f"{where} {'lacks the' if name in hints else 'has the unknown'} field {name!r}")
        return hint(**{name: from_json(hints[name], content[name], f"{where}.{name}") for name in content})
    if origin is np.ndarray:
        return _array(content, where)
    if origin is dict and isinstance(content, dict):
        return {key: from_json(inner[1], item, f"{where}.{key}") for key, item in content.items()}
    if origin in (list, tuple) and isinstance(content, list | tuple):
        each = inner if origin is tuple and Ellipsis not in inner else inner[:1] * len(content)
        if len(each) != len(content):
            raise InputError(f"{where} must have {len(each)} entries, got {len(content)}")
        return origin(
            from_json(one, item, f"{where}[{i}]") for i, (one, item) in enumerate(zip(each, content, strict=True))
        )
    if type(content) is int and hint in (int, float) and not _fits(content):
        raise InputError(f"{where} must have at most 64 bits, got {content}")
    if hint is float and (type(content) in (int, float) or content in ("nan", "inf", "-inf")):
        return float(content) if isinstance(content, str) else content
    if type(content) is hint:
        return content
    raise InputError(f"{where} must be {_WORDS.get(origin or hint, hint)}, got {json.dumps(content, default=str)[:40]}")


@cache
def _fields(kind: type[Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the type of each field of a dataclass, and the fields without a default."""
    hints = get_type_hints(kind)
    required = (field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)
    return {field.name: hints[field.name] for field in fields(kind)}, frozenset(required)


def _fits(number: int) -> bool:
    """Whether a number has at most 64 bits, as NumPy and pyarrow need it."""
    return -(2**63) <= number < 2**63


def _array(content: Any, where: str) -> npt.NDArray[Any]:
    try:
        values = np.frombuffer(zlib.decompress(b64decode(content["zlib"], validate=True)), content["dtype"])
        return values.reshape(content["shape"]).copy()
    except (KeyError, TypeError, ValueError, zlib.error, OverflowError) as error:
        raise InputError(f"{where} must be an array ({error})") from None
