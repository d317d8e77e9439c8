"""The tables of the campaign in docs/reliability.md, from its records."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

PAGE = Path("docs/reliability.md")
# row → what it does, and the tries of a full campaign
ROWS = {
    "damage": ("damaged files: a bit, truncated, zeros, swapped, replaced, deleted", 2000),
    "fields": ("JSON files with a field removed or changed, half of them with a new checksum", 700),
    "inputs": ("bad tables, options and places", 1000),
    "crash": ("SIGKILL at a random moment, then the command again", 200),
    "interrupt": ("Ctrl-C at a random moment, then the command again", 60),
    "pairs": ("the same command twice at once", 40),
    "disk": ("full disk, or a limit on the size of files", 80),
    "memory": ("too little memory", 80),
    "threads": ("one thread and two", 12),
}
COLUMNS = ("right", "refused", "reported", "accepted")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a row."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def table(results: Path) -> str:
    """Return the table of outcomes."""
    lines = ["| what | tries made | right | refused | said and left out | other content accepted | did not hold |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row, (title, full) in ROWS.items():
        if row == "threads":
            continue
        records = read(results / f"{row}.jsonl")
        counts = Counter(record["outcome"] for record in records)
        others = {name: count for name, count in counts.items() if name not in COLUMNS}
        bad = ", ".join(f"{count} {name}" for name, count in sorted(others.items())) or "0"
        lines.append(
            f"| {title} | {len(records):,} of {full:,} | {' | '.join(str(counts[c]) for c in COLUMNS)} | {bad} |"
        )
    kinds = Counter(record["what"].partition(":")[0] for record in read(results / "damage.jsonl"))
    by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return "\n".join([*lines, "", f"Damages by kind of file: {by_kind or 'none'}."])


def thread_table(results: Path) -> str:
    """Return the table of fits with one thread and with two."""
    lines = ["| model | fits | bit-equal | classes that differ, at most | probabilities differ by at most |"]
    lines.append("|---|---|---|---|---|")
    records = read(results / "threads.jsonl")
    for model in sorted({record["what"].partition(",")[0] for record in records}):
        own = [record for record in records if record["what"].startswith(f"{model},")]
        equal = sum(record["outcome"] == "right" for record in own)
        classes, numbers = (max(record[name] for record in own) for name in ("classes", "probability"))
        lines.append(f"| {model} | {len(own)} | {equal} | {100 * classes:.1f} % | {numbers:.0e} |")
    return "\n".join(lines)


def made(root: Path) -> str:
    """Return the page with the tables that the records give."""
    text, results = (root / PAGE).read_text(), root / "results" / "campaign"
    for name, content in {"campaign": table(results), "threads": thread_table(results)}.items():
        begin, end = f"<!-- {name}: made by tools/campaign -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}"
    return text
