"""`gpatcher verify`, and options and tables with extreme or hostile values: one line and exit code 2, no traceback."""

import os
import stat
import subprocess
import sys

import pytest

from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError
from gpatcher.estimator.prepare import check_device
from gpatcher.graph.storage import save_graph
from gpatcher.patches.ppr import PPR
from gpatcher.patches.store import write_patches


def test_verify(tmp_path, command_in):
    graph = load_graph("csbm:n=60,features=4")
    save_graph(graph, tmp_path / "graph")
    write_patches(graph, tmp_path / "patches", PPR(size=4))
    done = command_in(tmp_path, "verify", ".")
    assert "2 manifests and" in done.stdout
    assert "all as written" in done.stdout
    for path in ((tmp_path / "graph/x.npy"), next((tmp_path / "patches").glob("*.npy"))):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    done = command_in(tmp_path, "verify", ".", code=1)
    assert "2 problems" in done.stdout
    assert all(name in done.stderr for name in ("x.npy is damaged", "patches/00000-"))


def test_verify_of_nothing(tmp_path, command_in):
    assert "nothing to verify" in command_in(tmp_path, "verify", ".", code=2).stderr
    assert "is not a folder" in command_in(tmp_path, "verify", "missing", code=2).stderr


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "1e300"])
def test_memory_must_be_a_number_of_gib(tmp_path, command_in, value):
    shown = command_in(tmp_path, "store", "csbm:n=60", "--memory", value, "--out", "g", code=2).stderr
    assert "--memory must be a number of GiB above 0" in shown


@pytest.mark.parametrize("seed", ["-1", str(2**64), str(10**30)])
def test_seeds_beyond_64_bits(tmp_path, command_in, seed):
    for command in (("bench", "defaults"), ("fit", "csbm:n=60")):
        shown = command_in(tmp_path, *command, "--seed", seed, code=2).stderr
        assert "--seed" in shown
        assert seed in shown
    assert "9223372" not in command_in(tmp_path, "bench", "--help").stdout


@pytest.mark.parametrize("weight", ["1e-320", "1e308"])
def test_extreme_weights_in_tables_name_their_line(tmp_path, command_in, weight):
    (tmp_path / "e.csv").write_text(f"source,target,w\na,b,1\nb,c,{weight}\n")
    for command in ("store", "diagnose"):
        shown = command_in(tmp_path, command, "--edges", "e.csv", "--weight", "w", "--out", "g", code=2).stderr
        assert "'w' are extreme, the first on line 3" in shown


def test_markup_in_names_is_shown_as_it_is(tmp_path, command_in):
    (tmp_path / "n.csv").write_text("id,label\n[/b],[red]\nb,[/]\nc,[red]\nd,[/]\n")
    (tmp_path / "[e].csv").write_text("source,target\n[/b],b\nb,c\nc,d\n")
    command_in(tmp_path, "store", "--nodes", "n.csv", "--edges", "[e].csv", "--out", "[/b]")
    assert "[red]" in command_in(tmp_path, "diagnose", "--nodes", "n.csv", "--edges", "[e].csv").stdout


def test_a_device_without_data_is_refused():
    with pytest.raises(InputError, match="the device 'meta' cannot be used"):
        check_device("meta")
    assert check_device("cpu").type == "cpu"


def test_memory_that_runs_out_is_a_message(tmp_path, command_in):
    words = ("fit", "csbm:n=60,features=4", "--model", "fast", "--no-compare", "--set", "model.hidden=10000000000")
    shown = command_in(tmp_path, *words, code=2).stderr
    assert "parameters would take about" in shown
    assert "GiB are free" in shown
    shown = command_in(tmp_path, "patches", "csbm:n=60,features=4", "--size", "2000000000", code=2).stderr
    assert "patches of 2,000,000,000 nodes for 60 nodes would take" in shown


LONG_ID = "=1+" + "abcdefgh" * 8


@pytest.fixture
def small_tables(tmp_path):
    ids = [LONG_ID, "Zoë", *(f"n{i}" for i in range(30))]
    rows = [f"{name},{'ab'[i % 2]},{i % 7}" for i, name in enumerate(ids)]
    (tmp_path / "n.csv").write_text("\n".join(["id,label,x", *rows]) + "\n", encoding="utf-8")
    edges = [f"{ids[i]},{ids[(i + k) % 32]}" for i in range(32) for k in (1, 2)]
    (tmp_path / "e.csv").write_text("\n".join(["source,target", *edges]) + "\n", encoding="utf-8")
    return tmp_path


FIT = ("fit", "--nodes", "n.csv", "--edges", "e.csv", "--model", "fast", "--no-compare", "--set", "train.epochs=2")


def test_narrow_terminals_modes_and_formulas(small_tables, command_in):
    before = os.umask(0o027)
    try:
        command_in(small_tables, *FIT, "--out", "run", COLUMNS="40")
    finally:
        os.umask(before)
    written = [path for path in (small_tables / "run").rglob("*") if not path.name.endswith(".lock")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in written}
    assert modes == {(True, 0o750), (False, 0o640)}
    # nothing is cut in 40 columns: an id is folded over several lines
    shown = command_in(small_tables, "explain", "run", "Zoë", COLUMNS="40").stdout
    assert "…" not in shown
    assert all(len(line) <= 40 for line in shown.splitlines() if line.startswith(("│", "┃")))

    assert "1 value would run as a formula" in command_in(small_tables, "predict", "run", "--out", "p.csv").stderr
    assert f'"{LONG_ID}"' in (small_tables / "p.csv").read_text()
    shown = command_in(small_tables, "predict", "run", "--out", "p.csv", "--escape-formulas").stderr
    assert "formula" not in shown
    assert f'"\'{LONG_ID}"' in (small_tables / "p.csv").read_text()
    shown = command_in(small_tables, "predict", "run", "--escape-formulas", code=2).stderr
    assert "--escape-formulas is for a .csv file" in shown


def test_a_locale_that_is_not_utf8(small_tables, command_in):
    command_in(small_tables, *FIT, "--out", "run")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [
        sys.executable,
        "-c",
        "from gpatcher.cli import main; main()",
        "explain",
        "run",
        "n0",
        "--out",
        "n0.html",
    ]
    ended = subprocess.run(command, cwd=small_tables, env=environment, capture_output=True)
    assert not ended.returncode, ended.stderr
    assert rb"Zo\xeb" in ended.stdout
    assert "Zoë" in (small_tables / "n0.html").read_text(encoding="utf-8")
    shown = command_in(small_tables, "explain", "run", "Zo\udcc3\udcab", code=2).stderr
    assert r"'Zo\udcc3\udcab' is not UTF-8" in shown
    assert "PYTHONUTF8=1" in shown
