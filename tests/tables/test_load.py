import gzip
import string
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.tables import reader
from gpatcher.tables.load import load_tables, read_tables

NODES = "id,label,age,member\na,cat,1.5,true\nb,,2,false\nc,ant,-3,true\n"
EDGES = "source,target\na,b\nc,b\n"


@pytest.fixture
def write(tmp_path):
    def file(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return file


def edge_set(graph: Graph) -> set[tuple]:
    names = graph.node_ids.tolist()
    return {(names[v], names[u]) for v in range(graph.n) for u in graph.neighbours(v)}


# ---------------------------------------------------------------------------------------------- reading


def check_small(graph: Graph) -> None:
    assert graph.node_ids.tolist() == ["a", "b", "c"]
    assert edge_set(graph) == {("a", "b"), ("b", "a"), ("c", "b"), ("b", "c")}
    assert graph.classes == ("ant", "cat")
    assert graph.y.tolist() == [1, -1, 0]
    assert graph.x.dtype == np.float32
    age = np.array([1.5, 2, -3])
    np.testing.assert_allclose(graph.x, np.stack([(age - age.mean()) / age.std(), [1, 0, 1]], 1), rtol=1e-6)
    assert graph.name == "edges"


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq"])
def test_every_file_format(write, tmp_path, suffix):
    for name, text in (("nodes", NODES), ("edges", EDGES)):
        if suffix in (".parquet", ".pq"):
            pa.parquet.write_table(pa.csv.read_csv(pa.BufferReader(text.encode())), tmp_path / f"{name}{suffix}")
        else:
            text = text.replace(",", "\t") if "tsv" in suffix else text
            write(f"{name}{suffix}", gzip.compress(text.encode()) if suffix.endswith("gz") else text)
    check_small(read_tables(tmp_path / f"nodes{suffix}", str(tmp_path / f"edges{suffix}")))


@pytest.mark.parametrize("change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n"), lambda t: t.rstrip()])
def test_files_of_spreadsheets(write, change):
    check_small(read_tables(write("nodes.csv", change(NODES)), write("edges.csv", change(EDGES))))


def test_names_of_columns(write):
    nodes = write("nodes.csv", "key,kind,f,g\n7,u,1,2\n-2,v,3,4\n")
    edges = write("edges.csv", "from,to,w\n7,-2,0.5\n")
    named = {
        "id": "key",
        "label": "kind",
        "source": "from",
        "target": "to",
        "weight": "w",
        "features": ["g"],
        "columns": {"g": "raw"},
    }
    graph = read_tables(nodes, edges, **named, name="mine")
    assert graph.node_ids.tolist() == [7, -2]
    assert graph.x.tolist() == [[2], [4]]
    assert graph.weights.tolist() == [0.5, 0.5]
    assert graph.classes == ("u", "v")
    assert graph.name == "mine"


@pytest.mark.parametrize(
    ("ids", "edge"),
    [
        (["7", "end"], ("7", "end")),  # a column of digits beside one of text
        (["12345678901234567890", "12345678901234567891"], ("12345678901234567891", "12345678901234567890")),
        (["1.1", "1.10"], ("1.10", "1.1")),
        (["5", "6", "12345678901234567890"], ("5", "6")),
    ],
)
def test_ids_that_look_like_numbers_stay_distinct(write, ids, edge):
    nodes = write("nodes.csv", "id,label\n" + "".join(f"{i},x\n" for i in ids))
    edges = write("edges.csv", f"source,target\n{edge[0]},{edge[1]}\n")
    assert edge_set(read_tables(nodes, edges, directed=True)) == {edge}
    if "6" not in edge:
        assert edge_set(read_tables(None, edges, directed=True)) == {edge}


def test_quoted_line_breaks(write):
    note = '"two\nlines"'
    nodes = write("nodes.csv", "id,label,note\n" + "".join(f"{i},x,{note}\n" for i in range(100_000)))
    assert nodes.stat().st_size > 1 << 20  # more than one block
    graph = read_tables(nodes, write("edges.csv", "source,target\n0,99999\n"))
    assert graph.x.shape == (100_000, 1)  # one category


