"""Rows of files that are read again: damage of their bytes, and JSON files with a missing or wrong field."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from bases import Bases, Reader, read_answers

DAMAGES = ("bit", "bit", "bit", "truncated", "zeros", "swapped", "replaced", "deleted")
WRONG: tuple[Any, ...] = (None, -1, 0, 2**70, 1e300, "", "x", "nan", [], {}, [[]], True, "\u0000", {"a": 1})


def judge(bases: Bases, reader: Reader, folder: Path, path: Path | None, ended: Any) -> dict[str, Any]:
    """Say what became of a try: right, refused, reported (answered, but the damage was named) or wrong."""
    outcome = ended.outcome
    names = {path.name, path.parent.name} if path is not None else set()
    named = any(name in ended.err for name in names) or any(name in ended.out for name in names)
    if outcome == "done":
        answer = read_answers(folder, reader.answers, ended.out if "--json" in reader.words else "")
        right = bases.answers(reader)
        outcome = "right" if answer == right else "wrong"
        if outcome == "wrong" and named and "note:" in ended.err:
            outcome = "reported"
    elif outcome == "refused" and path is not None and not named:
        outcome = "refused, file not named"
    return {"outcome": outcome, "message": ended.message.replace(str(folder), "")}


def draw(bases: Bases, rng: np.random.Generator, readers: list[Reader]) -> tuple[Reader, Path]:
    """Return a reader and a folder to try it in."""
    shares = np.array([reader.share for reader in readers], dtype=float)
    reader = readers[rng.choice(len(readers), p=shares / shares.sum())]
    bases.answers(reader)
    return reader, bases.fresh(reader.copied)


def files_of(reader: Reader, folder: Path) -> list[Path]:
    """Return the files that a reader reads again."""
    found = [path for pattern in reader.files for path in sorted(folder.glob(pattern))]
    return [path for path in dict.fromkeys(found) if path.is_file() and not path.name.startswith(".")]


def damage_bytes(path: Path, kind: str, rng: np.random.Generator, others: list[Path]) -> str:
    """Damage a file; return what was done, or nothing if that would not change it."""
    before = path.read_bytes()
    content, size = bytearray(before), len(before)
    if kind == "deleted":
        path.unlink()
        return "deleted"
    if kind == "replaced":
        other = others[rng.integers(len(others))]
        content, said = bytearray(other.read_bytes()), f"replaced by {other.name}"
    elif kind == "truncated":
        length = int(rng.integers(size)) if size else 0
        content, said = content[:length], f"truncated to {length} bytes"
    elif kind == "bit":
        place, bit = int(rng.integers(size)), int(rng.integers(8))
        content[place] ^= 1 << bit
        said = f"bit {bit} of byte {place}"
    else:
        length = int(rng.integers(1, 1 + min(64, size // 2)))
        a, b = (int(start) for start in rng.integers(0, size - length, 2))
        if kind == "zeros":
            content[a : a + length] = bytes(length)
            said = f"{length} zeros at byte {a}"
        else:
            content[a : a + length], content[b : b + length] = before[b : b + length], before[a : a + length]
            said = f"{length} bytes at {a} and {b} swapped"
    if bytes(content) == before:
        return ""
    path.write_bytes(bytes(content))
    return said


def damage(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Damage one file of a kind, and read it."""
    reader, folder = draw(bases, rng, bases.readers)
    files = files_of(reader, folder)
    said, path = "", files[0]
    while not said:
        path, kind = files[rng.integers(len(files))], DAMAGES[rng.integers(len(DAMAGES))]
        others = [other for other in files if other.suffix == path.suffix]
        said = damage_bytes(path, kind, rng, others) if path.stat().st_size > 8 else ""
    what = f"{reader.kind}: {path.relative_to(folder)}, {said}"
    ended = bases.run(reader.words, folder)
    result = {"what": what, **judge(bases, reader, folder, path, ended)}
    shutil.rmtree(folder)
    return result


def _places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all fields of a JSON value."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    own = list(items)[:12]  # a few entries of a long list are enough
    return [place for key, value in own for place in ((*path, key), *_places(value, (*path, key)))]


def fields(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Remove or change a field of a JSON file; half of the time the file gets the checksum of its new content."""
    from gpatcher.io import write_json

    readers = [reader for reader in bases.readers if any("json" in name or "*" in name for name in reader.files)]
    reader, folder = draw(bases, rng, readers)
    files = [path for path in files_of(reader, folder) if path.suffix in (".json", ".jsonl")]
    if not files:
        shutil.rmtree(folder)
        return fields(bases, rng)
    path = files[rng.integers(len(files))]
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = int(rng.integers(len(lines)))
    content = json.loads(lines[number])
    places = _places(content)
    *parents, key = places[rng.integers(len(places))]
    part = content
    for parent in parents:
        part = part[parent]
    sealed = bool(rng.integers(2))
    if rng.random() < 0.3:
        said = "removed"
        del part[key]
    else:
        value = WRONG[rng.integers(len(WRONG))]
        said, part[key] = f"set to {json.dumps(value)}", value
    if path.suffix == ".jsonl":
        lines[number] = json.dumps(content)
        path.write_text("\n".join(lines) + "\n")
    elif sealed:
        content.pop("checksum", None)
        write_json(path, content)
    else:
        path.write_text(json.dumps(content))
    where = ".".join(map(str, (*parents, key)))
    what = f"{reader.kind}: {path.relative_to(folder)}, {where} {said}{', resealed' if sealed else ''}"
    ended = bases.run(reader.words, folder)
    result = {"what": what, **judge(bases, reader, folder, path, ended)}
    if result["outcome"] == "wrong" and sealed:
        result["outcome"] = "accepted"  # another valid content, with its checksum: nothing is damaged
    shutil.rmtree(folder)
    return result
