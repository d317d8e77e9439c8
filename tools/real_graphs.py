"""Make tables of real graphs that lie on a Debian system: its package index and WordNet.

    python tools/real_graphs.py FOLDER    # deb-section, deb-language, deb-text, wordnet

The package index is what ``apt-cache dumpavail`` prints, so the graphs change with it; WordNet is Debian's package
wordnet-base. Labels that are hidden in nodes.csv are in truth.csv. `tools/portfolio.py` learns from two of the graphs.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
Package = dict[str, str]
SECTIONS = [
    "games",
    "science",
    "math",
    "sound",
    "graphics",
    "net",
    "admin",
    "editors",
    "education",
    "video",
    "web",
    "mail",
]
LANGUAGES = ["c", "perl", "python", "java", "ruby", "shell", "lisp", "ocaml"]
WORDNET = Path("/usr/share/wordnet/data.noun")
_HUB = 15  # packages that are needed by as many of those drawn are nodes too, without a label
_LEAST = 60  # nodes of a class of WordNet


def write_tables(
    folder: Path, columns: Sequence[str], rows: Sequence[Row], edges: Sequence[tuple[str, str]], known: int | None
) -> None:
    """Write the tables; ``known`` labels of each class are shown, or three quarters of all."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    labels = [row["label"] for row in rows]
    labelled = [i for i, label in enumerate(labels) if label != ""]
    if known is None:
        hidden = set(rng.choice(labelled, int(0.25 * len(labelled)), replace=False).tolist())
    else:
        hidden = set(labelled)
        for name in sorted(set(labels) - {""}):
            hidden -= set(rng.permutation([i for i in labelled if labels[i] == name])[:known].tolist())
    with (folder / "nodes.csv").open("w", newline="") as nodes, (folder / "truth.csv").open("w", newline="") as truth:
        shown, kept = csv.writer(nodes), csv.writer(truth)
        shown.writerow(["id", "label", *columns])
        kept.writerow(["id", "label"])
        for i, row in enumerate(rows):
            label = "" if i in hidden else row["label"]
            shown.writerow([row["id"], label, *(row.get(column, "") for column in columns)])
            if i in hidden:
                kept.writerow([row["id"], row["label"]])
    with (folder / "edges.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows(edges)
    print(f"{folder}: {len(rows)} nodes, {len(edges)} edges, {len(hidden)} hidden labels")


def read_packages() -> dict[str, Package]:
    """Return the fields of each package of the index."""
    packages = {}
    printed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    for block in printed.split("\n\n"):
        package: Package = {}
        name = ""
        for line in block.split("\n"):
            if ": " in line and not line.startswith(" "):
                name, value = line.split(": ", 1)
                package[name] = value
            elif line.startswith(" ") and package:
                package[name] += line
        if "Package" in package:
            packages[package["Package"]] = package
    return packages


def needed(package: Package) -> set[str]:
    """Return the names of the packages that a package depends on."""
    fields = (package.get(field, "") for field in ("Depends", "Pre-Depends", "Recommends"))
    names = {one.strip().split(" ")[0].split(":")[0] for text in fields for one in re.split("[,|]", text)}
    return names - {""}


def package_graph(
    packages: dict[str, Package], label: Callable[[Package], str], count: int, rng: np.random.Generator
) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return packages with a label, those that many of them need, and who needs whom."""
    names = [name for name, package in packages.items() if label(package)]
    if len(names) > count:
        names = [str(name) for name in rng.choice(names, count, replace=False)]
    drawn = set(names)
    uses = Counter(other for name in names for other in sorted(needed(packages[name])) if other in packages)
    names += [name for name, times in uses.items() if times >= _HUB and name not in drawn]
    rows: list[Row] = []
    for name in names:
        package = packages[name]
        row: Row = {"id": name, "label": label(package) if name in drawn else ""}
        row |= {"size": package.get("Installed-Size", ""), "priority": package.get("Priority", "")}
        row |= {"arch": package.get("Architecture", ""), "about": package.get("Description", "")}
        row["maintainer"] = package.get("Maintainer", "").split("<")[-1].strip(">")
        rows.append(row)
    kept = set(names)
    edges = [(name, other) for name in names for other in sorted(needed(packages[name])) if other in kept - {name}]
    return rows, edges


def section(package: Package) -> str:
    """Return the section, where it is one of `SECTIONS`."""
    return package["Section"] if package.get("Section") in SECTIONS else ""


def language(package: Package) -> str:
    """Return the language that a package is written in, where its tags name one of `LANGUAGES`."""
    tags = re.findall(r"implemented-in::(\w+)", package.get("Tag", ""))
    return tags[0] if len(set(tags)) == 1 and tags[0] in LANGUAGES else ""


def wordnet(count: int, rng: np.random.Generator) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return nouns around some drawn ones; the label is the lexicographer's file."""
    nouns = dict(_read_nouns())
    neighbours = defaultdict(list)
    for noun, entry in nouns.items():
        for other in entry["related"]:
            if other in nouns:
                neighbours[noun].append(other)
                neighbours[other].append(noun)
    chosen: list[str] = []
    seen: set[str] = set()
    queue = list(rng.choice(list(nouns), 40))
    while queue and len(chosen) < count:
        noun = queue.pop(0)
        if noun not in seen:
            seen.add(noun)
            chosen.append(noun)
            around = neighbours[noun]
            queue += [around[i] for i in rng.permutation(len(around))[:6]]
    sizes = Counter(nouns[noun]["file"] for noun in chosen)
    rows = [
        {"id": noun, "label": f"lex{nouns[noun]['file']}" if sizes[nouns[noun]["file"]] >= _LEAST else ""}
        | {"gloss": nouns[noun]["gloss"], "words": nouns[noun]["words"]}
        for noun in chosen
    ]
    return rows, [(noun, other) for noun in chosen for other in nouns[noun]["related"] if other in seen]


def _read_nouns() -> Iterator[tuple[str, Row]]:
    for line in WORDNET.read_text().splitlines():
        if line.startswith("  "):
            continue
        head, gloss = line.split(" | ", 1)
        fields = head.split()
        words = int(fields[3], 16)
        start = 4 + 2 * words
        pointers = [fields[start + 1 + 4 * i : start + 4 + 4 * i] for i in range(int(fields[start]))]
        related = [target for _, target, kind in pointers if kind == "n"]
        yield fields[0], {"file": int(fields[1]), "words": words, "related": related, "gloss": gloss.strip()}


def main() -> None:
    """Write the four graphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    packages = read_packages()
    rng = np.random.default_rng(1)
    graph = package_graph(packages, section, 4000, rng)
    write_tables(folder / "deb-section", ("size", "priority", "arch"), *graph, None)
    graph = package_graph(packages, language, 3000, rng)
    write_tables(folder / "deb-language", ("size", "arch", "maintainer"), *graph, None)
    graph = package_graph(packages, section, 3000, rng)
    write_tables(folder / "deb-text", ("size", "about"), *graph, 30)
    write_tables(folder / "wordnet", ("gloss", "words"), *wordnet(4000, rng), 20)


if __name__ == "__main__":
    main()
