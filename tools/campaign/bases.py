"""What the tries start from: small folders that the program wrote, and the answers that it gives on them."""

import hashlib
import io
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from program import Ended, Process, import_all, run

TINY = ("--model", "fast", "--set", "train.epochs=3", "--set", "model.hidden=8", "--no-compare")
TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--weight", "weight")
LONG = ("--model", "fast", "--set", "train.epochs=60", "--set", "train.patience=60", "--no-compare")
BENCH = ("bench", "csbm_sweep", "--models", "mlp", "--splits", "0")
TUNE = ("tune", "mlp/csbm:n=150", "--trials", "3", "--splits", "0")
SPECTRAL = ("fit", "csbm:n=1000", "--model", "gpatcher", "--set", "train.epochs=1", "--no-compare")


@dataclass(frozen=True)
class Reader:
    """A command that reads files again, and the files that hold its answer."""

    kind: str
    files: tuple[str, ...]  # glob patterns of what it reads, in the folder of the try
    words: tuple[str, ...]
    answers: tuple[str, ...]
    copied: tuple[str, ...]  # what a try starts from
    share: float = 1.0  # of the tries, less where one takes long


MODEL = ("out/model.safetensors", "out/predictions.parquet")
READERS = (
    Reader("stored graph", ("graph/*",), ("fit", "graph", *TINY, "--out", "out"), MODEL, ("graph",), 5),
    Reader(
        "patch table",
        ("patches/*",),
        ("fit", "graph", "--patches", "patches", *TINY[:-3], "--no-compare", "--out", "out"),
        MODEL,
        ("graph", "patches"),
        3,
    ),
    Reader(
        "unfinished patch table",
        ("partial/*",),
        ("patches", "graph", "--out", "partial", "--size", "8", "--shard", "20"),
        ("partial/manifest.json", "partial/*.npy"),
        ("graph", "partial"),
        3,
    ),
    Reader(
        "saved run",
        ("fast/*.json", "fast/model.safetensors", "fast/graph/*"),
        ("predict", "fast", "--out", "p.parquet"),
        ("p.parquet",),
        ("fast",),
        6,
    ),
    Reader(
        "saved run, unseen nodes",
        ("fast/encoder.json", "fast/model.*", "fast/graph/*"),
        ("predict", "fast", "--nodes", "new_nodes.csv", "--edges", "new_edges.csv", "--out", "p.parquet"),
        ("p.parquet",),
        ("fast", "new_nodes.csv", "new_edges.csv"),
        3,
    ),
    Reader(
        "ensemble",
        ("auto/*.json", "auto/model.safetensors", "auto/members/*/*", "auto/members/*/*/*"),
        ("predict", "auto", "--out", "p.parquet"),
        ("p.parquet",),
        ("auto",),
        6,
    ),
    Reader("evaluation", ("fast/evaluation.json",), ("report", "fast"), ("fast/report.html",), ("fast",), 1),
    Reader(
        "checkpoint",
        ("half/checkpoint*.safetensors", "half/run.json"),
        ("fit", *TABLES, *LONG, "--out", "half", "--resume"),
        ("half/model.safetensors", "half/predictions.parquet"),
        ("half", "nodes.csv", "edges.csv"),
        2,
    ),
    Reader("eigenvector cache", ("cache/spectra/*",), (*SPECTRAL, "--out", "out"), MODEL[:1], ("cache",), 0.4),
    Reader("predictions", ("fast/predictions.parquet",), ("compare", "fast", "other", "--json"), (), ("fast", "other")),
    Reader(
        "records", ("bench/records.jsonl",), ("report", "bench", "--csv", "cells.csv"), ("cells.csv",), ("bench",), 2
    ),
    Reader("tuning log", ("tune/trials.jsonl",), (*TUNE, "--out", "tune"), ("tune/best.json",), ("tune",), 1),
)


