"""The tables of the campaign in docs/reliability.md, from its records."""

import json
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from typing import Any

PAGE = Path("docs/reliability.md")
# row → what it does, and the tries of a full campaign
ROWS = {
    "damage": ("damaged files: a bit, truncated, zeros, swapped, replaced, deleted", 2000),
    "fields": ("JSON files with a field removed or changed, half of them with a new checksum", 700),
    "inputs": ("bad tables, options and places", 1100),
    "payloads": ("a pickle that runs code in the place of a file", 100),
    "runs": ("another run into the folder of a run, then predict and explain", 40),
    "ids": ("ids and labels such as `00001`, `1.0`, `1e3`, compared with those in the predictions", 40),
    "crash": ("SIGKILL at a random moment, then the command again", 200),
    "interrupt": ("Ctrl-C at a random moment, then the command again", 60),
    "pairs": ("the same command twice at once", 40),
    "disk": ("full disk, or a limit on the size of files", 80),
    "memory": ("too little memory", 80),
    "threads": ("one thread and two, or two Ray workers", 40),
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
    moments = {
        row: Counter(record["what"].split(", ")[-1].split()[0] for record in read(results / f"{row}.jsonl"))
        for row in ("crash", "interrupt")
    }
    lines += [
        "",
        f"SIGKILL met a running command in {moments['crash']['killed']} tries, Ctrl-C in "
        f"{moments['interrupt']['stopped']}; in the others it had ended.",
    ]
    every = [record for row in ROWS for record in read(results / f"{row}.jsonl")]
    sources = Counter(record["source"] for record in every)
    by_source = ", ".join(f"`{source}` {count:,}" for source, count in sources.most_common())
    lines += ["", f"Tries by commit of the source: {by_source or 'none'}."]
    return "\n".join([*lines, "", f"Damages by kind of file: {by_kind or 'none'}."])


def thread_table(results: Path) -> str:
    """Return the table of fits with one thread and with two, or on two workers."""
    lines = [
        "| model | fits | bit-equal | classes that differ: mean, at most | with another seed: mean, at least "
        "| probabilities differ by at most | test accuracy, one thread | two threads or workers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    records = [record for record in read(results / "threads.jsonl") if "classes" in record]
    if not records:
        return "No fits are on record yet."
    for model in dict.fromkeys(record["what"].partition(",")[0] for record in records):
        own = [record for record in records if record["what"].startswith(f"{model},")]
        equal = sum(record["outcome"] == "right" for record in own)
        same, other = ([100 * record[name] for record in own] for name in ("classes", "classes_other_seed"))
        cells = [f"{mean(same):.1f} %, {max(same):.1f} %", f"{mean(other):.1f} %, {min(other):.1f} %"]
        cells.append(f"{max(record['probability'] for record in own):.0e}")
        for side in (0, 1):
            accuracy = [100 * record["accuracy"][side] for record in own]
            cells.append(f"{mean(accuracy):.1f} ± {stdev(accuracy) if len(own) > 1 else 0.0:.1f}")
        lines.append(f"| {model} | {len(own)} | {equal} | {' | '.join(cells)} |")
    return "\n".join(lines)


def made(root: Path) -> str:
    """Return the page with the tables that the records give."""
    text, results = (root / PAGE).read_text(), root / "results" / "campaign"
    for name, content in {"campaign": table(results), "threads": thread_table(results)}.items():
        begin, end = f"<!-- {name}: made by tools/campaign -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}"
    return text
