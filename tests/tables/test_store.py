import warnings

import numpy as np
import pytest

from gpatcher.errors import InputError, InputWarning
from gpatcher.tables.load import read_tables
from gpatcher.tables.store import store_tables

NODES = "id,label,size,part\n7,x,1.5,train\n8,y,,val\n9,x,3,test\n"


@pytest.fixture
def read_both(tmp_path):
    """Read tables into memory and by way of the disk; return both graphs and the warnings of each."""

    def read(nodes, edges, **options):
        paths = []
        for name, text in (("nodes", nodes), ("edges", edges)):
            paths.append(tmp_path / f"{name}.csv")
            paths[-1].write_text(text)
        graphs, messages = [], []
        for call in (read_tables, lambda *tables, **o: store_tables(*tables, tmp_path / "graph", **o)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", InputWarning)
                graphs.append(call(*paths, **options))
            messages.append([str(warning.message) for warning in caught])
        return graphs, messages

    return read


def assert_equal(stored, graph):
    assert stored.content_hash == graph.content_hash
    assert stored.node_ids.tolist() == graph.node_ids.tolist()
    assert stored.classes == graph.classes
    np.testing.assert_array_equal(stored.y, graph.y)
    np.testing.assert_array_equal(stored.x, graph.x)
    assert [split.hash for split in stored.splits] == [split.hash for split in graph.splits]


def test_features_labels_and_split_are_stored(read_both):
    (graph, stored), messages = read_both(NODES, "source,target\n7,8\n9,8\n", split_column="part")
    assert stored.x.shape == (3, 2)
    assert stored.splits[0].sizes == (1, 1, 1)
    assert_equal(stored, graph)
    assert messages[0] == messages[1]


def test_warnings_are_those_of_reading(read_both):
    edges = "source,target,note\n7,7,a\n7,8,b\n8,7,c\n7,8,d\n"
    (graph, stored), messages = read_both(NODES.replace(",x,", ",,").replace(",y,", ",,"), edges, features=[])
    assert stored.self_loops == 1
    assert graph.content_hash == stored.content_hash
    assert sorted(messages[0]) == sorted(messages[1])
    for words in ("1 column is not used: note", "1 of 4 edges", "1 edge joins", "no node has a label"):
        assert sum(words in message for message in messages[1]) == 1


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
@pytest.mark.parametrize("choice", ["drop", "add"])
def test_unknown_ids_are_dropped_or_added(read_both, choice):
    (graph, stored), _ = read_both(NODES, "source,target\n10,7\n7,8\n", on_unknown_id=choice)
    assert stored.n == (3 if choice == "drop" else 4)
    assert_equal(stored, graph)


def test_digits_beside_text_ids(read_both):
    (graph, stored), _ = read_both("id,label\n7,x\nend,y\n", "source,target\n7,7\n7,7\n")
    assert stored.node_ids.tolist() == ["7", "end"]
    assert graph.content_hash == stored.content_hash


def test_errors_name_the_file_and_leave_nothing(tmp_path):
    for name, text in (("nodes.csv", NODES), ("edges.csv", "source,target\n70,7\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"edges.csv: 1 of 1 values in column 'source' .*line 2 \(70\)"):
        store_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "graph")
    with pytest.raises(InputError, match="unknown option 'delimeter'; did you mean delimiter"):
        store_tables(None, tmp_path / "edges.csv", tmp_path / "graph", delimeter=",")
    with pytest.raises(InputError, match="got 0"):
        store_tables(None, tmp_path / "edges.csv", tmp_path / "graph", memory=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "nodes.csv"]


def test_several_tables_are_sorted_within_a_bound(tmp_path):
    for name, text in (
        ("nodes.csv", NODES),
        ("one.csv", "source,target\n7,8\n8,9\n"),
        ("two.csv", "source,target\n7,9\n"),
    ):
        (tmp_path / name).write_text(text)
    tables = tmp_path / "nodes.csv", {name: tmp_path / f"{name}.csv" for name in ("one", "two")}
    with pytest.raises(InputError, match=r"two.csv: .* 1 rows .* need 1.49e-07 GiB, above the 7.45e-08 GiB left"):
        store_tables(*tables, tmp_path / "graph", memory=400, features=["size"])
    assert not (tmp_path / "graph").exists()
    stored = store_tables(*tables, tmp_path / "graph", memory=480, features=["size"])
    assert_equal(stored, read_tables(*tables, features=["size"]))
    assert list(stored.relations) == ["one", "two"]


def test_ids_far_apart_after_ids_close_together(tmp_path, monkeypatch):
    monkeypatch.setattr("gpatcher.tables.reader._BATCH_BYTES", 24)  # a few edges at a time
    rows = [*((v, v + 1) for v in range(20)), (3, 2**60), (-(2**61), 4)]
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{v},{u}\n" for v, u in rows))
    stored = store_tables(None, tmp_path / "edges.csv", tmp_path / "graph")
    assert stored.node_ids.tolist() == sorted({v for row in rows for v in row})
    assert stored.content_hash == read_tables(None, tmp_path / "edges.csv").content_hash