def test_edges_read_in_batches_are_the_same(write, monkeypatch):
    nodes = write("nodes.csv", "id,label\n" + "".join(f"n{i},{'ab'[i % 2]}\n" for i in range(50)))
    text = "".join(f"n{i % 50},n{i * i * 7 % 50},{1 + i % 3}\n" for i in range(400))
    edges = write("edges.csv", "source,target,weight\n" + text)
    with pytest.warns(InputWarning):
        whole = read_tables(nodes, edges, weight="weight")
    monkeypatch.setattr(reader, "_BATCH_BYTES", 500)
    assert len(list(reader.TableSource.open(edges).iter_batches(["source", "target"]))) > 3
    with pytest.warns(InputWarning):
        batched = read_tables(nodes, edges, weight="weight")
    assert batched.content_hash == whole.content_hash


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_batches_of_quoted_text_end_anywhere(write, monkeypatch, suffix):
    """A batch that ends within quotes is noticed, whatever its size, and the whole table is read."""
    rows = [(f"n{i}", f"n{i + 1}", 'a "b"\nn0,n2,c' if i % 3 else "plain, too") for i in range(6)]
    text = "source,target,note\n" + "".join(
        f'"{s}",{t},"{note.replace(chr(34), chr(34) * 2)}"\n' for s, t, note in rows
    )
    edges = write(f"edges.{suffix}", text if suffix == "csv" else gzip.compress(text.encode()))
    for size in range(20, len(text) + 2, 7):
        monkeypatch.setattr(reader, "_BATCH_BYTES", size)
        graph = read_tables(None, edges, directed=True, edge_features=[])
        assert edge_set(graph) == {(s, t) for s, t, _ in rows}, size


@pytest.mark.parametrize("max_hashed_ids", [0, 1 << 22])
def test_integer_ids_by_search_and_by_hash(write, monkeypatch, max_hashed_ids):
    monkeypatch.setattr("gpatcher.tables.ids._MAX_HASHED_IDS", max_hashed_ids)
    nodes = write("nodes.csv", "id,label\n-5,x\n2,y\n90,x\n")
    graph = read_tables(nodes, write("edges.csv", "source,target\n90,-5\n2,90\n"), directed=True)
    assert edge_set(graph) == {(90, -5), (2, 90)}
    for row, message in (("91,2", r"line 2 \(91\)"), ("1,2", r"line 2 \(1\)"), (",2", "are missing")):
        with pytest.raises(InputError, match=message):
            read_tables(nodes, write("edges.csv", f"source,target\n{row}\n"))


def preferential_edges(n=400, each=4):
    """Edges (new, old) of a graph in which every node links to earlier ones, often to hubs; node ids are shuffled."""
    rng = np.random.default_rng(0)
    ends = [0]
    edges = []
    for v in range(1, n):
        for u in {ends[i] for i in rng.integers(0, len(ends), each)}:
            edges.append((v, u))
            ends += [v, u]
    return rng.permutation(n)[np.array(edges)][rng.permutation(len(edges))]


def in_first_row_order(edges):
    """Orient edges as a program that writes the neighbours of one node after the other, each edge once."""
    order = np.random.default_rng(1).permutation(edges.max() + 1)
    oriented = np.where((order[edges[:, :1]] < order[edges[:, 1:]]), edges, edges[:, ::-1])
    return oriented[np.argsort(order[oriented[:, 0]], kind="stable")]


