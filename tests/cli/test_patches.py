"""The commands that put a graph and its patches on disk."""

import re

import pytest

from gpatcher.graph.storage import open_graph
from gpatcher.patches.store import PatchTable

SOURCE = "csbm:n=300,phi=-0.5,features=4"


def test_store_then_patches_then_the_same_again(command_in, tmp_path):
    said = command_in(tmp_path, "store", SOURCE, "--out", "graph").stdout
    assert "300 nodes" in said
    assert open_graph(tmp_path / "graph").num_features == 4
    said = command_in(
        tmp_path, "patches", "graph", "--size", "8", "--shard", "128", "--check", "20", "--out", "table"
    ).stdout
    assert "300 patches of 8 nodes in table: 3 shards" in said
    assert float(re.search(r"20 sampled nodes: mean ([\d.]+), smallest", said)[1]) > 0.9
    assert PatchTable.open(tmp_path / "table", open_graph(tmp_path / "graph")).size == 8
    again = command_in(tmp_path, "patches", "graph", "--size", "8", "--shard", "128", "--out", "table").stdout
    assert "All shards existed already" in again


def test_store_takes_tables(command_in, tmp_path):
    (tmp_path / "n.csv").write_text("id,label\na,x\nb,y\nc,\n")
    (tmp_path / "e.csv").write_text("source,target,kind\na,b,1\nb,a,2\n")
    done = command_in(tmp_path, "store", "--nodes", "n.csv", "--edges", "e.csv", "--out", "graph", "--memory", "0.01")
    assert "3 nodes and 1 edge in graph" in done.stdout
    graph = open_graph(tmp_path / "graph")
    assert graph.node_ids.tolist() == ["a", "b", "c"]
    assert graph.classes == ("x", "y")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("patches", SOURCE, "--c", "2"), "c must lie in"),
        (("patches", SOURCE, "--engine", "spark"), "'spark'"),
        (("patches", SOURCE, "--threads", "0"), "at least 1"),
        (("patches", "nowhere"), "folder of a stored graph"),
        (("store",), "give a source"),
        (("store", SOURCE, "--out", "."), "exists already"),
    ],
)
def test_mistakes_end_with_one_line(command_in, tmp_path, arguments, words):
    (tmp_path / "mine").write_text("in the way")
    assert words in command_in(tmp_path, *arguments, code=2).stderr
