"""The service: time of a request and requests per second, for nodes of the graph and for unseen nodes.

python benchmarks/serve.py [nodes [requests]]         (by default 100,000 nodes and 300 requests of each kind)
python benchmarks/serve.py load [nodes [minutes]]     (by default 1,000,000 nodes and 10 minutes at 80 % of capacity)
"""

import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import record

from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.tables import keep_tables
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR
from gpatcher.tables.load import load_tables
from gpatcher.training.loop import TrainConfig

EDGES = 10  # of an unseen node
CLIENTS = 4  # at the same time
CONNECTIONS = 16  # of the load test
SHARE = 0.8  # of the capacity


def save_run(folder: Path, n: int) -> None:
    """Train a small model on tables of n nodes with text ids, numbers, a category and a date."""
    rng = np.random.default_rng(0)
    ids = np.array([f"account-{v:08}" for v in rng.permutation(n)], object)
    y = rng.integers(0, 3, n)
    columns = {f"amount{j}": y + rng.normal(size=n) for j in range(6)}
    columns["country"] = np.array(["FR", "DE", "IT", "ES"])[rng.integers(0, 4, n)]
    columns["joined"] = np.array([f"202{d}-03-15" for d in range(5)])[rng.integers(0, 5, n)]
    nodes = pa.table({"id": ids, "label": np.array(["buyer", "seller", "agent"])[y], **columns})
    ends = rng.integers(0, n, (2, 5 * n))
    edges = pa.table({"source": ids[ends[0]], "target": ids[ends[1]]})
    tables = load_tables(nodes, edges, name="accounts").with_split(seed=0)
    train = TrainConfig(epochs=1, batch_size=20_000)
    model = GPatcherClassifier(patches=PPR(), model=ModelConfig(), train=train).fit(tables.graph)
    model.save(folder, {"nodes": "", "edges": "", "name": None})
    keep_tables(tables, folder)


def bodies(n: int, count: int, requests: int) -> dict[str, list[bytes]]:
    """Return the requests: one or several nodes each, known and unseen."""
    rng = np.random.default_rng(1)

    def name() -> str:
        return f"account-{rng.integers(n):08}"

    def node(number: int) -> dict[str, object]:
        amounts = {f"amount{j}": float(rng.normal()) for j in range(6)}
        return {"id": f"new-{number}", **amounts, "country": "FR", "joined": "2024-03-15"}

    def unseen(nodes: int) -> dict[str, object]:
        edges = [{"source": f"new-{i}", "target": name()} for i in range(nodes) for _ in range(EDGES)]
        return {"nodes": [node(i) for i in range(nodes)], "edges": edges}

    made = {
        "one known node": [{"ids": [name()]} for _ in range(requests)],
        f"{count} known nodes": [{"ids": [name() for _ in range(count)]} for _ in range(requests)],
        "one unseen node": [unseen(1) for _ in range(requests)],
        f"{count} unseen nodes": [unseen(count) for _ in range(requests)],
    }
    return {what: [json.dumps(body).encode() for body in group] for what, group in made.items()}


def ask(port: int, group: list[bytes]) -> list[float]:
    """Send requests one after the other on one connection; return the seconds of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    seconds = []
    for body in group:
        started = time.perf_counter()
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        seconds.append(time.perf_counter() - started)
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {content.decode()}")
    connection.close()
    return seconds


def read(port: int, path: str) -> bytes:
    """Return what the service answers to GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    content = connection.getresponse().read()
    connection.close()
    return content


def measure(port: int, what: str, group: list[bytes], bound: str) -> dict[str, object]:
    ask(port, group[:5])
    seconds = np.array(ask(port, group)) * 1000
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda part: ask(port, part), [group[i::CLIENTS] for i in range(CLIENTS)]))
    rate = len(group) / (time.perf_counter() - started)
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"what": what, "p50 ms": float(p50), "p99 ms": float(p99), "requests/s": rate, "bound": bound}


