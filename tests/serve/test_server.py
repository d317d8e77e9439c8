"""The service as a network sees it: who is let in, what is refused, how it stops."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from gpatcher.errors import InputError
from gpatcher.serve.guard import Limits, check_token, is_loopback
from gpatcher.serve.server import Settings, import_uvicorn, serve

# ------------------------------------------------------------------------------------------ who is let in


def test_addresses_beyond_this_machine_need_a_token(run_folder, command_in, tmp_path):
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        assert not is_loopback(host)
        shown = command_in(tmp_path, "serve", run_folder, "--host", host, code=2, GPATCHER_TOKEN="").stderr
        assert host in shown
        assert "--token-file" in shown
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        assert is_loopback(host)
        assert check_token(None, host) is None


def test_a_weak_token_is_refused(run_folder, command_in, tmp_path):
    for token in ("short", "with a space in the middle", "ü" * 20):
        (tmp_path / "token").write_text(token)
        shown = command_in(tmp_path, "serve", run_folder, "--token-file", "token", code=2).stderr
        assert "at least 16" in shown
        assert token not in shown
    shown = command_in(tmp_path, "serve", run_folder, code=2, GPATCHER_TOKEN="tiny").stderr
    assert "at least 16" in shown
    assert "absent" in command_in(tmp_path, "serve", run_folder, "--token-file", "absent", code=2).stderr


def test_the_token_is_kept_as_a_digest():
    digest = check_token("0123456789abcdef", "0.0.0.0")
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert digest != check_token("0123456789abcdeg", "0.0.0.0")


def test_only_the_token_opens(strict_server, token):
    assert "requests need the token" in "".join(strict_server.shown)
    assert "Nothing is encrypted" in "".join(strict_server.shown)
    ask = strict_server.client
    body = {"ids": ["p000"]}
    wrong = [{}, {"authorization": token}, {"authorization": "Bearer"}, {"authorization": f"Basic {token}"}]
    wrong += [{"authorization": f"Bearer {token[:-1]}"}, {"authorization": f"Bearer {token}x"}]
    for headers in wrong:
        for answer in (
            ask.post("/predict", json=body, headers=headers),
            ask.get("/explain/p000", headers=headers),
            ask.get("/metrics", headers=headers),
            ask.get("/nothing", headers=headers),
        ):
            assert answer.status_code == 401, headers
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer" in answer.json()["detail"]
            assert token not in answer.text
    right = {"authorization": f"Bearer {token}"}
    assert ask.post("/predict", json=body, headers=right).status_code == 200
    assert ask.get("/explain/p000", headers=right).status_code == 200
    assert ask.get("/metrics", headers=right).status_code == 200


def test_without_a_token_the_pages_tell_nothing_about_the_run(strict_server):
    for path in ("/", "/docs", "/openapi.json", "/health"):
        answer = strict_server.client.get(path)
        assert answer.status_code == 200, path
        assert "market" not in answer.text
        assert "seller" not in answer.text


def test_another_host_is_refused_where_there_is_no_token(server, strict_server):
    """A page elsewhere can point its own name at 127.0.0.1; its requests then carry that name."""
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        answer = server.client.get("/health", headers={"host": host})
        assert answer.status_code == 421, host
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:8000", "[::1]"):
        assert server.client.get("/health", headers={"host": host}).status_code == 200, host
    assert strict_server.client.get("/health", headers={"host": "models.example"}).status_code == 200


# ------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "must be a JSON object"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "either ids, or nodes"),
        (b'{"ids": []}', "no node to predict"),
        (b'{"ids": "p000"}', "ids"),
        (b'{"ids": [null]}', "ids.0"),
        (b'{"ids": [true]}', "ids.0"),
        (b'{"idz": ["p000"]}', "'idz' is no field of the body; its fields are ids, nodes"),
        (b'{"ids": ["p000"], "nodes": [], "edges": []}', "either ids, or nodes"),
        (b'{"nodes": [{"id": "n"}]}', "unseen nodes need both"),
        (b'{"nodes": [3], "edges": []}', "nodes.0"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b'{"ids": [' + b"9" * 10_000 + b"]}", "JSON"),
    ],
)
def test_a_body_that_is_no_request(server, content, words):
    answer = server.client.post("/predict", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert list(answer.json()) == ["detail"]
    assert words in answer.json()["detail"]


def test_unknown_nodes_paths_and_methods(server):
    answer = server.post({"ids": ["p000", "nobody"]})
    assert answer.status_code == 404
    assert "'nobody'" in answer.json()["detail"]
    for path in ("/explain/nobody", "/explain/", "/explain/a/b%2Fc", "/nothing"):
        answer = server.client.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["detail"]
    assert server.client.get("/predict").status_code == 405
    assert server.client.post("/predict", content='{"ids": ["p000"]}').status_code == 422  # not sent as JSON


def test_limits_of_nodes_and_bytes(strict_server, token):
    headers = {"authorization": f"Bearer {token}"}
    assert strict_server.post({"ids": ["p000"] * 3}, headers=headers).status_code == 200
    answer = strict_server.post({"ids": ["p000"] * 4}, headers=headers)
    assert answer.status_code == 413
    assert re.search(r"4 nodes.*at most 3", answer.json()["detail"])
    for size in (10_400, 12_000, 100_000):
        content = json.dumps({"ids": ["p000"]}).ljust(size)
        answer = strict_server.client.post("/predict", content=content, headers=headers)
        assert answer.status_code == (413 if size > 0.01 * 2**20 else 422), size
    assert "10,485 bytes" in answer.json()["detail"]

    def chunks():
        for _ in range(20):
            yield b" " * 1000

    assert strict_server.client.post("/predict", content=chunks(), headers=headers).status_code == 413


def test_a_body_that_does_not_arrive(strict_server, token):
    port = int(strict_server.address.rpartition(":")[2])
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 50\r\n\r\n{{"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(4096).decode()
    assert answer.startswith("HTTP/1.1 408")
    assert strict_server.client.get("/health").status_code == 200


@pytest.fixture
def slow(serve_in_thread, stub_run):
    """A server with half a second for a request and room for two, whose predictions wait until they are let go."""
    return stub_run, serve_in_thread(stub_run, Limits(seconds=0.5, waiting=2))


def test_a_request_that_takes_too_long(slow):
    run, client = slow
    answer = client.post("/predict", json={"ids": ["a"]})
    assert answer.status_code == 503
    assert "0.5 seconds" in answer.json()["detail"]
    assert client.get("/health").status_code == 200  # answered while the thread is busy
    run.go.set()
    assert client.post("/predict", json={"ids": ["a"]}).json()["nodes"][0]["id"] == "a"


def test_an_explanation_that_takes_long_holds_up_nobody_and_is_kept(slow):
    run, client = slow
    run.go.set()
    run.explain_go.clear()
    answer = client.get("/explain/a")
    assert answer.status_code == 503
    assert "ask again later" in answer.json()["detail"]
    assert client.post("/predict", json={"ids": ["a"]}).status_code == 200
    run.explain_go.set()
    assert client.get("/explain/a").json()["id"] == "a"
    assert client.get("/explain/b").json()["id"] == "b"
    assert client.get("/explain/a").status_code == 200
    assert run.explained == ["a", "b"]  # each was made once


def test_requests_beyond_the_queue_are_refused_at_once(slow):
    _, client = slow
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.post("/predict", json={"ids": ["a"]}))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    details = [answer.json()["detail"] for answer in answers]
    assert [answer.status_code for answer in answers] == [503] * 5
    assert sum("wait already" in detail for detail in details) == 3
    assert sum("no answer within" in detail for detail in details) == 2


def test_a_failure_is_no_traceback(slow):
    _, client = slow
    answer = client.post("/predict", json={"nodes": [{"id": 1}], "edges": []})
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["detail"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("limits", [{"body": 0}, {"nodes": 0}, {"seconds": 0}, {"seconds": float("nan")}])
def test_limits_are_positive(limits):
    with pytest.raises(InputError):
        Limits(**limits)


# ------------------------------------------------------------------------------------------ what it tells


def test_metrics(server):
    def values():
        text = server.client.get("/metrics")
        assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in text.text.splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r"gpatcher_\w+(\{[^}]*\})? [0-9.e+-]+", line) for line in lines)
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    before = values()
    assert before["gpatcher_ready_ratio"] == 1
    server.post({"ids": ["p000", "p001"]})
    server.client.get("/explain/nobody")
    after = values()

    def more(name):
        return after[name] - before.get(name, 0)

    assert more('gpatcher_requests_total{path="predict",status="200"}') == 1
    assert more('gpatcher_requests_total{path="explain",status="404"}') == 1
    assert more('gpatcher_requests_total{path="metrics",status="200"}') == 1
    assert more('gpatcher_nodes_total{kind="known"}') == 2
    assert more('gpatcher_request_seconds_count{path="predict"}') == 1
    assert more('gpatcher_request_seconds_bucket{path="predict",le="+Inf"}') == 1
    assert more('gpatcher_request_seconds_sum{path="predict"}') > 0
    assert any(name.startswith('gpatcher_run_info{run="market"') for name in after)


def test_health_and_headers(server):
    answer = server.client.get("/health")
    assert answer.json()["status"] == "ok"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


def test_the_description_names_all_paths(server):
    schema = server.client.get("/openapi.json").json()
    assert sorted(schema["paths"]) == ["/explain/{id}", "/health", "/metrics", "/predict"]
    page = server.client.get("/docs").text
    for path in schema["paths"]:
        assert path in page
    assert "conformal" in page
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page)
    example = schema["components"]["schemas"]["PredictRequest"]["examples"][0]
    assert server.post(example).status_code == 200


# ------------------------------------------------------------------------------------------ start and stop

SLOW_EXPLAIN = """
import time
from gpatcher.serve.run import ServedRun
explain = ServedRun.explain
def slowly(self, name):
    print("explaining", flush=True)
    time.sleep(1.5)
    return explain(self, name)