@pytest.mark.parametrize(
    ("arrange", "directed"),
    [
        (lambda e: e, True),
        (lambda e: np.vstack([e, e[: len(e) // 5, ::-1]]), True),
        (lambda e: np.vstack([e, e[:, ::-1]]), False),
        (lambda e: np.sort(e, axis=1), False),
        (lambda e: np.sort(e, axis=1)[:, ::-1], False),
        (in_first_row_order, False),
        (lambda e: np.random.default_rng(2).permuted(e, axis=1), False),
        (lambda e: np.stack([e[:, 0], e[:, 1] + 1000], 1), False),
        (lambda e: e[:50], False),
    ],
    ids=["one way", "some both", "all both", "ascending", "descending", "row order", "random", "bipartite", "few"],
)
@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_direction_is_inferred(arrange, directed):
    edges = arrange(preferential_edges())
    table = pa.table({"source": edges[:, 0], "target": edges[:, 1]})
    assert read_tables(None, table).is_directed == directed
    ids = np.random.default_rng(3).permutation(np.unique(edges))
    assert read_tables(pa.table({"id": ids, "age": ids}), table).is_directed == directed


def test_directed(write):
    graph = read_tables(write("nodes.csv", NODES), write("edges.csv", EDGES), directed=True)
    assert edge_set(graph) == {("a", "b"), ("c", "b")}


@pytest.mark.parametrize(("rows", "ids"), [("10,9\n9,-1\n", [-1, 9, 10]), ("b,a\nB,b\n", ["B", "a", "b"])])
def test_without_a_table_of_nodes(write, rows, ids):
    graph = read_tables(None, write("edges.csv", f"source,target\n{rows}"))
    assert graph.node_ids.tolist() == ids
    assert graph.m == 2
    assert graph.x is None
    assert graph.y is None
    with pytest.raises(InputError, match="'kind' is a column of the table of nodes"):
        read_tables(None, write("edges.csv", EDGES), label="kind")
    with pytest.raises(InputError, match="features and splits are columns of the table of nodes"):
        read_tables(None, write("edges.csv", EDGES), time="day")


@pytest.mark.parametrize(
    ("values", "classes", "y"),
    [
        (["x", None, "", "b"], ("b", "x"), [1, -1, -1, 0]),
        ([10, 9, None, 10], ("9", "10"), [1, 0, -1, 1]),
        ([True, False, None, True], ("False", "True"), [1, 0, -1, 1]),
        ([1.0, float("nan"), None, 0.0], ("0", "1"), [1, -1, -1, 0]),
    ],
)
def test_dtypes_of_labels(tmp_path, values, classes, y):
    table = pa.table({"id": [1, 2, 3, 4], "label": values})
    pa.parquet.write_table(table, tmp_path / "nodes.parquet")
    pa.parquet.write_table(pa.table({"source": [1], "target": [2]}), tmp_path / "edges.parquet")
    graph = read_tables(tmp_path / "nodes.parquet", tmp_path / "edges.parquet")
    assert graph.classes == classes
    assert graph.y.tolist() == y


def test_dictionaries_and_integer_dtypes(tmp_path):
    ids = pa.array([5, 6], pa.int16())
    table = {"id": ids, "label": pa.array(["u", "v"]).dictionary_encode()}
    pa.parquet.write_table(pa.table(table), tmp_path / "nodes.parquet")
    pa.parquet.write_table(pa.table({"source": pa.array([6], pa.uint64()), "target": ids[:1]}), tmp_path / "edges.pq")
    graph = read_tables(tmp_path / "nodes.parquet", tmp_path / "edges.pq")
    assert edge_set(graph) == {(5, 6), (6, 5)}
    assert graph.classes == ("u", "v")


def test_a_dtype_that_changes_late_in_the_file(write):
    # the reader infers the dtype from the first block, a megabyte
    rows = [f"{i},{i % 2},{i}" for i in range(120_000)] + ["end,1,0.5"]
    nodes = write("nodes.csv", "id,label,f\n" + "\n".join(rows) + "\n")
    assert nodes.stat().st_size > 1 << 20
    graph = read_tables(nodes, write("edges.csv", "source,target\nend,7\n"), columns={"f": "raw"})
    assert graph.n == 120_001
    assert edge_set(graph) == {("end", "7"), ("7", "end")}
    assert graph.x[-1, 0] == 0.5


# --------------------------------------------------------------------------------------------- warnings


def test_unused_columns(write):
    nodes = write(
        "nodes.csv",
        "Unnamed: 0,id,label,city,born,f,same\n"
        "0,a,x,Rome,2020-01-01,1,7\n1,b,y,Oslo,2021-01-01,2,7\n2,c,y,Bonn,2021-01-01,2,7\n",
    )
    edges = write("edges.csv", "source,target,weight\na,b,2\n")
    with pytest.warns(InputWarning) as caught:
        graph = read_tables(nodes, edges)
    assert graph.x.shape == (3, 6)  # f, and the date with its time of year and week
    assert graph.weights is None
    messages = sorted(str(warning.message) for warning in caught)
    assert len(messages) == 4
    assert "edges.csv: 1 column is not used: weight; to weigh the edges, pass weight='weight'" in messages[0]
    assert "nodes.csv: column 'Unnamed: 0' is not used (row numbers)" in messages[1]
    assert "1 column is not used (an id: a different value in nearly every row): 'city'" in messages[2]
    assert "1 column is not used (constant): 'same'" in messages[3]


def test_no_labels(write):
    nodes, edges = write("nodes.csv", "id,f\na,1\nb,2\nc,3\n"), write("edges.csv", EDGES)
    with pytest.warns(InputWarning, match=r"nodes.csv has no column 'label', so the graph has no labels"):
        assert read_tables(nodes, edges).y is None
    assert read_tables(nodes, edges, label=None).y is None
    with pytest.raises(InputError, match=r"nodes.csv has no column 'kind'.*The columns are: id, f"):
        read_tables(nodes, edges, label="kind")


def test_no_features(write):
    assert read_tables(write("nodes.csv", "id,label\na,x\nb,y\nc,x\n"), write("edges.csv", EDGES)).x is None
    assert read_tables(write("nodes.csv", NODES), write("edges.csv", EDGES), features=[]).x is None


@pytest.mark.parametrize(("labels", "suspicious"), [("x,NA", "'NA'"), ("-1,1", "-1")])
def test_labels_that_look_missing(write, labels, suspicious):
    first, second = labels.split(",")
    nodes = write("nodes.csv", f"id,label\na,{first}\nb,{second}\n")
    with pytest.warns(InputWarning, match=f"column 'label', {suspicious} is read as a class"):
        graph = read_tables(nodes, write("edges.csv", "source,target\na,b\n"))
    assert graph.num_classes == 2


def test_two_directions_of_different_weight(write):
    edges = write("edges.csv", "source,target,w\na,b,1\nb,a,3\na,c,2\nc,a,2\nb,c,5\nc,c,1\n")
    with pytest.warns(InputWarning) as caught:
        graph = read_tables(None, edges, weight="w")
    assert any("1 edge is given in both directions with different weights" in str(w.message) for w in caught)
    assert graph.adjacency().toarray().tolist() == [[0, 3, 2], [3, 0, 5], [2, 5, 1]]


def test_two_directions_of_equal_weight(write):
    graph = read_tables(None, write("edges.csv", "source,target,w\na,b,1\nb,a,1\nb,c,4\n"), weight="w")
    assert graph.adjacency().toarray().tolist() == [[0, 1, 0], [1, 0, 4], [0, 4, 0]]


def test_duplicate_edges_are_counted(write):
    with pytest.warns(InputWarning, match="1 of 3 edges repeat another one"):
        assert read_tables(None, write("edges.csv", EDGES + "a,b\n")).m == 2


# ----------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"nodes.csv is empty"),
        ("\n\n", r"nodes.csv is empty"),
        ("id,label\n", r"nodes.csv has the columns id, label but no rows"),
        ("id;label,f\na;x,2\n", r"no column 'id'; its columns are separated by semicolons: pass delimiter=';'"),
        ("ID,label\na,x\n", r"no column 'id'; did you mean id='ID' \(--id\)\? The columns are: ID, label"),
        ("node,label\na,x\n", r"no column 'id'; name it with id=... .--id.. The columns are: node, label"),
        ("id,id\na,x\n", r"1 column name appears more than once: id"),
        ("id,label\na,x\nb\n", r"nodes.csv cannot be read: .*#3.*Expected 2 columns, got 1"),
        (
            "id,label\na,x\nb,y\na,x\nc,x\na,y\n",
            r"1 id .*appears more .* first 'a' \(line 2, line 4, line 6\);",
        ),
        ("id,label\na,x\n,y\nb,x\n,y\n", r"2 of 4 values in column 'id' are missing, the first on line 3;"),
        ("id,label\n1,x\n,y\n", r"1 of 2 values in column 'id' are missing, the first on line 3;"),
        ("id,label,f\na,x,1\nb,y,inf\nc,x,1\n", r"1 of 3 values in column 'f' .* the first on line 3 \(inf\)"),
        ("id,label,f\na,x,1\nb,y,1e200\nc,x,1\n", r"column 'f' are not finite as 32-bit .*line 3 \(1e\+200\)"),
        ("id,label\na,1.5\nb,2\nc,1\n", r"1 of 3 values in column 'label' are fractions.*line 2 \('1.5'\)"),
        (b"id,label\na,\xff\xfe\n", r"1 of 1 values in column 'label' are not text in UTF-8, the first on line 2"),
        ("id,label\na,x\n".encode("utf-16"), r"cannot be read as text in UTF-8"),
        (
            "id,label\n1,x\n2,y\n",
            r"ids differ in dtype: column 'id' is int64 in .*nodes.csv, column 'source' is text in .*edges.csv; "
            r"2 of 'source' are not integers, the first 'a' \(line 2\)",
        ),
    ],
)
def test_bad_nodes(write, text, message):
    with pytest.raises(InputError, match=message):
        read_tables(write("nodes.csv", text), write("edges.csv", EDGES))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"edges.csv is empty"),
        ("source,target\n", r"edges.csv has the columns source, target but no rows"),
        ("src,target\na,b\n", r"no column 'source'; .*columns are: src, target"),
        ("source,target\na,b\n,c\n", r"1 of 2 values in column 'source' are missing, the first on line 3;"),
        ("source,target\na,b\na,z\nc, b\n", r"2 of 3 values in .*'target' are not in .*nodes.csv.*line 3 \('z'\)"),
        ("source,target\n1,2\n", r"1 of 1 values in column 'source' are not in .*line 2 \('1'\)"),
        ("source,target\n2020-01-01,b\n", r"are not in .*line 2 \('2020-01-01'\)"),
    ],
)
def test_bad_edges(write, text, message):
    with pytest.raises(InputError, match=message):
        read_tables(write("nodes.csv", NODES), write("edges.csv", text))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1, -2), r"1 of 2 values in column 'w' .*not positive.*line 3 \(-2\)"),
        ((0, 1), r"line 2 \(0\)"),
        (("", 1), "missing, .* line 2;"),
        (("x", 1), r"1 of 2 values in column 'w' are not numbers, the first on line 2 \('x'\)"),
    ],
)
def test_bad_weights(write, weights, message):
    edges = write("edges.csv", f"source,target,w\na,b,{weights[0]}\nc,b,{weights[1]}\n")
    with pytest.raises(InputError, match=message):
        read_tables(write("nodes.csv", NODES), edges, weight="w")


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["ages"], r"no column 'ages'; did you mean features='age'"),
        (["label"], "column 'label' is the label"),
    ],
)
def test_bad_features(write, features, message):
    nodes = write("nodes.csv", "id,label,age,city\na,x,1,Rome\nb,y,2,Oslo\nc,y,2,Oslo\n")
    with pytest.raises(InputError, match=message):
        read_tables(nodes, write("edges.csv", EDGES), features=features)


