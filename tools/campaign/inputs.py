"""The row of bad input: tables, options and places that are wrong, odd or hostile; none may end in a traceback."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from bases import TINY, Bases, changes, listing
from moments import drafts

ODD = (
    "", " ", "-1", "0", "1", "2.5", "1e400", "-1e308", "1e-320", "nan", "inf", "-inf", "NULL", "true", "None", "a", ":",
    "99999999999999999999", "[/b]", "[bold]x", "\u202ex", "../..", "=cmd()", "{}", "1,2,3", "a=b", ",", "💥", "%s%n",
    "x" * 5000, "'; drop table x; --", "csbm:n=-1", "csbm:n=0", "csbm:n=x", "csbm:phi=9", "2024-13-45", "0x10", "１２",
    "\t", "a\nb",
)  # fmt: skip
SMALL = (*TINY, "--out", "out")
# commands that end soon, and what they start from
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fit": (("fit", "graph", *SMALL), ("graph",)),
    "store": (("store", "graph", "--out", "out"), ("graph",)),
    "patches": (("patches", "graph", "--size", "4", "--out", "out"), ("graph",)),
    "diagnose": (("diagnose", "graph"), ("graph",)),
    "predict": (("predict", "fast", "--out", "p.csv"), ("fast",)),
    "explain": (("explain", "fast", "n001"), ("fast",)),
    "verify": (("verify", "fast"), ("fast",)),
    "report": (("report", "fast"), ("fast",)),
    "settings": (("settings", "fast"), ()),
    "bench": (("bench", "csbm_sweep", "--models", "none", "--out", "out"), ()),
    "tune": (("tune", "mlp/csbm:n=60", "--trials", "1", "--splits", "0", "--out", "out"), ()),
}
TABLE_COMMANDS = (
    ("fit", *SMALL),
    ("fit", "--quality", "quick", "--no-compare", "--jobs", "1", "--out", "out"),
    ("store", "--out", "out"),
    ("store", "--out", "out"),
    ("store", "--out", "out"),
    ("diagnose",),
)
# options that start servers or clusters, or ask for a run that takes as long as it was told to
LEFT_OUT = ("--help", "--ray-address", "--engine", "--install-completion", "--show-completion", "--list")
CHANGES = (
    "train.lr", "train.weight_decay", "train.patience", "train.monitor", "train.batch_size", "train.ema_decay",
    "model.hidden", "model.layers", "model.dropout", "model.rounds", "model.norm", "model.readout", "model.aggregate",
    "patches.size", "patches.c", "patches.eps", "patches", "features.normalise", "features.structure",
    "features.adjacency_features", "no.such", "train",
)  # fmt: skip


# how often: a narrow terminal, one that shows ASCII alone, and a new interpreter in the C locale
TERMINALS = {"": 0.68, "40 columns": 0.15, "ASCII": 0.15, "C locale": 0.02}


def use_ascii() -> None:
    """Let a fork print as in a locale that is not UTF-8."""
    sys.stdout.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="ascii", errors="backslashreplace")  # type: ignore[union-attr]


def _cells(folder: Path, name: str) -> list[list[str]]:
    return [line.split(",") for line in (folder / name).read_text().splitlines()]


def _write(folder: Path, name: str, rows: list[list[str]]) -> None:
    (folder / name).write_text("\n".join(",".join(row) for row in rows) + "\n", errors="surrogatepass")


def _odd_cell(folder: Path, name: str, rng: np.random.Generator) -> str:
    rows = _cells(folder, name)
    value = ODD[rng.integers(len(ODD))]
    i, j = int(rng.integers(1, len(rows))), int(rng.integers(len(rows[0])))
    rows[i][j] = f'"{value}"'
    _write(folder, name, rows)
    return f"{name}: row {i}, column {rows[0][j]} is {value[:30]!r}"


def _odd_column(folder: Path, name: str, rng: np.random.Generator) -> str:
    rows = _cells(folder, name)
    value, j = ODD[rng.integers(len(ODD))], int(rng.integers(len(rows[0])))
    for row in rows[1:]:
        row[j] = f'"{value}"'
    _write(folder, name, rows)
    return f"{name}: all of column {rows[0][j]} is {value[:30]!r}"


def _odd_header(folder: Path, name: str, rng: np.random.Generator) -> str:
    rows = _cells(folder, name)
    j = int(rng.integers(len(rows[0])))
    value = (*ODD, *rows[0])[rng.integers(len(ODD) + len(rows[0]))]
    before, rows[0][j] = rows[0][j], f'"{value}"'
    _write(folder, name, rows)
    return f"{name}: column {before} is called {value[:30]!r}"


def _rows(folder: Path, name: str, rng: np.random.Generator) -> str:
    rows = _cells(folder, name)
    kind = ("none", "one", "doubled", "short", "long", "self", "few")[rng.integers(7)]
    body = rows[1:]
    i = int(rng.integers(len(body)))
    if kind == "short":
        body[i] = body[i][:1]
    elif kind == "long":
        body[i] = body[i] * 3
    elif kind == "self":
        body = [[row[0], row[0], *row[2:]] for row in body]
    else:
        body = {"none": [], "one": body[:1], "doubled": body + body, "few": body[:5]}[kind]
    _write(folder, name, [rows[0], *body])
    return f"{name}: rows {kind}"


def _bytes(folder: Path, name: str, rng: np.random.Generator) -> str:
    path = folder / name
    content = path.read_bytes()
    at = int(rng.integers(len(content)))
    made = {
        "empty": b"",
        "a NUL": content[:at] + b"\0" + content[at:],
        "not UTF-8": content[:at] + b"\xff\xfe" + content[at:],
        "UTF-16": content.decode().encode("utf-16"),
        "a BOM": b"\xef\xbb\xbf" + content,
        "CRLF": content.replace(b"\n", b"\r\n"),
        "a quote": content[:at] + b'"' + content[at:],
        "JSON": b'{"id": 1}',
        "PAR1": b"PAR1" + content + b"PAR1",
        "semicolons": content.replace(b",", b";"),
        "a long line": content + b"x" * 100_000,
        "truncated": content[:at],
        "random": rng.bytes(500),
        "newlines": b"\n" * 50,
    }
    kind = list(made)[rng.integers(len(made))]
    path.write_bytes(made[kind])
    return f"{name}: {kind} (byte {at})"


def _parquet(folder: Path, name: str, rng: np.random.Generator) -> str:
    """Write the table as Parquet with one column of another type."""
    import decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = _cells(folder, name)
    columns = {head: [row[j] for row in rows[1:]] for j, head in enumerate(rows[0])}
    count = len(rows) - 1
    types: dict[str, Any] = {
        "list": pa.array([[1, 2]] * count),
        "struct": pa.array([{"a": 1}] * count),
        "decimal": pa.array([decimal.Decimal("1.10")] * count),
        "binary": pa.array([b"\xff\0"] * count),
        "float16": pa.array(np.ones(count, np.float16)),
        "uint64": pa.array(np.full(count, 2**64 - 1, np.uint64)),
        "timestamp": pa.array(np.arange(count), pa.timestamp("ns")),
        "duration": pa.array(np.arange(count), pa.duration("s")),
        "null": pa.nulls(count),
        "bool": pa.array([True, None] * (count // 2) + [False] * (count % 2)),
        "dictionary": pa.array(["a"] * count).dictionary_encode(),
        "time": pa.array(np.arange(count), pa.time64("us")),
        "map": pa.array([[("a", 1)]] * count, pa.map_(pa.string(), pa.int64())),
    }
    kind, head = list(types)[rng.integers(len(types))], rows[0][rng.integers(len(rows[0]))]
    (folder / name).unlink()
    pq.write_table(pa.table({**columns, head: types[kind]}), folder / Path(name).with_suffix(".parquet"))
    return f"{name}: {head} is a Parquet column of type {kind}"


def bad_tables(bases: Bases, rng: np.random.Generator) -> tuple[str, tuple[str, ...], Path]:
    """Change tables in one or two ways."""
    folder = bases.fresh(("nodes.csv", "edges.csv"))
    changes = (_odd_cell, _odd_cell, _odd_column, _odd_header, _rows, _bytes, _bytes, _parquet)
    said = []
    for name in ("nodes.csv", "edges.csv"):
        if rng.random() < 0.6:
            said.append(changes[rng.integers(len(changes))](folder, name, rng))
    names = {
        name: f"{name}.csv" if (folder / f"{name}.csv").exists() else f"{name}.parquet" for name in ("nodes", "edges")
    }
    words = TABLE_COMMANDS[rng.integers(len(TABLE_COMMANDS))]
    tables = ("--nodes", names["nodes"], "--edges", names["edges"])
    weight = ("--weight", "weight") if rng.random() < 0.6 else ()
    return "; ".join(said) or "nothing changed", (words[0], *tables, *weight, *words[1:]), folder


def bad_options(bases: Bases, rng: np.random.Generator) -> tuple[str, tuple[str, ...], Path]:
    """Give an option of a command an odd value."""
    import typer

    from gpatcher import cli

    name = list(COMMANDS)[rng.integers(len(COMMANDS))]
    words, copied = COMMANDS[name]
    command = typer.main.get_command(cli.app).commands[name]  # type: ignore[attr-defined]
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    options = [option for option in options if option not in LEFT_OUT]
    value = ODD[rng.integers(len(ODD))]
    if name == "fit" and rng.random() < 0.5:
        change = f"{CHANGES[rng.integers(len(CHANGES))]}={value}"
        added: tuple[str, ...] = ("--set", change)
    elif not options or rng.random() < 0.15:
        words = (words[0], value, *words[2:])
        added = ()
    else:
        added = (options[rng.integers(len(options))], value)
    return f"{name} {' '.join(added)[:80] or value[:40]!r}", (*words, *added), bases.fresh(copied)


def bad_places(bases: Bases, rng: np.random.Generator) -> tuple[str, tuple[str, ...], Path]:
    """Give a command a path that is not what it should be; all of them in a folder of the campaign."""
    folder = bases.fresh(("nodes.csv", "edges.csv", "graph", "fast", "patches"))
    (folder / "empty").mkdir()
    (folder / "file").write_text("x")
    (folder / "blank").write_text("")
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "nowhere").symlink_to("missing/there")
    (folder / "link").symlink_to("graph")
    (folder / "to-pipe").symlink_to("../outside/pipe")
    (folder / "to-device").symlink_to("../outside/device")
    shutil.copytree(folder / "graph", folder / "[/b] =x 💥\n")
    places = (
        "missing", "empty", "file", "blank", "fifo", "loop", "nowhere", "link", "[/b] =x 💥\n", ".", "..",
        "file/below", "x" * 300, "graph", "fast", "patches", "nodes.csv", "fast/model.json", "\udcff",
        "../outside/pipe", "../outside/device", "to-pipe", "to-device",
    )  # fmt: skip
    place = places[rng.integers(len(places))]
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv")
    out = ("--out", "out")
    options: tuple[tuple[str, ...], ...] = (
        ("fit", place, *SMALL),
        ("fit", "graph", *TINY, "--out", place),
        ("fit", "graph", *TINY, "--out", place, "--overwrite"),
        ("fit", "graph", *TINY, "--out", place, "--resume"),
        ("fit", "graph", *SMALL, "--patches", place),
        ("fit", "--nodes", place, "--edges", "edges.csv", *SMALL),
        ("fit", "--nodes", "nodes.csv", "--edges", place, *SMALL),
        ("store", *tables, "--out", place),
        ("store", place, *out),
        ("store", "--nodes", place, "--edges", "edges.csv", *out),
        ("store", "--nodes", "nodes.csv", "--edges", place, *out),
        ("patches", place, *out),
        ("patches", "graph", "--out", place),
        ("diagnose", place),
        ("diagnose", "graph", "--out", place),
        ("predict", place),
        ("predict", "fast", "--out", place),
        ("predict", "fast", "--nodes", place, "--edges", "edges.csv"),
        ("explain", place, "n001"),
        ("explain", "fast", place),
        ("report", place),
        ("verify", place),
        ("bench", "csbm_sweep", "--models", "none", "--tuned", place),
        ("fit", "cora", "--root", place, *SMALL),
    )
    words = options[rng.integers(len(options))]
    if words[0] == "verify" and place in ("..", "."):
        words = ("report", place)  # nobody asks how long it takes to verify a whole disk
    if place in ("..", ".") and "--overwrite" in words:
        words = words[:-1]
    return " ".join(words)[:160], words, folder


def inputs(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Run a command on bad input: it may be refused, or work; not more."""
    make = (bad_tables, bad_options, bad_places)[rng.choice(3, p=(0.4, 0.35, 0.25))]
    bases.need("fast", "graph", "patches")
    what, words, folder = make(bases, rng)
    before = listing(folder)
    terminal = list(TERMINALS)[rng.choice(len(TERMINALS), p=list(TERMINALS.values()))]
    if terminal == "C locale":
        environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        ended = bases.run(words, folder, environment, timeout=90.0, fork=False)
    else:
        wide = {"COLUMNS": "40"} if terminal == "40 columns" else {}
        ended = bases.run(words, folder, wide, timeout=90.0, before=use_ascii if terminal == "ASCII" else None)
    outcome = {"done": "right"}.get(ended.outcome, ended.outcome)
    message = ended.message.replace(str(folder), "")
    if outcome == "refused":  # and nothing else
        after = listing(folder)
        lost = changes(before, {name: after[name] for name in before.keys() & after.keys()})
        outcome, message = ("changed", lost) if lost else (outcome, message)
        if drafts(folder):
            outcome, message = "left behind", ", ".join(drafts(folder))
    shutil.rmtree(folder, ignore_errors=True)
    what = f"{make.__name__[4:]}: {words[0]}: {what}" + (f" ({terminal})" if terminal else "")
    return {"what": what, "outcome": outcome, "message": message}
