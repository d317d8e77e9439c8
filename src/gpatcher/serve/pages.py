"""The pages of the service: look a node up, and the reference of its paths; nothing is loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from gpatcher.trust.palette import class_colour


def lookup_page(name: str | None, classes: Sequence[str], *, numbers: bool) -> str:
    """Return the page to look a node up; without a name it asks for the token.

    ``numbers`` says that ids are integers.
    """
    colours = {str(one): class_colour(position) for position, one in enumerate(classes)}
    settings = {"token": name is None, "colours": colours, "numbers": numbers}
    data = json.dumps(settings).replace("<", "\\u003c")
    return str(_environment().get_template("lookup.html").render(name=name, data=data))


def reference_page(schema: Mapping[str, Any]) -> str:
    """Return the reference of the paths as a page, from the OpenAPI description."""
    entries = []
    for path, methods in schema["paths"].items():
        for method, entry in methods.items():
            content = entry.get("requestBody", {}).get("content", {})
            body = [_resolved(schema, part["schema"]) for part in content.values()]
            answer = entry["responses"].get("200", {}).get("content", {})
            found = [_resolved(schema, part["schema"]) for part in answer.values() if part.get("schema")]
            entries.append(
                {
                    "method": method.upper(),
                    "path": path,
                    "summary": entry.get("summary", ""),
                    "description": entry.get("description", ""),
                    "examples": [json.dumps(e) for s in body for e in s.get("examples", ())],
                    "fields": [row for s in body for row in _fields(schema, s)],
                    "answers": [row for s in found for row in _fields(schema, s)],
                    "responses": [(code, one.get("description", "")) for code, one in entry["responses"].items()],
                }
            )
    return str(_environment().get_template("reference.html").render(info=schema["info"], entries=entries))


def _fields(schema: Mapping[str, Any], body: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of each field, those of a list of objects below it."""
    rows = []
    for name, field in body.get("properties", {}).items():
        rows.append((name, _type(schema, field), field.get("description", "")))
        inner = _resolved(schema, field.get("items", {}))
        rows += [(f"{name}[].{below}", kind, text) for below, kind, text in _fields(schema, inner)]
    return rows


def _type(schema: Mapping[str, Any], field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        kinds = [_type(schema, one) for one in field["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null")
    if field.get("type") == "array":
        return f"list of {_type(schema, field['items'])}"
    return str(field.get("type") or _resolved(schema, field).get("type") or "any value")


def _resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    name = part.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = schema["components"]["schemas"][name] if name else part
    return found


def _environment() -> jinja2.Environment:
    # the style sheet is that of the reports
    loaders = [jinja2.PackageLoader(f"gpatcher.{room}") for room in ("serve", "report")]
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