ServedRun.explain = slowly
from gpatcher.cli import main
main()
"""


def test_a_stop_waits_for_requests_in_hand(start_server, run_folder, tmp_path):
    server = start_server(run_folder, code=SLOW_EXPLAIN, TMPDIR=str(tmp_path))
    assert next(path.name for path in tmp_path.iterdir()).startswith("gpatcher-serve-")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(httpx.get(f"{server.address}/explain/p007", timeout=20)))
    asking.start()
    while "explaining" not in server.lines.get(timeout=20):
        pass
    server.process.send_signal(signal.SIGTERM)
    asking.join(30)
    assert answers[0].status_code == 200
    assert answers[0].json()["id"] == "p007"
    assert server.process.wait(30) == 0  # stop() would signal again
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.address}/health", timeout=5)
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in "".join(server.shown)


# loaded by every Python process, the workers too
HANGING_EXPLAIN = """
import time
from gpatcher.serve.run import ServedRun
ServedRun.explain = lambda self, name: time.sleep(600)
"""


@pytest.mark.parametrize(("workers", "how"), [(1, signal.SIGINT), (2, signal.SIGTERM)], ids=["ctrl-c", "workers"])
def test_a_stop_does_not_wait_for_what_nobody_waits_for(start_server, run_folder, tmp_path, workers, how):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sitecustomize.py").write_text(HANGING_EXPLAIN)
    (tmp_path / "scratch").mkdir()
    path = os.pathsep.join([str(tmp_path / "code"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    options = ("--timeout", 1, "--workers", workers)
    server = start_server(run_folder, *options, PYTHONPATH=path, TMPDIR=str(tmp_path / "scratch"))
    assert server.client.get("/explain/p007").status_code == 503
    started = time.monotonic()
    assert server.stop(how) == 0
    assert time.monotonic() - started < 15
    assert list((tmp_path / "scratch").iterdir()) == []
    assert "Traceback" not in "".join(server.shown)


def test_workers_share_a_run(start_server, run_folder, server, tmp_path):
    several = start_server(run_folder, "--workers", 2, TMPDIR=str(tmp_path))
    [scratch] = tmp_path.glob("gpatcher-serve-*")
    ends = time.monotonic() + 120
    while len(list(scratch.glob("metrics-*.npy"))) < 2:  # both are loaded
        assert time.monotonic() < ends, several.shown
        time.sleep(0.1)
    body = {"ids": ["p000", "p001"]}
    expected = server.post(body).json()
    for _ in range(20):
        with httpx.Client(base_url=several.address, timeout=30) as client:  # a connection each, so that both answer
            assert client.post("/predict", json=body).json() == expected
    # one count, whichever worker is asked
    for _ in range(5):
        text = httpx.get(f"{several.address}/metrics", timeout=30).text
        assert 'gpatcher_requests_total{path="predict",status="200"} 20' in text.splitlines()
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(several.process.pid)], capture_output=True, text=True, check=True
    )
    assert several.stop() == 0
    assert len(children.stdout.split()) >= 2
    ends = time.monotonic() + 20
    while any(Path("/proc", child).exists() for child in children.stdout.split()):
        assert time.monotonic() < ends, "workers outlive the service"
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use(run_folder, command_in, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        shown = command_in(tmp_path, "serve", run_folder, "--port", port, code=2).stderr
    assert f"127.0.0.1:{port} cannot be used" in shown
    assert "--port" in shown
    assert "65536" in command_in(tmp_path, "serve", run_folder, "--port", 65536, code=2).stderr


def test_mistakes_of_the_command(run_folder, command_in, tmp_path):
    assert "no saved model" in command_in(tmp_path, "serve", tmp_path, code=2).stderr
    for options in (("--workers", 0), ("--max-nodes", 0), ("--max-body", "nan"), ("--timeout", -1)):
        assert str(options[1]) in command_in(tmp_path, "serve", run_folder, *options, code=2).stderr


def test_the_extra_is_named_where_it_is_missing(monkeypatch, run_folder):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(InputError, match=r"fastapi: pip install 'gpatcher\[serve\]'"):
        import_uvicorn()
    with pytest.raises(InputError, match=r"gpatcher\[serve\]"):
        serve(Settings(str(run_folder)), print)


def test_the_help_loads_nothing_heavy():
    heavy = ("fastapi", "uvicorn", "torch")
    code = f"import sys; from gpatcher.cli import app; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
