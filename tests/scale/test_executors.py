"""Engines: equal results on threads and in processes, errors, what is imported."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from gpatcher.errors import InputError
from gpatcher.scale.executors import ENGINES, LocalEngine, ProcessEngine, RayEngine, make_engine


def square(item, add=0):
    return item * item + add


# ------------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize("threads", [1, 3, None])
def test_map_yields_every_item_once(threads):
    results = list(LocalEngine(threads).map(square, range(50), shared=(5,)))
    assert sorted(results) == [(i, i * i + 5) for i in range(50)]


def test_results_come_in_the_order_of_completion():
    first_may_end = threading.Event()

    def work(item):
        if item == 0:
            assert first_may_end.wait(20)
        return item

    order = []
    for item, _ in LocalEngine(2).map(work, range(4)):
        order.append(item)
        if item == 2:
            first_may_end.set()
    assert order[0] != 0
    assert sorted(order) == [0, 1, 2, 3]


def test_items_are_consumed_lazily():
    taken = []

    def items():
        for i in range(1000):
            taken.append(i)
            yield i

    results = LocalEngine(2).map(square, items())
    next(results)
    assert len(taken) <= 8
    results.close()
    assert len(taken) <= 8


def test_map_of_no_items():
    assert list(LocalEngine(2).map(square, [])) == []


def test_an_error_is_raised_and_cancels_the_rest():
    done = []

    def work(item):
        if item == 3:
            raise InputError("3 is refused")
        done.append(item)

    with pytest.raises(InputError, match="3 is refused"):
        list(LocalEngine(1).map(work, range(1000)))
    assert len(done) < 20


# ------------------------------------------------------------------------------------------ processes


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_yield_every_item_once(processes):
    assert sorted(ProcessEngine(processes).map(pow, range(8), shared=(2,))) == [(i, i * i) for i in range(8)]


def which_process(_):
    return os.getpid()


def test_processes_are_kept_for_several_maps():
    with ProcessEngine(2) as engine:
        runs = [{process for _, process in engine.map(which_process, range(6))} for _ in range(3)]
    assert len(set.union(*runs)) <= 2
    assert os.getpid() not in set.union(*runs)
    # afterwards they end with each call
    again = {process for _, process in engine.map(which_process, range(2))}
    assert not again & set.union(*runs)


def test_an_error_ends_the_processes_that_are_kept():
    with pytest.raises(TypeError), ProcessEngine(2) as engine:
        list(engine.map(pow, ["x"], shared=(2,)))
    assert sorted(engine.map(pow, [2, 3], shared=(2,))) == [(2, 4), (3, 9)]


def test_killed_process_is_reported():
    with pytest.raises(InputError, match=r"killed.*--jobs"):
        list(ProcessEngine(2).map(os._exit, [1]))


@pytest.mark.parametrize(
    "script",
    [
        # without a guard: a process that imported the script would start processes in turn
        "print(sorted(ProcessEngine(2).map(pow, [3, 4], shared=(2,))), __file__)",
        # a function of the script itself, which the processes must import
        "def square(i):\n    return i * i\n"
        "if __name__ == '__main__':\n    print(sorted(ProcessEngine(2).map(square, [3, 4])), __file__)",
    ],
    ids=["without a guard", "own function"],
)
def test_processes_of_a_script(script, tmp_path):
    file = tmp_path / "script.py"
    file.write_text(f"from gpatcher.scale.executors import ProcessEngine\n{script}\n")
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=120)
    assert (run.stdout, run.stderr) == (f"[(3, 9), (4, 16)] {file}\n", "")


# ------------------------------------------------------------------------------------------ make_engine


def test_make_engine():
    assert make_engine("local", threads=3).threads == 3
    assert all(make_engine(name) for name in ENGINES)
    assert isinstance(make_engine("ray", address="auto"), RayEngine)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "spark"}, "'spark'.*local, ray"),
        ({"name": "local", "address": "head:6379"}, r"'head:6379'.*--engine ray"),
        ({"name": "ray", "threads": 2}, "threads=2 is for the local engine"),
        ({"name": "local", "threads": 0}, "at least 1, got 0"),
    ],
)
def test_make_engine_errors(arguments, message):
    with pytest.raises(InputError, match=message):
        make_engine(**arguments)


def test_missing_ray_names_the_command_to_install_it(command_in, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    error = command_in(tmp_path, "patches", "texas", "--engine", "ray", code=2).stderr
    assert error.startswith("error: ")
    assert "pip install 'gpatcher[ray]'" in error


def test_unreachable_address_is_named():
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    for address in (free, "127.0.0.1:99999"):
        with pytest.raises(InputError, match=f"no Ray cluster answers at '{address}'.*ray start --head"):
            list(RayEngine(address).map(square, [1]))