def test_bad_files(write, tmp_path):
    edges = write("edges.csv", EDGES)
    with pytest.raises(InputError, match="both column 'source'"):
        read_tables(None, edges, target="source")
    with pytest.raises(InputError, match=r"none.csv: no such file"):
        read_tables(tmp_path / "none.csv", edges)
    with pytest.raises(InputError, match=r"nodes.xlsx: unknown file format; .*\.csv, \.tsv, .*\.parquet, \.pq"):
        read_tables(write("nodes.xlsx", ""), edges)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder without Parquet files"):
        read_tables(tmp_path / "folder.csv", edges)
    with pytest.raises(InputError, match=r"nodes.parquet cannot be read as Parquet \(.+\)"):
        read_tables(write("nodes.parquet", NODES), edges)
    with pytest.raises(InputError, match=r"nodes.csv.gz cannot be read"):
        read_tables(write("nodes.csv.gz", NODES), edges)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["1", "2"], "column 'id' is text in .*nodes.pq, column 'source' is int64 in .*edges.pq"),
        ([1.0, 2.5], "1 of 2 values in column 'id' are floating-point numbers .* in row 1 .2.5."),
    ],
)
def test_dtypes_of_parquet_are_not_converted(tmp_path, ids, message):
    pa.parquet.write_table(pa.table({"id": ids, "label": [0, 1]}), tmp_path / "nodes.pq")
    pa.parquet.write_table(pa.table({"source": [1], "target": [2]}), tmp_path / "edges.pq")
    with pytest.raises(InputError, match=message):
        read_tables(tmp_path / "nodes.pq", tmp_path / "edges.pq")