class Bases:
    """The folder of bases, made on first use, and the answers by reader."""

    def __init__(self, scratch: Path, kinds: Sequence[str] | None = None) -> None:
        self.scratch = scratch
        self.readers = [reader for reader in READERS if kinds is None or reader.kind in kinds]
        self.base = scratch / "base"
        self.room = scratch / "room" / "inner"  # of the tries, so that '../..' is in the scratch folder too
        self.environment = {
            "GPATCHER_CACHE": "cache",
            "GPATCHER_DATA": "data",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.right: dict[str, dict[str, bytes]] = {}
        self.cpu: dict[str, float] = {}  # seconds of the processor, by command
        os.environ.update(self.environment)
        if kinds is None:  # otherwise what the few need is imported on the way
            import_all()
        for folder in (self.base, self.room, scratch / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(scratch / "logs")
        make_outside(self.room / "outside")
        write_tables(self.base)

    def run(self, words: Sequence[str], folder: Path, environment: dict[str, str] | None = None, **more: Any) -> Ended:
        """Run a command in the folder of a try."""
        return run(words, folder, {**self.environment, **(environment or {})}, **more)

    def start(self, words: Sequence[str], folder: Path, **more: Any) -> Process:
        """Start a command in the folder of a try."""
        return Process(words, folder, self.environment, **more)

    def elsewhere(self, before: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return what changed outside the folder of a try since a listing, and the listing now; new bases are ours."""
        now = listing(self.scratch, self.scratch / "logs", self.scratch / "disk")
        known = {name: content for name, content in now.items() if name in before or not name.startswith("base")}
        return changes(before, known), now

    def need(self, *names: str) -> None:
        """Make bases that are not there yet."""
        for name in names:
            path = self.base / name
            if name == "cache":
                self._make(*SPECTRAL, "--out", "spectral", once=path)
            elif name == "graph":
                self._make("store", *TABLES, "--out", name, once=path)
            elif name == "patches":
                self.need("graph")
                self._make("patches", "graph", "--out", name, "--size", "8", "--shard", "20", once=path)
            elif name == "partial" and not path.exists():
                self.need("patches")
                self._make_partial(path)
            elif name == "fast":
                self._make("fit", *TABLES, *TINY, "--out", name, once=path)
            elif name == "other":
                self._make("fit", *TABLES, *TINY, "--seed", "1", "--out", name, once=path)
            elif name == "auto":
                quick = ("--quality", "quick", "--no-compare", "--jobs", "1")
                self._make("fit", *TABLES, *quick, "--out", name, once=path)
            elif name == "half" and not path.exists():
                self._make_half(path)
            elif name == "bench":
                self._make(*BENCH, "--out", name, once=path)
            elif name == "tune":
                self._make(*TUNE, "--out", name, once=path)

    def answers(self, reader: Reader) -> dict[str, bytes]:
        """Return the answer of a reader on undamaged files."""
        if reader.kind not in self.right:
            self.need(*reader.copied)
            folder = self.fresh(reader.copied)
            said = self.call(*reader.words, folder=folder)
            self.right[reader.kind] = read_answers(folder, reader.answers, said if "--json" in reader.words else "")
            if len(self.right[reader.kind]) < len(reader.answers):
                raise SystemExit(f"{' '.join(reader.words)} does not write {', '.join(reader.answers)}")
            shutil.rmtree(folder)
        return self.right[reader.kind]

    def fresh(self, names: Sequence[str] = ()) -> Path:
        """Return a new folder with copies of bases."""
        self.need(*names)
        folder = self.room / f"try-{os.urandom(4).hex()}"
        folder.mkdir()
        for name in names:
            source = self.base / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("report.html"))
            else:
                shutil.copy(source, folder / name)
        return folder

    def _make(self, *words: str, once: Path) -> None:
        if not once.exists():
            self.call(*words, folder=self.base)

    def call(self, *words: str, folder: Path) -> str:
        """Call the program in this process, which must succeed: what it compiles, the forks do not compile again.

        Returns what it printed.
        """
        from gpatcher import cli

        before, argv = Path.cwd(), sys.argv
        os.chdir(folder)
        sys.argv = ["gpatcher", *words]
        said = io.StringIO()
        try:
            with redirect_stdout(said), redirect_stderr(said):
                cli.main()
        except SystemExit as end:
            if end.code:
                raise SystemExit(f"gpatcher {' '.join(words)} ended with {end.code}: {said.getvalue()}") from None
        finally:
            sys.argv = argv
            os.chdir(before)
        return said.getvalue()

    def _make_partial(self, path: Path) -> None:
        """Make the patch table that a killed process leaves: some shards, and a manifest that says so."""
        from gpatcher.io import write_json

        shutil.copytree(self.base / "patches", path)
        for shard in sorted(path.glob("*.npy"))[2:4]:
            shard.unlink()
        manifest = json.loads((path / "manifest.json").read_text())
        write_json(path / "manifest.json", {**manifest, "complete": False, "files": {}})

    def _make_half(self, path: Path) -> None:
        """Make a run that was killed after its first checkpoint."""
        process = self.start(("fit", *TABLES, *LONG, "--out", "half"), self.base)
        while process.poll() is None and not list(path.glob("checkpoint*")):
            time.sleep(0.002)
        process.signal(signal.SIGKILL)
        process.wait()
        if not list(path.glob("checkpoint*")):
            raise SystemExit("the run ended before it could be killed")


def make_outside(folder: Path) -> None:
    """Make what a command may be pointed at, but must never replace: a pipe, and a device where that is allowed."""
    if folder.exists():
        return
    folder.mkdir()
    (folder / "file").write_text("precious")
    os.mkfifo(folder / "pipe")
    with suppress(OSError):
        os.mknod(folder / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # of this folder alone: like /dev/null


def listing(folder: Path, *excluded: Path) -> dict[str, str]:
    """Return what is below a folder: of files a hash of the content, of others their type."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if any(path == one or one in path.parents for one in excluded):
            continue
        kind = path.lstat().st_mode
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(kind) else os.fsencode(path).hex()
        found[str(path.relative_to(folder))] = f"{stat.S_IFMT(kind):o} {content}"
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> str:
    """Say what differs between two listings."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(ascii(name) for name in names[:4])


def read_answers(folder: Path, patterns: Sequence[str], said: str = "") -> dict[str, bytes]:
    """Return the files of an answer by name, and what was said; a file that is missing is not in it."""
    return ({"said": said.encode()} if said else {}) | {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
    }


def write_tables(folder: Path, n: int = 90) -> None:
    """Write small tables of nodes and edges, and unseen ones."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    towns = ("Oslo", "Rome", "Bonn")

    def node(i: int, name: str, label: str) -> str:
        return f"{name},{label},{rng.normal(y[i]):.3f},{towns[rng.integers(3)]},word{rng.integers(9)} topic{y[i]}"

    rows = [node(i, f"n{i:03d}", "abc"[y[i]] if rng.random() < 0.8 else "") for i in range(n)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,age,town,note", *rows]) + "\n")
    pairs = set()
    while len(pairs) < 3 * n:
        a = int(rng.integers(n))
        b = int(rng.choice(np.flatnonzero(y == y[a])) if rng.random() < 0.7 else rng.integers(n))
        if a != b and (b, a) not in pairs:
            pairs.add((a, b))
    lines = [f"n{a:03d},n{b:03d},{rng.random() + 0.1:.3f}" for a, b in sorted(pairs)]
    (folder / "edges.csv").write_text("\n".join(["source,target,weight", *lines]) + "\n")
    unseen = [node(i, f"u{i}", "") for i in range(5)]
    (folder / "new_nodes.csv").write_text("\n".join(["id,label,age,town,note", *unseen]) + "\n")
    lines = [f"u{i},n{int(rng.integers(n)):03d},1.0" for i in range(5) for _ in range(3)]
    (folder / "new_edges.csv").write_text("\n".join(["source,target,weight", *dict.fromkeys(lines)]) + "\n")