@contextmanager
def service(n: int) -> Iterator[tuple[int, int, float, float]]:
    """Start the service on a run of n nodes; yield its port, its process id and the seconds until it answers.

    The last of the four are the seconds until all nodes of the graph are predicted, which is when requests are timed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        save_run(folder, n)
        command = [*record.COMMAND, "serve", str(folder), "--port", "0"]
        environment = {**os.environ, "COLUMNS": "400"}
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                port = int(line.partition("http://127.0.0.1:")[2].partition(".")[0])
                while True:
                    try:
                        http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()
                        break
                    except ConnectionRefusedError:
                        time.sleep(0.02)
                start = time.perf_counter() - started
                while b"gpatcher_ready_ratio 1\n" not in read(port, "/metrics"):
                    time.sleep(0.2)
                yield port, process.pid, start, time.perf_counter() - started
            finally:
                process.terminate()
                process.wait(60)


def main(n: int, requests: int) -> None:
    with service(n) as (port, _, start, ready):
        bounds = {"one unseen node": "p50 below 20 ms"}
        groups = bodies(n, 100, requests)
        rows = [measure(port, what, group, bounds.get(what, "")) for what, group in groups.items()]
    for what, seconds in (("start", start), ("all nodes predicted", ready)):
        rows.append({"what": f"{what}, {n:,} nodes", "p50 ms": 1000 * seconds})
    rows = [{**dict.fromkeys(rows[0], ""), **row} for row in rows]
    record.write("serve", rows)


class Load:
    """Sends requests at a fixed rate, whether or not earlier ones were answered, and keeps what came of them."""

    def __init__(self, port: int, groups: dict[str, list[bytes]], rate: float, seconds: float) -> None:
        self.port, self.groups, self.rate = port, groups, rate
        self.total = int(rate * seconds)
        self.numbers, self.lock = itertools.count(), threading.Lock()
        self.latency: dict[str, list[float]] = {what: [] for what in groups}
        self.errors: list[str] = []
        self.started = time.perf_counter()

    def send(self) -> None:
        """Send the next request when its time has come, until all are sent; latency counts from that time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        kinds = list(self.groups)
        while True:
            with self.lock:
                number = next(self.numbers)
            if number >= self.total:
                return
            due = self.started + number / self.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            what = kinds[number % len(kinds)]
            group = self.groups[what]
            try:
                body = group[number // len(kinds) % len(group)]
                connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != 200:
                    self.errors.append(f"{answer.status}: {content[:200].decode()}")
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(repr(error))
                connection.close()
            self.latency[what].append(time.perf_counter() - due)


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def load(n: int, minutes: float) -> None:
    """Measure the capacity for known and unseen nodes in turn, then send at 80 % of it."""
    with service(n) as (port, pid, start, ready):
        groups = {what: group for what, group in bodies(n, 1, 300).items() if what.startswith("one")}
        mixed = [body for pair in zip(*groups.values(), strict=True) for body in pair]
        ask(port, mixed[:50])
        began = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda part: ask(port, part), [mixed[i::CLIENTS] for i in range(CLIENTS)]))
        capacity = len(mixed) / (time.perf_counter() - began)
        print(f"start {start:.1f} s, all predicted {ready:.1f} s, capacity {capacity:.0f} requests/s", flush=True)
        run = Load(port, groups, SHARE * capacity, 60 * minutes)
        threads = [threading.Thread(target=run.send) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        memory = []
        while any(thread.is_alive() for thread in threads):
            memory.append(resident(pid))
            time.sleep(min(5.0, 6 * minutes))
        seconds = time.perf_counter() - run.started
    rows: list[dict[str, object]] = []
    for what, latency in run.latency.items():
        p50, p99 = (1000 * float(v) for v in np.percentile(latency, [50, 99]))
        rows.append({"what": f"{what}, {n:,} nodes", "requests": len(latency), "p50 ms": p50, "p99 ms": p99})
    late = len(memory) // 10
    all_ = {"what": f"{seconds / 60:.1f} minutes", "requests": run.total, "p50 ms": "", "p99 ms": ""}
    rows = [row | {"requests/s": row["requests"] / seconds} for row in [*rows, all_]]
    rows[-1] |= {"capacity/s": capacity, "errors": len(run.errors), "start MiB": memory[late], "end MiB": memory[-1]}
    rows[-1]["bound"] = "0 errors; memory within 5 %"
    record.write("serve_load", [{**dict.fromkeys(rows[-1], ""), **row} for row in rows])
    for error in run.errors[:5]:
        print(error)


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        sizes = [float(a) for a in sys.argv[2:]]
        nodes, minutes = sizes + [1_000_000, 10][len(sizes) :]
        load(int(nodes), minutes)
    else:
        given = [int(a) for a in sys.argv[1:]]
        main(*(given + [100_000, 300][len(given) :]))