def test_rows_of_parquet_are_counted_from_zero(tmp_path):
    pa.parquet.write_table(pa.table({"source": ["a", "b"], "target": ["b", None]}), tmp_path / "edges.parquet")
    with pytest.raises(InputError, match="column 'target' are missing, the first in row 1;"):
        read_tables(None, tmp_path / "edges.parquet")


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_detected(write, delimiter):
    nodes, edges = (write(f"{n}.csv", t.replace(",", delimiter)) for n, t in (("nodes", NODES), ("edges", EDGES)))
    with pytest.warns(InputWarning, match="the columns are separated by (semicolons|tabs|pipes)"):
        check_small(read_tables(nodes, edges))
    check_small(read_tables(nodes, edges, delimiter=delimiter))
    with pytest.raises(InputError, match=r"no column 'source'; its columns are separated by .*--delimiter"):
        read_tables(nodes, edges, delimiter="#")


def test_a_folder_of_parquet_files(tmp_path):
    for name, text in (("nodes", NODES), ("edges", EDGES)):
        (tmp_path / name).mkdir()
        table = pa.csv.read_csv(pa.BufferReader(text.encode()))
        pa.parquet.write_table(table.slice(0, 1), tmp_path / name / "part-0.parquet")
        pa.parquet.write_table(table.slice(1), tmp_path / name / "part-1.parquet")
    check_small(read_tables(tmp_path / "nodes", tmp_path / "edges"))
    pa.parquet.write_table(pa.table({"source": ["a"], "target": ["z"]}), tmp_path / "edges" / "part-2.parquet")
    with pytest.raises(InputError, match=r"'target' are not in .*nodes, the first in row 0 of part-2.parquet \('z'\)"):
        read_tables(tmp_path / "nodes", tmp_path / "edges")
    pa.parquet.write_table(pa.table({"source": ["a"], "to": ["b"]}), tmp_path / "edges" / "part-2.parquet")
    with pytest.raises(InputError, match=r"part-2.parquet and part-0.parquet differ in their columns: target, to"):
        read_tables(tmp_path / "nodes", tmp_path / "edges")


