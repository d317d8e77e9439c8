"""A graph in the shape of ogbn-papers100M on one machine: stored, patches of a sample, and a whole job at a quarter.

python benchmarks/hundred_million.py FOLDER [FRACTION]    (FRACTION of the size, 1 by default; only 1 is recorded)

The graphs are R-MAT graphs with as many nodes and drawn edges as ogbn-papers100M (111M and 1.6G), and a quarter of
both; edges are drawn and written in blocks. Each stage runs in its own process and is recorded when it ends; the same
command continues with the stages that are missing. FOLDER needs about 50 GB. The peak memory is that of the anonymous
pages, sampled ten times a second: pages of mapped files, which the system can reclaim at any time, do not count.
``disk_gb`` is the most that the folder took, sampled too, and ``other_cores`` the mean number of cores that other
processes used.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import record

from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.graph.storage import open_graph
from gpatcher.io import write_json
from gpatcher.kernels.rmat import draw_rmat
from gpatcher.patches import PPR
from gpatcher.patches.ppr import push_patches
from gpatcher.patches.store import PatchTable, write_patches
from gpatcher.tables.store import store_tables
from gpatcher.training.loop import TrainConfig

SIZES = {"full": (111_000_000, 1_600_000_000), "quarter": (27_750_000, 400_000_000)}
A, B, C = 0.5, 0.17, 0.17  # most nodes have edges, hubs some 100,000
BLOCK, MOST_DRAWS = 1 << 22, 8  # edges drawn at a time, and most draws for a block
CLASSES, FEATURES = 5, 32
EXTRACTOR = PPR(size=32, c=0.5, eps=1e-5)
CHECKED, PRECISE, MARGIN = 48, 1e-8, 8  # nodes whose recall is measured, eps of the reference, its patches are longer
GIB = 2**30


def generate(folder: Path, n: int, m: int) -> str:
    """Write the edges as Parquet files, and ids and labels of the nodes."""
    (folder / "edges").mkdir(exist_ok=True)
    y = np.arange(n) * CLASSES // n
    pq.write_table(pa.table({"id": np.arange(n), "label": y}), folder / "nodes.parquet")

    def block(start: int) -> None:
        keys = np.empty(min(BLOCK, m - start), np.int64)
        at, drawn = 0, MOST_DRAWS * start
        while at < keys.size:  # self-loops and ids of n or more are drawn again
            new = np.empty(BLOCK, np.int64)
            draw_rmat(new, np.uint64(1), drawn, n, (n - 1).bit_length(), A, A + B, A + B + C)
            new = new[new != np.iinfo(np.int64).max][: keys.size - at]
            keys[at : at + new.size] = new
            at, drawn = at + new.size, drawn + BLOCK
        table = pa.table({"source": keys >> 32, "target": keys & 0xFFFFFFFF})
        path = folder / "edges" / f"{start:012d}.parquet"
        pq.write_table(table, path, use_dictionary=False, column_encoding="DELTA_BINARY_PACKED", compression="none")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(block, range(0, m, BLOCK)))
    rng = np.random.default_rng(0)
    mean = rng.standard_normal((CLASSES, FEATURES), dtype=np.float32)
    if folder.name == "quarter":
        x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (n, FEATURES))
        for start in range(0, n, 1 << 20):
            part = y[start : start + (1 << 20)]
            x[start : start + len(part)] = rng.standard_normal((len(part), FEATURES), dtype=np.float32) + mean[part]
    return f"{len(list((folder / 'edges').iterdir())):,} Parquet files"


def store(folder: Path, n: int, m: int) -> str:
    """Store the graph, as ``gpatcher store --memory 2`` does, and remove the tables."""
    options = {"label": "label" if folder.name == "quarter" else None, "features": []}
    graph = store_tables(folder / "nodes.parquet", folder / "edges", folder / "graph", memory=2 * GIB, **options)
    shutil.rmtree(folder / "edges")
    entries, degree = graph.stored_edges, np.diff(graph.indptr)
    return f"{entries:,} entries, {np.count_nonzero(degree == 0):,} isolated nodes, largest degree {degree.max():,}"


def sample_patches(folder: Path, n: int, m: int) -> str:
    """Compute the patches of a random thousandth of the nodes."""
    graph = open_graph(folder / "graph")
    nodes = np.sort(np.random.default_rng(0).choice(graph.n, max(CHECKED, graph.n // 1000), replace=False))
    started = time.perf_counter()
    patches = push_patches(graph, EXTRACTOR, nodes)
    seconds = time.perf_counter() - started
    np.savez(folder / "sample.npz", nodes=nodes, index=patches.index)
    return f"{nodes.size:,} nodes, {nodes.size / seconds:,.0f} nodes/s"


def recall(folder: Path, n: int, m: int) -> str:
    """Compare some of the patches with those of a push that is a thousand times more precise."""
    graph = open_graph(folder / "graph")
    sample = np.load(folder / "sample.npz")
    rows = np.random.default_rng(1).choice(sample["nodes"].size, CHECKED, replace=False)
    precise = PPR(size=MARGIN * EXTRACTOR.size, c=EXTRACTOR.c, eps=PRECISE)
    exact = push_patches(graph, precise, sample["nodes"][rows])
    values = []
    for members, index, score in zip(sample["index"][rows], exact.index, exact.score, strict=True):
        count = min(EXTRACTOR.size, int((index >= 0).sum())) - 1
        if count:
            last = np.sort(score[1:])[-count] * (1 - 1e-6)  # nodes that tie with the last count too
            top = index[1:][(score[1:] >= last) & (index[1:] >= 0)]
            values.append(min(1.0, np.isin(members[1:], top).sum() / count))
    return f"mean {np.mean(values):.4f}, smallest {min(values):.3f}, {len(values)} nodes, eps {PRECISE:g}"


def all_patches(folder: Path, n: int, m: int) -> str:
    """Write the patches of all nodes; continues after an interruption."""
    started = time.perf_counter()
    write_patches(open_graph(folder / "graph"), folder / "patches", EXTRACTOR)
    return f"{n / (time.perf_counter() - started):,.0f} nodes/s"


def with_split(folder: Path) -> Graph:
    """Return the stored graph with mapped features and a split with a hundredth of the nodes for training."""
    graph = open_graph(folder / "graph").with_features(np.load(folder / "x.npy", mmap_mode="r"))
    nodes = np.random.default_rng(0).permutation(graph.n)
    train, held_out = graph.n // 100, graph.n // 1000
    return graph.with_splits([Split(nodes[:train], nodes[train : train + held_out], nodes[-held_out:])])


def train(folder: Path, n: int, m: int) -> str:
    """Train one epoch on a hundredth of the nodes, and save the model."""
    graph = with_split(folder)
    model = GPatcherClassifier(patches=EXTRACTOR, train=TrainConfig(epochs=1), memory=8 * GIB)
    model.fit(graph, 0, patch_table=PatchTable.open(folder / "patches", graph))
    shutil.rmtree(folder / "model", ignore_errors=True)
    model.save(folder / "model")
    epoch = f"{model.result_.seconds:,.0f} s for the epoch"
    return f"{graph.splits[0].train.size:,} nodes, {epoch}, test accuracy {model.result_.test_accuracy:.3f}"


def predict(folder: Path, n: int, m: int) -> str:
    """Predict a million nodes with the saved model."""
    graph = with_split(folder)
    model = GPatcherClassifier.load(folder / "model", graph, folder / "patches")
    nodes = np.sort(np.random.default_rng(2).choice(graph.n, min(1_000_000, graph.n), replace=False))
    labels = graph.labels()
    right = int((model.predict(graph, nodes).astype(int) == labels[nodes]).sum())
    return f"{nodes.size:,} nodes, accuracy {right / nodes.size:.3f}"


STAGES: dict[str, list[Callable[[Path, int, int], str]]] = {
    "full": [generate, store, sample_patches, recall],
    "quarter": [generate, store, all_patches, train, predict],
}


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; files may vanish meanwhile."""
    done = subprocess.run(["du", "-sB1", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return int(done.stdout.split()[0])


def measure(size: str, stage: str, fraction: float, folder: Path) -> None:
    """Run one stage in this process and print its row."""
    n, m = (int(count * fraction) for count in SIZES[size])
    peak = disk = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak, disk
        ticks = 0
        while not done.wait(0.1):
            peak = max(peak, record.memory_bytes("RssAnon"))
            disk = max(disk, folder_bytes(folder)) if ticks % 50 == 0 else disk
            ticks += 1

    watcher = threading.Thread(target=watch)
    machine, started = record.machine_seconds(), time.perf_counter()
    watcher.start()
    try:
        result = next(call for call in STAGES[size] if call.__name__ == stage)(folder, n, m)
    finally:
        done.set()
        watcher.join()
    seconds, own = time.perf_counter() - started, time.process_time()
    others = max(0.0, record.machine_seconds() - machine - own) / seconds
    row = {"nodes": n, "edges": m, "stage": stage.replace("_", " "), "seconds": seconds, "cpu_seconds": own}
    row |= {"peak_gb": peak / 1e9, "disk_gb": max(disk, folder_bytes(folder)) / 1e9, "other_cores": others}
    print(json.dumps(row | {"result": result}))


def main(folder: Path, fraction: float) -> None:
    for size, stages in STAGES.items():
        place = folder / size
        place.mkdir(parents=True, exist_ok=True)
        for stage in (call.__name__ for call in stages):
            finished = place / f"{stage}.json"
            if not finished.exists():
                command = [sys.executable, __file__, "measure", size, stage, str(fraction), str(place)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                write_json(finished, json.loads(done.stdout.splitlines()[-1]))
            row = json.loads(finished.read_text())
            print(json.dumps(row), flush=True)
            if fraction == 1:
                path = record.RESULTS / "hundred_million.json"
                rows = json.loads(path.read_text())["rows"] if path.exists() else []
                old = [other for other in rows if (other["nodes"], other["stage"]) != (row["nodes"], row["stage"])]
                record.write("hundred_million", [*old, row])


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(sys.argv[2], sys.argv[3], float(sys.argv[4]), Path(sys.argv[5]))
    else:
        main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
