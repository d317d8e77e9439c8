"""Ids and labels come out as they were written."""

import decimal
import re

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpatcher.graph.storage import open_graph
from gpatcher.tables.load import read_tables
from gpatcher.tables.store import store_tables
from gpatcher.tables.values import as_written


def write(path, header, rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def ring(tmp_path, ids, labels):
    following = [*ids[1:], ids[0]]
    nodes = write(tmp_path / "n.csv", "id,label", [f"{a},{b}" for a, b in zip(ids, labels, strict=True)])
    edges = write(tmp_path / "e.csv", "source,target", [f"{a},{b}" for a, b in zip(ids, following, strict=True)])
    return nodes, edges


@pytest.mark.parametrize(
    "ids",
    [
        ["00001", "1", "01", "2"],
        ["1.0", "1", "1e3", "1000"],
        ["2020-01-01", "2020-01-02", "2020-1-1", "x"],
        ["true", "True", "false", "0"],
        [str(10**30), str(10**30 + 1), str(2**63), "-0"],
        ["1.10", "1.1", "+1", "version 2"],
        ["5", "17", "-3", str(10**17)],
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_ids_and_labels_of_a_text_file_stay_as_written(tmp_path, ids, stored):
    nodes, edges = ring(tmp_path, ids, ids)
    graph = store_tables(nodes, edges, tmp_path / "g") if stored else read_tables(nodes, edges)
    if stored:
        graph = open_graph(tmp_path / "g")
    assert [str(one) for one in graph.node_ids] == ids
    assert [graph.classes[c] for c in graph.y] == ids
    assert graph.m == 4


@pytest.mark.parametrize("nodes_given", [False, True])
def test_edges_with_zeros_match_only_nodes_with_zeros(tmp_path, nodes_given):
    nodes = write(tmp_path / "n.csv", "id,label", ["1,a", "01,b", "2,a"])
    edges = write(tmp_path / "e.csv", "source,target", ["1,2", "2,1"])
    graph = read_tables(nodes if nodes_given else None, edges)
    assert [str(one) for one in graph.node_ids] == (["1", "01", "2"] if nodes_given else ["1", "2"])
    assert graph.neighbours(0).tolist() == ([2] if nodes_given else [1])


@settings(deadline=None)  # the first call compiles
@given(
    st.lists(
        st.one_of(st.integers(-(2**63) - 9, 2**63 + 9).map(str), st.text("0123456789+-. e", max_size=4)), min_size=1
    )
)
@example([str(-(2**63)), str(2**63 - 1)])
@example([str(-(2**63) - 1)])
@example([str(2**63)])
def test_integers_are_those_that_give_back_their_text(values):
    result = as_written(pa.chunked_array([pa.array(values, pa.binary())]))
    if pa.types.is_integer(result.type):
        assert [text.strip(" ") for text in values] == ["" if v is None else str(v) for v in result.to_pylist()]
    else:
        assert result.to_pylist() == values
        short = [re.fullmatch(" *(|0|-?[1-9][0-9]*) *", text) for text in values]
        assert not all(match and -(2**63) <= int(match[1] or 0) < 2**63 for match in short)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([b"a", b"\xff", b"c", b"d"]),
        pa.array([decimal.Decimal("1.10"), decimal.Decimal("1.20"), decimal.Decimal("3.00"), decimal.Decimal("4.00")]),
        pa.array([1, 2, 2**62, -5]),
        pa.array(["01", "1", "a", "b"]).cast(pa.string_view()),
        pa.array(["01", "1", "a", "b"]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
def test_ids_of_a_parquet_file_keep_their_values(tmp_path, ids):
    rows = pa.table({"id": ids, "label": ["x", "y"] * 2, "size": pa.array([1, 2, 3, 4], pa.float16())})
    pa.parquet.write_table(rows, tmp_path / "n.parquet")
    following = pa.concat_arrays([ids[1:], ids[:1]])
    pa.parquet.write_table(pa.table({"source": ids, "target": following}), tmp_path / "e.parquet")
    for graph in (
        read_tables(tmp_path / "n.parquet", tmp_path / "e.parquet"),
        store_tables(tmp_path / "n.parquet", tmp_path / "e.parquet", tmp_path / "g"),
    ):
        assert list(graph.node_ids) == ids.to_pylist()
        assert graph.m == 4
        assert graph.num_features == 1