def test_tables_in_memory():
    import pandas as pd

    nodes, edges = (pa.csv.read_csv(pa.BufferReader(text.encode())) for text in (NODES, EDGES))
    for convert in (lambda table: table, lambda table: pd.DataFrame(table.to_pydict())):
        graph = read_tables(convert(nodes), convert(edges), name="edges")
        check_small(graph)
    with pytest.raises(InputError, match="nodes must be a path, a pyarrow Table or a pandas DataFrame, got list"):
        read_tables([1, 2], edges)
    with pytest.raises(InputError, match=r"edges: .* 'source' are not in nodes, the first in row 0"):
        read_tables(nodes, pa.table({"source": ["z"], "target": ["a"]}))


def test_edges_to_unknown_ids(write):
    nodes, edges = write("nodes.csv", NODES), write("edges.csv", "source,target\na,b\na,z\ny,b\nz,y\n")
    with pytest.warns(InputWarning, match=r"edges.csv: 3 of 4 edges have an id that is not a node"):
        tables = load_tables(nodes, edges, on_unknown_id="drop", directed=True)
    assert edge_set(tables.graph) == {("a", "b")}
    assert tables.counts.unknown_ids == 3
    with pytest.warns(InputWarning, match=r"edges.csv: 2 ids are not in .*nodes.csv and added as nodes: 'y', 'z'"):
        tables = load_tables(nodes, edges, on_unknown_id="add", directed=True)
    assert edge_set(tables.graph) == {("a", "b"), ("a", "z"), ("y", "b"), ("z", "y")}
    assert tables.counts.added == 2
    assert tables.graph.y.tolist() == [1, -1, 0, -1, -1]
    names = tables.encoder.names()
    assert tables.graph.x[:, names.index("age: missing")].tolist() == [0, 0, 0, 1, 1]


