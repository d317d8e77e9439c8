"""A run on the tables of the tutorial, and real servers of it on ports of the loopback address."""

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn

from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.tables import keep_tables
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR
from gpatcher.serve.app import make_app
from gpatcher.serve.metrics import Metrics
from gpatcher.tables.load import load_tables
from gpatcher.training.loop import TrainConfig

TABLES = Path(__file__).parents[2] / "docs" / "data"
SECONDS = 120  # that a server may take to start on a busy machine
MAIN = "from gpatcher.cli import main; main()"


@pytest.fixture(scope="session")
def small_model():
    train = TrainConfig(epochs=15)
    return partial(GPatcherClassifier, patches=PPR(size=8), model=ModelConfig(hidden=8), train=train)


@pytest.fixture(scope="session")
def save_run(small_model):
    """Train on tables, and write what `gpatcher fit` leaves for predictions; its report takes most of its time."""

    def save(folder, nodes, edges, model=None, database=None, **options):
        tables = load_tables(nodes, edges, **options).with_split(seed=0)
        source = {"nodes": "", "edges": "", "database": database, "label_type": "string", **options}
        (model or small_model()).fit(tables.graph).save(folder, source)
        keep_tables(tables, folder)
        return folder

    return save


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory, save_run):
    folder = tmp_path_factory.mktemp("market") / "run"
    return save_run(folder, TABLES / "nodes.csv", TABLES / "edges.csv", columns={"about": "text"}, name="market")


@pytest.fixture(scope="session")
def start_server():
    """Start servers, and stop those that still run in the end."""
    started = []

    def start(*arguments, **more):
        started.append(Server(*arguments, **more))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(start_server, run_folder):
    """A server without a token, at its default limits."""
    return start_server(run_folder)


@pytest.fixture(scope="session")
def token():
    return "a-token-of-the-tests-0123456789"


@pytest.fixture(scope="session")
def strict_server(start_server, run_folder, tmp_path_factory, token):
    """A server on all addresses, with a token and small limits."""
    file = tmp_path_factory.mktemp("secret") / "token"
    file.write_text(token + "\n")
    options = ("--host", "0.0.0.0", "--token-file", file, "--max-nodes", 3, "--max-body", 0.01, "--timeout", 2)
    return start_server(run_folder, *options)


class Server:
    """`gpatcher serve` in a process of its own."""

    def __init__(self, folder, *options, code=MAIN, **variables):
        command = [sys.executable, "-c", code, "serve", str(folder), "--port", "0", *map(str, options)]
        environment = {**os.environ, "COLUMNS": "400", **variables}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = queue.Queue()
        self.shown = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.address = None
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _read(self):
        for line in self.process.stdout:
            self.shown.append(line)
            self.lines.put(line)

    def _wait(self):
        ends = time.monotonic() + SECONDS
        while self.address is None:
            line = self.lines.get(timeout=max(0.1, ends - time.monotonic()))
            if "is served at " in line:
                self.address = line.split("is served at ")[1].split(";")[0].split(". ")[0]
                port = self.address.rpartition(":")[2]
                self.address = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.address, timeout=30)
        while True:
            try:
                assert self.client.get("/health").status_code == 200
                return
            except httpx.TransportError:
                assert self.process.poll() is None, self.shown
                assert time.monotonic() < ends, self.shown
                time.sleep(0.05)

    def post(self, body, **more):
        return self.client.post("/predict", json=body, **more)

    def stop(self, how=signal.SIGTERM):
        """Tell the process to stop; return its exit code."""
        if hasattr(self, "client"):
            self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait(10)
            self.reader.join(10)
            self.process.stdout.close()


class StubRun:
    """A run whose answers wait until they are let go."""

    classes = ("a", "b")
    has_numbers = True

    def __init__(self):
        self.go, self.explain_go = threading.Event(), threading.Event()
        self.explain_go.set()
        self.explained, self.asked = [], []
        self.graph = SimpleNamespace(name="stub", n=1)
        self.classifier = SimpleNamespace(kind="none")
        self.known = SimpleNamespace(ready=1.0, start=lambda: None, close=lambda: None)

    def predict_known(self, ids, conformal):
        self.go.wait(20)
        self.asked += ids
        return [{"id": one, "predicted": "a", "confidence": 0.75, "probability": {"a": 0.75, "b": 0.25}} for one in ids]

    def predict_unseen(self, nodes, edges, conformal):
        raise ZeroDivisionError

    def explain(self, name):
        self.explain_go.wait(20)
        self.explained.append(name)
        member = {"id": name, "hops": 0, "label": None, "part": "", "contribution": -0.5}
        why = {
            "id": name,
            "predicted": "a",
            "runner_up": "b",
            "classes": ["a", "b"],
            "words": ["Because."],
            "columns": [],
            "members": [member],
        }
        return why


@pytest.fixture
def stub_run():
    run = StubRun()
    yield run
    run.go.set()
    run.explain_go.set()


@pytest.fixture
def serve_in_thread(tmp_path):
    """Serve a run in a thread of this process; return a client."""
    with ExitStack() as stack:

        def start(run, limits):
            server = uvicorn.Server(
                uvicorn.Config(make_app(run, limits, None, Metrics(tmp_path)), log_level="critical")
            )
            listening = stack.enter_context(socket.socket())
            listening.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()

            def stop():
                run.go.set()
                run.explain_go.set()
                server.should_exit = True
                thread.join(30)
                assert not thread.is_alive()

            stack.callback(stop)
            ends = time.monotonic() + 30
            while not server.started:
                assert time.monotonic() < ends
                time.sleep(0.01)
            return stack.enter_context(httpx.Client(base_url=address, timeout=20))

        yield start
