"""An explanation in words, for the terminal and for pages."""

from __future__ import annotations

import math

from gpatcher.errors import counted
from gpatcher.trust.explanation import Explanation, Member, hops_text, label_text

COLUMNS = ("member", "distance", "label", "score", "contribution")
OWN_COLUMNS = ("own column", "value", "contribution")
_NAMED = 2  # columns or nodes named in a sentence
_SMALL = 0.005  # integration errors below this are not mentioned


def sentences(explanation: Explanation) -> list[str]:
    """Return a sentence with the prediction, then sentences about the label and the sum of contributions."""
    return [_answer(explanation), _label(explanation), _sum(explanation)]


def _answer(explanation: Explanation) -> str:
    """Say where most of the evidence for the predicted class comes from, or what moves the predicted number most."""
    others = [m for m in explanation.members if m.node != explanation.node]
    near = [m for m in others if m.hops == 1]
    far = [m for m in others if m.hops != 1]
    weight = {
        "own": explanation.own(),
        "near": sum(m.contribution for m in near),
        "far": sum(m.contribution for m in far),
        "start": explanation.start,
    }
    sign = 1.0
    if not explanation.classes:
        sign = -1.0 if explanation.margin < explanation.start else 1.0
        weight = {name: 0.0 if name == "start" else sign * value for name, value in weight.items()}
    evidence = sum(value for value in weight.values() if value > 0)
    first = max(weight, key=lambda name: weight[name])
    columns = [(f"{c.name} = {c.value}" if c.value else c.name, c.contribution) for c in explanation.columns]
    source = {
        "own": "its own columns" + _named(columns, sign),
        "near": f"its {counted(len(near), 'direct neighbour')}" + _named(_contributions(near), sign),
        "far": f"{counted(len(far), 'node')} further away" + _named(_contributions(far), sign),
    }
    if not explanation.classes:
        answer = f"Node {explanation.id} is predicted {_number(explanation.margin, explanation)}"
        if first == "start":
            return f"{answer}, as an average node would be."
        gap, start = (_number(v, explanation) for v in (abs(explanation.margin - explanation.start), explanation.start))
        than = f"{gap} {'less' if sign < 0 else 'more'} than an average node ({start})"
        return f"{answer}, {than}: {_most(weight[first], evidence)} of the difference comes from {source[first]}."
    answer = f"Node {explanation.id} is classed {explanation.predicted} with {explanation.probability:.0%}"
    if first == "start":
        return f"{answer}, as an average node would be; what is particular about it weighs less."
    most = "most of it" if weight[first] > evidence / 2 else "the largest part"
    return f"{answer}: {most} comes from {source[first]}."


def _most(part: float, whole: float) -> str:
    return "most" if part > whole / 2 else "the largest part"


def _contributions(members: list[Member]) -> list[tuple[str, float]]:
    return [(str(m.id), m.contribution) for m in members]


def _named(parts: list[tuple[str, float]], sign: float) -> str:
    """Name the parts with the largest contributions of this sign."""
    best = sorted((part for part in parts if sign * part[1] > 0), key=lambda part: -sign * part[1])[:_NAMED]
    return ", above all " + " and ".join(name for name, _ in best) if best else ""


def _label(explanation: Explanation) -> str:
    if explanation.label is None:
        return "Its label is unknown."
    if not explanation.classes:
        error = _number(explanation.margin - float(explanation.label), explanation)
        return f"Its label is {label_text(explanation)}: the error is {error}."
    if explanation.label != explanation.predicted:
        return f"Its label is {label_text(explanation)}: the answer is wrong."
    return f"Its label is {label_text(explanation)}: the answer is right."


def _sum(explanation: Explanation) -> str:
    total = sum(member.contribution for member in explanation.members)
    own, rest = explanation.own(), explanation.remainder
    if not explanation.classes:
        small = abs(rest) <= _SMALL * max(abs(explanation.margin - explanation.start), 1e-12)
        error = "" if small else f", and the integration leaves {_number(rest, explanation, '+')}"
        return (
            f"In the unit of the label: an average node starts at {_number(explanation.start, explanation)}, the node "
            f"itself adds {_number(own, explanation, '+')}, the rest of its patch "
            f"{_number(total - own, explanation, '+')}{error}; in all {_number(explanation.margin, explanation)}."
        )
    error = f", and the integration leaves {rest:+.3f}" if abs(rest) > _SMALL else ""
    return (
        f"In log-odds of {explanation.predicted} against {explanation.runner_up}, the next best class: an average node "
        f"starts at {explanation.start:+.3f}, the node itself adds {own:+.3f}, the rest of its patch {total - own:+.3f}"
        f"{error}; in all {explanation.margin:+.3f}."
    )


def column_rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """Return the `OWN_COLUMNS` of the node as text, largest contribution first."""
    return [(c.name, c.value, _contribution(c.contribution, explanation)) for c in explanation.columns]


def member_rows(explanation: Explanation, limit: int | None = None) -> list[tuple[str, ...]]:
    """Return the `COLUMNS` of each member as text, largest contribution first; those beyond the limit are summed."""
    ranked = [explanation.members[i] for i in explanation.ranked()]
    rows: list[tuple[str, ...]] = [
        (
            f"{m.id} (source {m.source})" if explanation.num_sources > 1 else str(m.id),
            hops_text(m.hops),
            label_text(m),
            f"{m.score:.4f}",
            _contribution(m.contribution, explanation),
        )
        for m in ranked[:limit]
    ]
    if others := ranked[len(rows) :]:
        total = sum(member.contribution for member in others)
        rows.append((f"{len(others):,} others", "", "", "", _contribution(total, explanation)))
    return rows


def _number(value: float, explanation: Explanation, sign: str = "") -> str:
    """Return a number of a regression; all have as many decimals as show the largest contribution to four digits."""
    largest = max((abs(member.contribution) for member in explanation.members), default=0.0)
    decimals = min(max(3 - math.floor(math.log10(largest)), 0), 12) if largest > 0 else 3
    return f"{value:{sign}.{decimals}f}"


def _contribution(value: float, explanation: Explanation) -> str:
    """Return a contribution and the class that it favours, or what it adds to a number."""
    if not explanation.classes:
        return _number(value, explanation, "+")
    return f"{abs(value):+.3f} for {explanation.predicted if value >= 0 else explanation.runner_up}"