def test_duplicate_and_missing_ids(write):
    nodes = write("nodes.csv", "id,label,f\na,x,1\nb,y,2\na,z,3\n,y,4\nc,x,5\nd,y,oops\n")
    edges = write("edges.csv", "source,target\na,b\n,b\nc,\nc,b\n")
    options = {"on_duplicate_id": "first", "on_missing_id": "drop", "directed": True}
    with pytest.warns(InputWarning) as caught:
        tables = load_tables(nodes, edges, columns={"f": "ignore"}, **options)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "nodes.csv: 1 of 6 rows have no id in column 'id' and are not used" in messages
    assert "1 row repeats an id of column 'id'" in messages
    assert "edges.csv: 2 of 4 edges lack an endpoint" in messages
    assert tables.graph.node_ids.tolist() == ["a", "b", "c", "d"]
    assert [tables.graph.classes[c] for c in tables.graph.y] == ["x", "y", "x", "y"]
    assert edge_set(tables.graph) == {("a", "b"), ("c", "b")}
    # lines are those of the file, rows that were dropped included
    message = r"column 'f' are not numbers, the first on line 7 \('oops'\)"
    with pytest.warns(InputWarning), pytest.raises(InputError, match=message):
        load_tables(nodes, edges, columns={"f": "number"}, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_unknown_id": "ignore"}, "on_unknown_id must be one of error, drop, add, got 'ignore'"),
        ({"delimiter": ",,"}, "delimiter must be one character"),
        ({"time": "t", "split_column": "s"}, "split_column and time are different ways to split"),
        ({"columns": {"ages": "number"}}, "no column 'ages'; did you mean columns='age'"),
        ({"group": "team"}, "no column 'team'"),
        ({"lable": "kind"}, "unknown option 'lable'; did you mean label"),
        ({"zzz": 1}, "unknown option 'zzz'; the options are id, label, task, source"),
    ],
)
def test_bad_options(write, options, message):
    with pytest.raises(InputError, match=message):
        read_tables(write("nodes.csv", NODES), write("edges.csv", EDGES), **options)


def people(labels, **columns):
    ids = [f"n{i}" for i in range(len(labels))]
    nodes = pa.table({"id": ids, "label": pa.array(labels, pa.string()), **columns})
    return nodes, pa.table({"source": ids[:-1], "target": ids[1:]})


def test_a_split_is_drawn_where_there_is_none():
    tables = load_tables(*people(["x", "y"] * 10 + [None] * 5))
    assert not tables.graph.splits
    [split] = tables.with_split(seed=3).graph.splits
    assert split.sizes == (12, 4, 4)
    assert split.hash == tables.with_split(seed=3).graph.splits[0].hash
    message = "no node has a label: column 'label' of the nodes is missing or empty"
    with pytest.warns(InputWarning), pytest.raises(InputError, match=message):
        load_tables(*people([None] * 4)).with_split()


