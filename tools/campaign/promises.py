"""Rows of promises: no file runs code, a folder is one run, and ids and labels come out as they went in."""

import io
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from bases import TABLES, TINY, Bases, changes, listing, read_answers
from damage import draw, files_of


class Payload:
    """An object whose pickle makes a folder when an ordinary unpickler reads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def payload(mark: Path, rng: np.random.Generator) -> bytes:
    """Return a file that runs code where it is unpickled: a pickle, an array of objects, or a file of torch."""
    import torch

    kind, file = int(rng.integers(4)), io.BytesIO()
    if kind == 0:
        pickle.dump(Payload(mark), file, int(rng.integers(6)))
    elif kind == 1:
        pickle.dump({0: [1], 1: [Payload(mark)]}, file)
    elif kind == 2:
        np.save(file, np.array([Payload(mark)], object), allow_pickle=True)
    else:
        torch.save({"x": Payload(mark)}, file)
    return file.getvalue()


def payloads(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Put a pickle that runs code in the place of a file that the program reads."""
    from gpatcher.datasets.registry import NAMED

    if rng.random() < 0.4:
        folder = bases.fresh()
        name = ("cora", "citeseer", "pubmed", "texas", "chameleon", "minesweeper")[rng.integers(6)]
        named = NAMED[name]
        raw = folder / "data" / named.raw
        for path in (*(raw / file for file in named.files), raw.parent / "processed" / "data.pt"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(payload(folder / "mark", rng))
        what, words = f"raw files of {name}", ("fit", name, *TINY, "--out", "out")
    else:
        reader, folder = draw(bases, rng, bases.readers)
        files = files_of(reader, folder)
        path = files[rng.integers(len(files))]
        path.write_bytes(payload(folder / "mark", rng))
        what, words = f"{reader.kind}: {path.relative_to(folder)}", reader.words
    ended = bases.run(words, folder)
    outcome = {"done": "right"}.get(ended.outcome, ended.outcome)  # a cache is computed again, a log goes on
    if (folder / "mark").exists():
        outcome = "ran code"
    shutil.rmtree(folder)
    return {"what": what, "outcome": outcome, "message": ended.message.replace(str(folder), "")}


RUN = ("run/model.safetensors", "run/predictions.parquet")
FIRST = ("fit", *TABLES, *TINY, "--out", "run")
SECOND = {
    "another seed": ("--seed", "5"),
    "another width": ("--set", "model.hidden=6"),
    "another model": ("--model", "deep", "--set", "train.epochs=2"),
    "a changed label": (),
    "a changed number": (),
    "a changed edge": (),
}


def runs(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Fit twice into one folder, the second time another run; then predict and explain."""
    folder = bases.fresh(("nodes.csv", "edges.csv"))
    name = list(SECOND)[rng.integers(len(SECOND))]
    way = ((), ("--resume",), ("--overwrite",))[rng.integers(3)]
    ended = bases.run(FIRST, folder)
    first = listing(folder / "run", folder / "run" / ".lock")
    if "changed" in name:
        table = folder / ("edges.csv" if "edge" in name else "nodes.csv")
        rows = [row.split(",") for row in table.read_text().splitlines()]
        column = {"label": 1, "number": 2, "edge": 1}[name.split()[-1]]
        known = [i for i in range(1, len(rows)) if rows[i][column]]
        i, j = (int(value) for value in rng.choice(known, 2, replace=False))
        rows[i][column] = "7.25" if column == 2 else rows[j][column] if rows[j][column] != rows[i][column] else "b"
        table.write_text("\n".join(",".join(row) for row in rows) + "\n")
    if ended.outcome == "done":
        ended = bases.run((*FIRST, *SECOND[name], *way), folder)
    outcome, message = ended.outcome, ended.message
    if outcome == "refused":
        lost = changes(first, listing(folder / "run", folder / "run" / ".lock"))
        outcome, message = ("changed", lost) if lost else (outcome, message)
    elif outcome == "done" and way == ("--overwrite",):
        alone = bases.run((*FIRST[:-1], "alone", *SECOND[name]), folder)
        same = read_answers(folder, RUN) == {
            path.replace("alone", "run", 1): content
            for path, content in read_answers(folder, tuple(path.replace("run", "alone", 1) for path in RUN)).items()
        }
        outcome = "right" if alone.outcome == "done" and same else "wrong"
    elif outcome == "done":
        outcome, message = "wrong", "a second run into the folder was accepted"
    for words in (("predict", "run", "--out", "p.parquet"), ("explain", "run", "n001", "--json")):
        after = bases.run(words, folder)
        if outcome in ("right", "refused") and after.outcome != "done":
            outcome, message = "lost", after.message
    if outcome in ("right", "refused"):
        same = (folder / "p.parquet").read_bytes() == (folder / "run" / "predictions.parquet").read_bytes()
        outcome, message = (outcome, message) if same else ("wrong", "the predictions are not those of the model")
    shutil.rmtree(folder)
    return {"what": f"{name}, {' '.join(way) or 'neither option'}", "outcome": outcome, "message": message}


ODD_IDS = (
    "00001", "1", "01", "1.0", "1.00", "1e3", "1000", "2024-01-05", "05.01.2024", "18446744073709551616", "-0", "0",
    "99999999999999999999999", "0x1F", "NaN", "inf", "true", "True", "NULL", "1_000", "½", "١٢", "a b", "#1", "=1+1",
)  # fmt: skip


def ids(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Give nodes ids and labels that look like numbers or dates, and read them in the predictions."""
    folder = bases.fresh(("nodes.csv", "edges.csv"))
    nodes, edges = ([row.split(",") for row in (folder / name).read_text().splitlines()] for name in TABLES[1:4:2])
    odd = [str(one) for one in rng.permutation(ODD_IDS)[: rng.integers(2, len(ODD_IDS))]]
    chosen = [str(one) for one in rng.choice([row[0] for row in nodes[1:]], len(odd), replace=False)]
    names = dict(zip(chosen, odd, strict=True))
    labels = [str(one) for one in rng.choice(("1", "01", "1.0", "001", "1e0"), 3, replace=False)]
    for row in nodes[1:]:
        row[0], row[1] = names.get(row[0], row[0]), dict(zip("abc", labels, strict=True)).get(row[1], "")
    for row in edges[1:]:
        row[:2] = [names.get(end, end) for end in row[:2]]
    for name, rows in (("nodes.csv", nodes), ("edges.csv", edges)):
        (folder / name).write_text("\n".join(",".join(row) for row in rows) + "\n")
    way = ("fit", "store and fit")[rng.integers(2)]
    source: tuple[str, ...] = TABLES
    if way == "store and fit":
        bases.run(("store", *TABLES, "--out", "graph"), folder)
        source = ("graph",)
    ended = bases.run(("fit", *source, *TINY, "--out", "out"), folder)
    outcome, message = ended.outcome, ended.message
    if outcome == "done":
        table = pq.read_table(folder / "out" / "predictions.parquet")
        written = {row[0]: row[1] or None for row in nodes[1:]}
        found = dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
        outcome = "right" if found == written else "wrong"
        message = ", ".join(sorted(str(one) for one in written.keys() ^ found.keys())[:4])
    shutil.rmtree(folder)
    return {"what": f"{way}: {len(odd)} ids, labels {', '.join(labels)}", "outcome": outcome, "message": message}
