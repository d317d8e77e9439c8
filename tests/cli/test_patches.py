"""The commands that put a graph and its patches on disk, run as a user would."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from gpatcher.graph.storage import open_graph
from gpatcher.patches.store import PatchTable

COMMAND = Path(sysconfig.get_path("scripts")) / "gpatcher"
SOURCE = "csbm:n=300,phi=-0.5,features=4"


def run(folder, *arguments, code=0):
    done = subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"COLUMNS": "160"},
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_store_then_patches_then_the_same_again(tmp_path):
    said = run(tmp_path, "store", SOURCE, "--out", "graph").stdout
    assert "300 nodes" in said
    assert open_graph(tmp_path / "graph").num_features == 4
    said = run(tmp_path, "patches", "graph", "--size", "8", "--shard", "128", "--check", "20", "--out", "table").stdout
    assert "300 patches of 8 nodes in table: 3 shards" in said
    assert float(re.search(r"20 sampled nodes: mean ([\d.]+), smallest", said)[1]) > 0.9
    assert PatchTable.open(tmp_path / "table", open_graph(tmp_path / "graph")).size == 8
    again = run(tmp_path, "patches", "graph", "--size", "8", "--shard", "128", "--out", "table").stdout
    assert "Every shard was there already" in again


def test_store_takes_tables(tmp_path):
    (tmp_path / "n.csv").write_text("id,label\na,x\nb,y\nc,\n")
    (tmp_path / "e.csv").write_text("source,target,kind\na,b,1\nb,a,2\n")
    done = run(tmp_path, "store", "--nodes", "n.csv", "--edges", "e.csv", "--out", "graph", "--memory", "0.01")
    assert "3 nodes and 1 edge in graph" in done.stdout
    graph = open_graph(tmp_path / "graph")
    assert graph.node_ids.tolist() == ["a", "b", "c"]
    assert graph.classes == ("x", "y")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("patches", SOURCE, "--c", "2"), "c must lie in"),
        (("patches", SOURCE, "--engine", "spark"), "no engine 'spark'"),
        (("patches", SOURCE, "--threads", "0"), "at least 1"),
        (("patches", "nowhere"), "folder with a stored graph"),
        (("store",), "give a source"),
        (("store", SOURCE, "--out", "."), "exists already"),
    ],
)
def test_mistakes_end_with_one_line(tmp_path, arguments, words):
    (tmp_path / "mine").write_text("in the way")
    assert words in run(tmp_path, *arguments, code=2).stderr