def test_splits_by_columns():
    labels = ["x", "y"] * 10
    parts = ["Train"] * 10 + ["valid"] * 4 + ["test"] * 4 + [None] * 2
    [split] = load_tables(*people(labels, part=parts), split_column="part").with_split().graph.splits
    assert split.sizes == (10, 4, 4)
    tables = load_tables(*people(labels, day=np.arange(20)), time="day")
    assert tables.encoder is None  # a column that defines the split is not a feature
    assert tables.with_split().graph.splits[0].test.tolist() == [16, 17, 18, 19]
    team = [f"t{i // 2}" for i in range(20)]
    [split] = load_tables(*people(labels, team=team), group="team").with_split().graph.splits
    assert not set(split.train // 2) & set(split.test // 2)
    assert len(load_tables(*people(labels), folds=4).with_split().graph.splits) == 4
    with pytest.raises(InputError, match=r"column 'part' name no part, the first in row 1 \('exam'\)"):
        load_tables(*people(["x", "y"], part=["train", "exam"]), split_column="part")


@pytest.mark.parametrize("choice", ["error", "keep", "unlabel"])
def test_a_class_with_one_example(choice):
    tables = load_tables(*people(["x", "y"] * 5 + ["z"]), on_rare_class=choice)
    if choice == "error":
        with pytest.raises(InputError, match=r"1 class has one labelled node: 'z', the first at id 'n10'"):
            tables.with_split()
        return
    with pytest.warns(InputWarning, match="'z'"):
        graph = tables.with_split().graph
    assert graph.classes == (("x", "y", "z") if choice == "keep" else ("x", "y"))
    assert graph.y[10] == (2 if choice == "keep" else -1)


def test_a_class_with_one_example_is_shown_at_a_number():
    nodes = pa.table({"id": range(11), "label": ["x", "y"] * 5 + ["z"]})
    edges = pa.table({"source": range(10), "target": range(1, 11)})
    with pytest.raises(InputError, match=r"'z', the first at id 10; label more"):
        load_tables(nodes, edges).with_split()


# ------------------------------------------------------------------------------------------- round trip

WORDS = st.text(string.ascii_letters + " ,;\"'é", min_size=1, max_size=6).map(lambda word: f"k{word}")


@st.composite
def contents(draw):
    ids = draw(
        st.lists(draw(st.sampled_from([WORDS, st.integers(-(2**63), 2**63 - 1)])), min_size=1, max_size=12, unique=True)
    )
    pairs = draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), min_size=1, max_size=30, unique=True))
    labels = draw(st.lists(st.none() | WORDS, min_size=len(ids), max_size=len(ids)))
    numbers = st.floats(-1e6, 1e6, width=32)
    features = draw(st.lists(numbers, min_size=len(ids), max_size=len(ids)))
    return ids, pairs, labels, features


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")  # self-loops and graphs without labels
@settings(max_examples=60, deadline=None)
@given(contents(), st.booleans(), st.sampled_from([".csv", ".parquet"]))
def test_tables_are_read_back_whole(content, directed, suffix):
    ids, pairs, labels, features = content
    nodes = pa.table({"id": ids, "label": pa.array(labels, pa.string()), "f": features})
    edges = pa.table({"source": [a for a, _ in pairs], "target": [b for _, b in pairs]})
    raw = {"f": "raw"}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}{suffix}" for name in ("nodes", "edges")]
        for table, path in zip((nodes, edges), paths, strict=True):
            (pa.csv.write_csv if suffix == ".csv" else pa.parquet.write_table)(table, path)
        graph = read_tables(*paths, directed=directed, columns=raw)
        alone = read_tables(None, paths[1], directed=directed)
    expected = set(pairs) if directed else set(pairs) | {(b, a) for a, b in pairs}
    assert graph.node_ids.tolist() == ids
    assert edge_set(graph) == edge_set(alone) == expected
    assert [graph.classes[c] if c >= 0 else None for c in graph.y] == labels
    assert graph.x[:, 0].tolist() == features
    assert set(alone.node_ids.tolist()) == {end for pair in pairs for end in pair}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_reading_needs_no_other_import(tmp_path, suffix):
    edges, path = pa.table({"source": ["a"], "target": ["b"]}), tmp_path / f"edges{suffix}"
    (pa.csv.write_csv if suffix == ".csv" else pa.parquet.write_table)(edges, path)
    code = f"from gpatcher import read_tables; assert read_tables(None, {str(path)!r}).n == 2"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_many_rows(tmp_path):
    rng = np.random.default_rng(0)
    ids = np.char.add("n", np.arange(50_000).astype(str))
    edges = rng.integers(0, 50_000, (2, 200_000))
    pa.csv.write_csv(pa.table({"id": ids, "label": rng.integers(0, 5, 50_000)}), tmp_path / "nodes.csv")
    pa.csv.write_csv(pa.table({"source": ids[edges[0]], "target": ids[edges[1]]}), tmp_path / "edges.csv")
    with pytest.warns(InputWarning):  # a few edges repeat or are self-loops
        graph = read_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", directed=True)
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    expected = np.unique(edges[0] * 50_000 + edges[1])
    assert np.array_equal(source * 50_000 + graph.indices, expected)
