"""Tables in SQLite and in a PostgreSQL server that the tests start; see tools/postgres.py."""

import json
import os
import runpy
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from decimal import Decimal
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from gpatcher import TableClassifier, read_tables
from gpatcher.datasets.fraud import fraud_tables
from gpatcher.errors import InputError
from gpatcher.graph.storage import open_graph
from gpatcher.tables import database, reader
from gpatcher.tables.database import Database, TargetTable, is_query
from gpatcher.tables.load import load_tables
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.store import store_tables
from gpatcher.tables.unseen import read_new_tables

pytest.importorskip("adbc_driver_sqlite", reason="ADBC is not installed: pip install gpatcher[database]")

POSTGRES = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "postgres.py"))
FAST = ("--model", "fast", "--set", "train.epochs=2", "--no-compare")
COUNT = 60
NAMES = ["ann", "bob"]


class SQLiteFile:
    """A file of SQLite. Each call has a connection of its own: locks do not hold between two copies of SQLite."""

    def __init__(self, path):
        self.path, self.url = path, f"sqlite:///{path}"

    def execute(self, *statements):
        with closing(sqlite3.connect(self.path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def fetch(self, query):
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


class PostgresDatabase:
    """The database of a server; the password is in the environment."""

    def __init__(self, server):
        self.server, self.url = server, server.url

    def execute(self, *statements):
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.full_url, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def fetch(self, query):
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.full_url) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    @property
    def full_url(self):
        return self.url.replace("@", f":{quote(self.server.password, safe='')}@")


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("adbc_driver_postgresql", reason="ADBC is not installed: pip install gpatcher[database]")
    try:
        running = POSTGRES["server"]()
        with running as started:
            yield started
    except POSTGRES["NoServerError"] as reason:
        pytest.skip(str(reason))


@pytest.fixture
def sqlite(tmp_path):
    return SQLiteFile(tmp_path / "shop.db")


@pytest.fixture
def postgres(server, monkeypatch):
    """An empty database, whose password is not in the environment."""
    for name in ("PGPASSWORD", "PGPASSFILE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    place = PostgresDatabase(server)
    place.execute("DROP SCHEMA IF EXISTS public CASCADE", "CREATE SCHEMA public", "DROP SCHEMA IF EXISTS other CASCADE")
    return place


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, monkeypatch):
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite")
    made = request.getfixturevalue("postgres")
    monkeypatch.setenv("PGPASSWORD", made.server.password)
    return made


def fill(place, count=COUNT):
    """Make tables of people and their calls, of whole numbers and text."""
    place.execute(
        "CREATE TABLE people (id INTEGER, label TEXT, age DOUBLE PRECISION, town TEXT)",
        "CREATE TABLE calls (source INTEGER, target INTEGER)",
    )
    people = ", ".join(
        f"({100 + i}, {'NULL' if i % 5 == 0 else repr(NAMES[i % 2])}, {20 + 3 * (i % 2) + i % 7}.5, 'town{i % 3}')"
        for i in range(count)
    )
    calls = ", ".join(f"({100 + i}, {100 + (i + step) % count})" for i in range(count) for step in (1, 7))
    place.execute(f"INSERT INTO people VALUES {people}", f"INSERT INTO calls VALUES {calls}")


@pytest.fixture
def filled(place):
    fill(place)
    return place


@pytest.fixture
def run_here(tmp_path, command_in):
    return partial(command_in, tmp_path)


# ------------------------------------------------------------------------------------------------- reading


def test_a_graph_is_that_of_the_same_tables_in_memory(filled):
    people = filled.fetch("SELECT id, label, age, town FROM people")
    calls = filled.fetch("SELECT source, target FROM calls")
    nodes = pa.table(dict(zip(("id", "label", "age", "town"), zip(*people, strict=True), strict=True)))
    edges = pa.table(dict(zip(("source", "target"), zip(*calls, strict=True), strict=True)))
    expected = load_tables(nodes, edges)
    tables = load_tables("people", "calls", database=filled.url)
    assert tables.graph.content_hash == expected.graph.content_hash
    assert tables.counts == expected.counts
    assert tables.graph.name == "calls"
    assert tables.graph.node_ids.dtype == np.int64
    assert tables.graph.classes == ("ann", "bob")


def test_queries_take_what_they_select(filled):
    query = "SELECT id AS person, label, age * 2 AS twice FROM people -- all of them\n;"
    tables = load_tables(query, "WITH c AS (SELECT * FROM calls) SELECT * FROM c", id="person", database=filled.url)
    assert tables.graph.n == COUNT
    assert list(tables.encoder.columns) == ["twice"]
    assert tables.graph.name == "graph"


def test_edges_alone_and_columns_of_edges(filled):
    graph = read_tables(None, "calls", database=filled.url)
    assert graph.node_ids.tolist() == list(range(100, 100 + COUNT))
    query = "SELECT source, target, source % 3 + 0.5 AS minutes, source % 4 + 1 AS weight FROM calls"
    tables = load_tables("people", query, weight="weight", database=filled.url)
    assert "minutes: mean of edges" in tables.encoder.columns
    assert sorted(set(tables.graph.weights.tolist())) == [1.0, 2.0, 3.0, 4.0]


def test_a_name_is_no_sql(filled):
    odd = 'we"ird; DROP TABLE people; --'
    quoted = odd.replace('"', '""')
    filled.execute(f'CREATE TABLE "{quoted}" AS SELECT * FROM calls')
    assert read_tables("people", odd, database=filled.url).n == COUNT
    with pytest.raises(InputError, match="has no table 'calls; DROP TABLE people'"):
        read_tables("people", "calls; DROP TABLE people", database=filled.url)
    column = 'a"b'
    query = f'SELECT source, target, 1.5 * source AS "{column.replace(chr(34), chr(34) * 2)}" FROM calls'
    assert any(column in name for name in load_tables("people", query, database=filled.url).encoder.columns)
    assert filled.fetch("SELECT count(*) FROM people") == [(COUNT,)]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("SELECT nope FROM people", "nope"),
        ("SELECT * FROM nobody", "nobody"),
        ("SELECT id, label FROM people; DROP TABLE people", "failed"),
        ("/* all */ DELETE FROM people", "failed"),
        ("WITH gone AS (DELETE FROM people RETURNING *) SELECT * FROM gone", "failed"),
        ("SELECT id, id, label FROM people", "1 column name appears more than once: id"),
        ("SELECT * FROM people WHERE id < 0", "the query of nodes has the columns id, .* but no rows"),
        ("peopel", "has no table 'peopel'; did you mean 'people'\\? The tables are: calls, people"),
        ("", "has no table ''"),
        (pa.table({"id": [1]}), "nodes must be the name of a table or a SELECT, got Table"),
    ],
)
def test_what_cannot_be_read(filled, nodes, message):
    with pytest.raises(InputError, match=message) as caught:
        read_tables(nodes, "calls", database=filled.url)
    assert "\n" not in str(caught.value)
    assert filled.fetch("SELECT count(*) FROM people") == [(COUNT,)]


def test_messages_of_values_name_query_column_and_row(filled):
    with pytest.raises(
        InputError, match=r"the query of edges: 1 of 121 values in column 'target' are not in people.*5"
    ):
        read_tables("people", "SELECT * FROM calls UNION ALL SELECT 100, 5", database=filled.url)
    with pytest.raises(InputError, match=r"people has no column 'labels'; did you mean label='label'"):
        read_tables("people", "calls", label="labels", database=filled.url)


def test_rows_stream_in_batches(filled, monkeypatch):
    expected = read_tables("people", "calls", database=filled.url)
    monkeypatch.setattr(reader, "_BATCH_ROWS", 16)
    monkeypatch.setattr(database, "_SQLITE_ROWS", 16)
    with Database.parse(filled.url).reading() as opened:
        table = TableSource.open("calls", reader=opened)
        sizes = [batch.num_rows for batch in table.iter_batches(["target"])]
        assert sum(sizes) == 2 * COUNT
        if filled.url.startswith("sqlite"):  # PostgreSQL's driver counts bytes
            assert sizes == [16] * 7 + [8]
        assert table.read(["source", "target"])["source"].type in (pa.int32(), pa.int64())
    assert read_tables("people", "calls", database=filled.url).content_hash == expected.content_hash


def test_postgres_gives_several_batches(postgres):
    query = "SELECT i AS source, i + 1 AS target, repeat('x', 100) AS note FROM generate_series(1, 400000) AS s(i)"
    with Database.parse(postgres.full_url).reading() as opened:
        source = opened.query(query, "edges")
        assert len(list(source.batches(["note"], (), 1))) > 2
        stream = source.batches(["note"], (), 1)
        first = next(stream)
        assert 0 < first.num_rows < 400_000
        stream.close()  # in the middle: its connection is not used again
        assert opened.idle == []
        rows = opened.query("SELECT 1 AS a", "nodes").batches(["a"], (), 1)
        assert [row for table in rows for row in table.to_pylist()] == [{"a": 1}]
        assert len(opened.idle) == 1


def test_a_connection_that_is_lost(postgres):
    query = "SELECT i AS source, repeat('x', 100) AS note FROM generate_series(1, 4000000) AS s(i)"
    with Database.parse(postgres.full_url).reading() as opened:
        stream = opened.query(query, "edges").batches(["source", "note"], (), 1)
        next(stream)
        reading = "query LIKE '%4000000%' AND pid <> pg_backend_pid()"
        postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {reading}")
        with pytest.raises(InputError, match=r"the query of edges failed: .*run it again"):
            list(stream)


def test_an_error_in_a_later_row(postgres):
    query = "SELECT i AS source, 1 / (300000 - i) AS target FROM generate_series(1, 400000) AS s(i)"
    with Database.parse(postgres.full_url).reading() as opened:
        with pytest.raises(InputError, match="division by zero; correct the SQL"):
            list(opened.query(query, "edges").batches(["target"], (), 1))
        rows = opened.query("SELECT 1 AS a", "nodes").batches(["a"], (), 1)  # another connection, the same snapshot
        assert sum(batch.num_rows for batch in rows) == 1
    with pytest.raises(InputError, match="division by zero; correct the SQL"):
        read_tables(None, query, database=postgres.full_url)


def test_a_stored_graph_is_the_graph(filled, tmp_path):
    stored = store_tables("people", "calls", tmp_path / "graph", directed=False, database=filled.url)
    expected = read_tables("people", "calls", directed=False, database=filled.url)
    np.testing.assert_array_equal(stored.indices, expected.indices)
    np.testing.assert_array_equal(stored.node_ids, expected.node_ids)
    np.testing.assert_array_equal(stored.x, expected.x)


def test_all_reads_see_the_same_state(filled):
    if filled.url.startswith("sqlite"):
        filled.execute("PRAGMA journal_mode = wal")
    with Database.parse(filled.url).reading() as opened:
        query = opened.query("SELECT source FROM calls", "edges")
        opened_before = query.batches(["source"], (), 1)
        next(opened_before)  # which keeps its connection busy: PostgreSQL needs another
        if filled.url.startswith("sqlite"):  # another process: see SQLiteFile
            code = (
                f"import sqlite3; c = sqlite3.connect({str(filled.path)!r}); c.execute('DELETE FROM calls'); c.commit()"
            )
            subprocess.run([sys.executable, "-c", code], check=True)
        else:
            filled.execute("DELETE FROM calls")
        assert sum(batch.num_rows for batch in query.batches(["source"], (), 1)) == 2 * COUNT
        opened_before.close()
    assert filled.fetch("SELECT count(*) FROM calls") == [(0,)]


def test_unseen_nodes(filled):
    tables = load_tables("people", "calls", database=filled.url)
    filled.execute(
        "CREATE TABLE new AS SELECT id + 1000 AS id, age, town FROM people",
        "CREATE TABLE links AS SELECT source + 1000 AS source, target FROM calls",
    )
    ids, x, edge_index, _ = read_new_tables(tables.graph, "new", "links", tables.encoder, {"database": filled.url})
    assert ids.tolist() == list(range(1100, 1100 + COUNT))
    np.testing.assert_array_equal(x, tables.graph.x)
    assert edge_index.shape == (2, 2 * COUNT)


def test_the_classifier_takes_a_database(filled):
    from gpatcher import GPatcherClassifier
    from gpatcher.patches import PPR
    from gpatcher.training.loop import TrainConfig

    classifier = GPatcherClassifier(patches=PPR(size=4), train=TrainConfig(epochs=2))
    model = TableClassifier(tables={"database": filled.url}, classifier=classifier).fit("people", "calls")
    assert model.predict([100, 101]).shape == (2,)


# --------------------------------------------------------------------------------------------------- types


def test_types_of_sqlite(sqlite):
    # the driver judges by the first 1,024 rows unless told otherwise
    rows = ", ".join(f"('{i:05}', {'NULL' if i < 2000 else i % 2}, {3 if i < 2000 else 1.5})" for i in range(3000))
    sqlite.execute("CREATE TABLE n (id TEXT, label, v)", f"INSERT INTO n VALUES {rows}")
    sqlite.execute("CREATE TABLE e AS SELECT '00001' AS source, '00002' AS target")
    tables = load_tables("n", "e", database=sqlite.url)
    assert tables.graph.node_ids[7] == "00007"
    assert tables.graph.classes == ("0", "1")
    assert tables.label_type == "int64"
    assert (tables.graph.labels() >= 0).sum() == 1000


def test_a_column_of_sqlite_that_changes_its_type(sqlite, monkeypatch):
    rows = ", ".join(f"({i}, {i if i < 20 else 0.5 + i})" for i in range(40))
    sqlite.execute("CREATE TABLE n (id, v)", f"INSERT INTO n VALUES {rows}", "CREATE TABLE e (source, target)")
    sqlite.execute("INSERT INTO e VALUES (1, 2)")
    assert read_tables("n", "e", label=None, database=sqlite.url).n == 40
    monkeypatch.setattr(database, "_SQLITE_ROWS", 16)
    with pytest.raises(InputError, match=r"n: column 'v' holds INT64 or nothing in the first 16 rows and DOUBLE after"):
        read_tables("n", "e", label=None, database=sqlite.url)
    query = 'SELECT id, CAST(v AS REAL) AS v FROM n ORDER BY "v" IS NULL'
    assert read_tables(query, "e", label=None, database=sqlite.url).n == 40


@pytest.fixture
def typed(postgres):
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('calm', 'wild')",
        """CREATE TABLE n AS SELECT i::bigint AS big, i::smallint AS small, i::text AS words,
        i::numeric(12, 2) AS money, i::numeric AS whole, i + 0.25 AS part,
        ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid AS uid,
        ('c' || i)::char(6) AS padded, (array['calm', 'wild'])[1 + i % 2]::mood AS mood, i % 2 = 0 AS even,
        date '2024-01-01' + i AS day, timestamptz '2024-01-01' + i * interval '1 hour' AS moment,
        CASE WHEN i = 3 THEN 'NaN' ELSE i / 3.0 END AS third, json_build_object('i', i) AS doc
        FROM generate_series(1, 40) AS s(i)""",
    )
    return postgres


def links(column):
    """Edges from each row to the next."""
    return f"SELECT a.{column} AS source, b.{column} AS target FROM n AS a JOIN n AS b ON b.big = a.big + 1"


@pytest.mark.parametrize(
    ("column", "first"),
    [
        ("big", 1),
        ("small", 1),
        ("words", "1"),
        ("money", Decimal("1.00")),
        ("whole", Decimal(1)),
        ("uid", "00000000-0000-0000-0000-000000000001"),
        ("padded", "c1"),
        ("part", "1.25"),
    ],
)
def test_ids_of_postgres_keep_their_type(typed, column, first):
    edges = links(column)
    graph = read_tables(f"SELECT {column} AS id, even AS label FROM n", edges, database=typed.full_url)
    assert graph.node_ids.tolist()[0] == first
    assert type(graph.node_ids.tolist()[0]) is type(first)
    assert graph.n == 40


def test_decimals_are_those_of_parquet(typed, tmp_path):
    numbers = [Decimal(i).quantize(Decimal("1.00")) for i in range(1, 41)]
    nodes = pa.table({"id": pa.array(numbers, pa.decimal128(12, 2)), "label": pa.array(numbers, pa.decimal128(12, 2))})
    edges = pa.table({"source": nodes["id"][:-1], "target": nodes["id"][1:]})
    pa.parquet.write_table(nodes, tmp_path / "n.parquet")
    pa.parquet.write_table(edges, tmp_path / "e.parquet")
    classes = {"task": "classification"}
    expected = read_tables(tmp_path / "n.parquet", tmp_path / "e.parquet", **classes)
    query = "SELECT money AS id, money AS label FROM n"
    graph = read_tables(query, links("money"), database=typed.full_url, **classes)
    assert graph.classes == expected.classes
    assert graph.node_ids.tolist() == expected.node_ids.tolist()


def test_decimal_ids_of_unseen_nodes(typed, tmp_path):
    columns = "SELECT {0} AS id, even AS label, part FROM n"
    for column in ("money", "whole"):
        made = store_tables(
            columns.format(column), links(column), tmp_path / column, features=[], database=typed.full_url
        )
        graph = open_graph(tmp_path / column)
        assert graph.node_ids.tolist() == made.node_ids.tolist()
        new = (f"SELECT {column} + 100 AS id FROM n", f"SELECT {column} + 100 AS source, {column} AS target FROM n")
        if column == "money":
            new = tuple(text.replace("money + 100", "(money + 100)::numeric(12, 2)") for text in new)
        ids, _, edge_index, _ = read_new_tables(graph, *new, None, {"database": typed.full_url})
        assert ids.tolist() == [value + 100 for value in graph.node_ids.tolist()]
        assert edge_index[1].tolist() == list(range(40))


def test_features_of_postgres(typed):
    kinds = load_tables(
        "SELECT big AS id, even AS label, money + 0.5 AS money, third, mood, day, moment FROM n",
        "SELECT big AS source, 41 - big AS target, whole + 0.5 AS minutes FROM n",
        database=typed.full_url,
    )
    found = kinds.encoder.columns
    assert {name: found[name] for name in ("money", "third", "day", "moment")} == {
        "money": "number",
        "third": "number",
        "day": "date",
        "moment": "date",
    }
    assert found["minutes: mean of edges"] == "number"
    assert found["mood"] in ("category", "text")
    assert kinds.label_type == "bool"
    assert kinds.graph.classes == ("False", "True")


def test_a_function_that_writes_is_refused(postgres):
    postgres.execute("CREATE SEQUENCE s", "CREATE TABLE e AS SELECT 1 AS source, 2 AS target")
    with pytest.raises(InputError, match="read-only transaction"):
        read_tables("SELECT nextval('s') AS id", "e", label=None, database=postgres.full_url)


# ------------------------------------------------------------------------------------------------ passwords


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@host:5433/shop", "postgresql://ann@host:5433/shop"),
        ("postgres://ann:s3cret@host/shop", "postgresql://ann@host/shop"),
        ("POSTGRESQL://ann:a%40s3cret@host/shop", "postgresql://ann@host/shop"),
        (
            "postgresql://host/shop?user=ann&password=s3cret&sslmode=prefer",
            "postgresql://host/shop?user=ann&sslmode=prefer",
        ),
        ("postgresql://host/shop?password=s3cret", "postgresql://host/shop"),
        ("postgresql://host/shop?p%61ssword=s3cret", "postgresql://host/shop"),
        ("postgresql://ann@host/shop", "postgresql://ann@host/shop"),
        ("postgresql:///shop", "postgresql:///shop"),
    ],
)
def test_a_url_is_shown_without_the_password(url, shown):
    parsed = Database.parse(url)
    options = TableOptions(database=url)
    assert str(parsed) == parsed.url == shown
    for text in (
        repr(parsed),
        str(parsed),
        repr(options),
        repr(TargetTable(parsed, "t")),
        f"{TargetTable(parsed, 't')}",
    ):
        assert "s3cret" not in text
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({"database": options.database})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3c/ret@host/shop",
        "postgresql://ann:s3c?ret@host/shop",
        "postgresql://ann:s3c@ret@host/shop",
        "postgresql://ann:s3c%ret@host/shop",
        "postgresql://ann:s3c ret@host/shop",
        "mysql://ann:s3cret@host/shop",
        "host=127.0.0.1 password=s3cret",
        "postgresql://ann:s3cret@127.0.0.1:nonsense/shop",
        "postgresql://ann:s3cret@127.0.0.1:1/shop?nonsense=1",
        "postgresql://ann:s3cret@127.0.0.1:1/shop",
    ],
)
def test_no_error_shows_the_password(url):
    with pytest.raises(InputError) as caught:
        read_tables("people", "calls", database=url)
    assert "s3c" not in str(caught.value)
    assert "ret" not in str(caught.value).replace("secret", "")


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_refused_connection_and_a_wrong_password(postgres):
    with pytest.raises(InputError, match=r"cannot connect to postgresql://ann@127.0.0.1:\d+/x: .*refused.*PGPASSWORD"):
        read_tables("a", "b", database=f"postgresql://ann:s3cret@127.0.0.1:{closed_port()}/x")
    wrong = postgres.url.replace("@", ":s3cret@")
    with pytest.raises(InputError, match=r"password authentication failed for user .*PGPASSWORD, ~/.pgpass") as caught:
        read_tables("a", "b", database=wrong)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InputError, match='database "nothing" does not exist'):
        read_tables("a", "b", database=postgres.full_url.replace("/postgres", "/nothing"))


def test_a_password_that_the_server_repeats_is_hidden(postgres):
    name = quote(postgres.server.password, safe="")
    with pytest.raises(InputError, match=r"\*\*\*") as caught:
        read_tables(None, f'SELECT "{postgres.server.password}"', database=postgres.full_url)
    assert postgres.server.password not in str(caught.value)
    assert name not in str(caught.value)


@pytest.mark.parametrize("way", ["url", "PGPASSWORD", "PGPASSFILE", "~/.pgpass"])
def test_the_password_is_nowhere(postgres, run_here, tmp_path, monkeypatch, way):
    fill(postgres)
    password = postgres.server.password
    url = postgres.url
    if way == "url":
        url = postgres.full_url
    elif way == "PGPASSWORD":
        monkeypatch.setenv("PGPASSWORD", password)
    else:
        file = tmp_path / "home" / ".pgpass"
        file.parent.mkdir()
        file.write_text(f"127.0.0.1:*:*:{postgres.server.user}:{password}\n")
        file.chmod(0o600)
        monkeypatch.setenv(*(("HOME", str(file.parent)) if way == "~/.pgpass" else ("PGPASSFILE", str(file))))
    tables = ("--database", url, "--nodes", "people", "--edges", "calls")
    done = [run_here("fit", *tables, *FAST, "--out", "run")]
    if way == "url":
        done += [
            run_here("predict", "run", "--database", url, "--to-table", "p"),
            run_here("predict", "run", "--database", url, "--to-table", "p", code=2),
            run_here("diagnose", *tables, "--no-spectral", "--out", "page.html"),
            run_here("diagnose", "--database", url, "--nodes", "nope", "--edges", "calls", code=2),
            run_here("diagnose", "--database", url, "--nodes", "SELECT nope", "--edges", "calls", code=2),
            run_here("diagnose", "texas", "--database", url, code=2),
            run_here("store", *tables, "--out", "graph"),
            run_here("report", "run"),
        ]
        assert done[2].stderr.startswith("error: postgresql://gpatcher@127.0.0.1:")
    assert json.loads((tmp_path / "run" / "model.json").read_text())["source"]["database"] == postgres.url
    assert (tmp_path / "run" / "predictions.parquet").is_file()
    texts = [output.encode() for one in done for output in (one.stdout, one.stderr)]
    texts += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".pgpass"]
    assert len(texts) > 10
    for secret in (password, quote(password, safe=""), password.split()[0]):
        assert not any(secret.encode() in text for text in texts)


# ------------------------------------------------------------------------------------------------- writing


PIECE = {"id": np.arange(3), "predicted": np.array(["a", "b", "a"]), 'p"q': np.array([0.5, 0.25, 1.0])}


def broken():
    yield PIECE
    raise InputError("the model is broken")


def test_pieces_become_one_table(place):
    target = TargetTable(Database.parse(place.url), 'out"put')
    target.check()
    assert place.fetch("SELECT 1") == [(1,)]
    target.check()  # leaves nothing
    target.write([PIECE, PIECE])
    assert place.fetch('SELECT * FROM "out""put" ORDER BY id')[::2] == [(0, "a", 0.5), (1, "b", 0.25), (2, "a", 1.0)]


def test_a_table_is_replaced_only_if_asked(filled):
    before = filled.fetch("SELECT * FROM people ORDER BY id")
    plain = TargetTable(Database.parse(filled.url), "people")
    for call in (plain.check, lambda: plain.write([PIECE])):
        with pytest.raises(InputError, match=r"has a table 'people' already.*--overwrite"):
            call()
    replacing = TargetTable(Database.parse(filled.url), "people", overwrite=True)
    replacing.check()
    assert filled.fetch("SELECT * FROM people ORDER BY id") == before
    replacing.write([PIECE])
    assert filled.fetch("SELECT id FROM people ORDER BY id") == [(0,), (1,), (2,)]


def test_what_fails_leaves_everything_as_it_was(filled):
    before = filled.fetch("SELECT * FROM people ORDER BY id")
    with pytest.raises(InputError, match="the model is broken"):
        TargetTable(Database.parse(filled.url), "people", overwrite=True).write(broken())
    assert filled.fetch("SELECT * FROM people ORDER BY id") == before
    with pytest.raises(InputError, match="the model is broken"):
        TargetTable(Database.parse(filled.url), "fresh").write(broken())
    with pytest.raises(InputError, match="has no table 'fresh'"):
        read_tables("people", "fresh", database=filled.url)
    other = {**PIECE, "more": np.arange(3)}  # the driver refuses the second piece
    with pytest.raises(InputError, match=r"writing to table 'fresh' failed.*nothing was written"):
        TargetTable(Database.parse(filled.url), "fresh").write([PIECE, other])
    with pytest.raises(InputError, match="has no table 'fresh'"):
        read_tables("people", "fresh", database=filled.url)


def test_a_view_is_not_replaced(filled):
    filled.execute("CREATE VIEW seen AS SELECT * FROM people")
    assert read_tables("seen", "calls", database=filled.url).n == COUNT
    with pytest.raises(InputError, match="writing to table 'seen' failed"):
        TargetTable(Database.parse(filled.url), "seen", overwrite=True).check()


def test_schemas_and_long_names_of_postgres(postgres):
    postgres.execute("CREATE SCHEMA other")
    place = Database.parse(postgres.full_url)
    TargetTable(place, "other.output").write([PIECE])
    assert postgres.fetch("SELECT count(*) FROM other.output") == [(3,)]
    assert read_tables("other.output", "SELECT 1 AS source, 2 AS target", label="predicted", database=place).n == 3
    with pytest.raises(InputError, match='schema "nowhere" does not exist'):
        TargetTable(place, "nowhere.output").check()
    with pytest.raises(InputError, match=r"more than the 63 bytes.*shorter"):
        TargetTable(place, "x" * 64).check()
    with pytest.raises(InputError, match=r"more than the 63 bytes.*--out"):
        TargetTable(place, "t").write([{"x" * 64: [1]}])
    with pytest.raises(InputError, match="not the name of a table"):
        TargetTable(place, "other.").check()


def test_decimals_are_text_in_sqlite(sqlite):
    target = TargetTable(Database.parse(sqlite.url), "t")
    target.write([{"id": [Decimal("1.50"), Decimal("2.00")]}])
    assert sqlite.fetch("SELECT id FROM t") == [("1.50",), ("2.00",)]


def test_a_database_that_may_not_be_written_to(postgres):
    fill(postgres)
    postgres.execute(
        "DROP ROLE IF EXISTS guest",
        "CREATE ROLE guest LOGIN PASSWORD 'please'",
        "GRANT SELECT ON people TO guest",
        "GRANT USAGE ON SCHEMA public TO guest",
    )
    try:
        place = Database.parse(postgres.url.replace("gpatcher@", "guest:please@"))
        with pytest.raises(InputError, match=r"permission denied for schema public; nothing was written"):
            TargetTable(place, "t").check()
        with pytest.raises(InputError, match="permission denied for table calls") as caught:
            read_tables("people", "calls", database=place)
        assert "please" not in str(caught.value)
        option = "?options=-c%20default_transaction_read_only%3Don"
        with pytest.raises(InputError, match="read-only transaction"):
            TargetTable(Database.parse(postgres.full_url + option), "t").check()
    finally:
        postgres.execute("DROP OWNED BY guest", "DROP ROLE guest")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, who may read but not write")
def test_a_file_that_may_not_be_written_to():
    folder = Path(tempfile.mkdtemp())
    try:
        place = SQLiteFile(folder / "shop.db")
        fill(place)
        folder.chmod(0o755)
        place.path.chmod(0o444)
        os.seteuid(65534)
        try:
            assert read_tables("people", "calls", database=place.url).n == COUNT
            with pytest.raises(InputError, match=r"readonly database.*nothing was written"):
                TargetTable(Database.parse(place.url), "t").check()
        finally:
            os.seteuid(0)
    finally:
        shutil.rmtree(folder)


def test_a_locked_file(sqlite, monkeypatch):
    fill(sqlite)
    monkeypatch.setattr(database, "_BUSY_MILLISECONDS", 100)
    code = (
        f"import sqlite3; c = sqlite3.connect({str(sqlite.path)!r}); c.execute('BEGIN EXCLUSIVE'); "
        "print('locked', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(InputError, match="database is locked"):
            read_tables("people", "calls", database=sqlite.url)
        with pytest.raises(InputError, match="database is locked"):
            TargetTable(Database.parse(sqlite.url), "t").check()
        other.communicate(b"\n")
    assert read_tables("people", "calls", database=sqlite.url).n == COUNT


# ---------------------------------------------------------------------------------------------- the command


def test_from_tables_to_predictions_and_back(filled, run_here, tmp_path):
    at = ("--database", filled.url)
    done = run_here("fit", *at, "--nodes", "people", "--edges", "SELECT * FROM calls", *FAST, "--out", "run")
    assert "Read 60 nodes and 120 edges" in done.stdout
    done = run_here("predict", "run", *at, "--to-table", "predicted", "--conformal", "0.9")
    assert f"60 rows in table 'predicted' of {filled.url}" in done.stdout
    rows = filled.fetch(
        'SELECT id, predicted, probability_ann, confidence, label, part, "set" FROM predicted ORDER BY id'
    )
    table = pa.parquet.read_table(tmp_path / "run" / "predictions.parquet").to_pydict()
    assert [row[0] for row in rows] == table["id"] == list(range(100, 160))
    assert [row[1] for row in rows] == table["predicted"]
    assert (
        [row[4] for row in rows]
        == table["label"]
        == [row[0] for row in filled.fetch("SELECT label FROM people ORDER BY id")]
    )
    assert [row[5] for row in rows] == table["part"]
    np.testing.assert_allclose([row[2] for row in rows], table["probability_ann"], rtol=1e-6)
    assert {row[6] for row in rows} <= {"ann", "bob", "ann|bob"}
    assert not (tmp_path / "predictions.parquet").exists()

    done = run_here("predict", "run", *at, "--to-table", "predicted", code=2)
    assert "already" in done.stderr
    filled.execute(
        "CREATE TABLE new AS SELECT id + 1000 AS id, age, town FROM people",
        "CREATE TABLE links AS SELECT source + 1000 AS source, target FROM calls",
    )
    unseen = ("--nodes", "SELECT * FROM new WHERE id < 1105", "--edges", "SELECT * FROM links WHERE source < 1105")
    run_here("predict", "run", *at, *unseen, "--to-table", "predicted", "--overwrite")
    assert filled.fetch("SELECT id, label FROM predicted ORDER BY id") == [(1100 + i, None) for i in range(5)]
    run_here("predict", "run", *at, *unseen, "--out", "new.csv")
    assert len((tmp_path / "new.csv").read_text().splitlines()) == 6
    (tmp_path / "new.csv").rename(tmp_path / "from_query.csv")
    (tmp_path / "new_nodes.csv").write_text("id,age,town\n1100,20.5,town0\n")
    (tmp_path / "new_edges.csv").write_text("source,target\n1100,101\n")
    run_here("predict", "run", "--nodes", "new_nodes.csv", "--edges", "new_edges.csv", "--out", "new.csv")
    for name in ("people", "PEOPLE"):
        done = run_here("predict", "run", *at, "--to-table", name, "--overwrite", code=2)
        assert f"--to-table '{name}' is the table of nodes itself" in done.stderr
    assert len(filled.fetch("SELECT * FROM people")) == COUNT


@pytest.fixture
def shop(place):
    """A database with the four tables of the tutorial on types, the tables, and the options to read them."""
    kinds = {int: "INTEGER", float: "DOUBLE PRECISION", str: "TEXT"}
    tables = {}
    for name, columns in fraud_tables(people=80, seed=1).items():
        tables[name] = {
            key: [None if v == "" else v for v in (values.astype(str) if values.dtype.kind == "M" else values).tolist()]
            for key, values in columns.items()
        }
        made = ", ".join(
            f"{key} {kinds[type(next(v for v in values if v is not None))]}" for key, values in tables[name].items()
        )
        rows = zip(*tables[name].values(), strict=True)
        values = ", ".join(f"({', '.join('NULL' if v is None else repr(v) for v in row)})" for row in rows)
        place.execute(f"CREATE TABLE {name} ({made})", f"INSERT INTO {name} VALUES {values}")
    options = {
        "source": {"uses": "person", "paid": "payer"},
        "target": {"uses": "device", "paid": "payee"},
        "ends": {"uses": ("person", "device"), "paid": ("person", "person")},
    }
    return place, tables, options


@pytest.mark.filterwarnings("ignore:paid. 35 of 629 edges repeat:gpatcher.errors.InputWarning")
def test_several_tables_are_those_of_the_same_tables_in_memory(shop):
    place, made, options = shop
    tables = {name: pa.table(columns) for name, columns in made.items()}
    nodes = {"person": tables["people"], "device": tables["devices"]}
    expected = load_tables(nodes, {"uses": tables["uses"], "paid": tables["payments"]}, **options)
    found = load_tables(
        {"person": "people", "device": "SELECT * FROM devices"},
        {"uses": "uses", "paid": "SELECT payer, payee, amount, day FROM payments"},
        **options,
        database=place.url,
    )
    assert found.graph.content_hash == expected.graph.content_hash
    assert (found.counts, found.links) == (expected.counts, expected.links)
    assert found.graph.node_ids.tolist() == expected.graph.node_ids.tolist()
    with pytest.raises(InputError, match="has no table 'person'"):
        load_tables({"person": "person", "device": "devices"}, {"uses": "uses"}, database=place.url)


@pytest.mark.parametrize("label", ["label", "age"])
def test_several_tables_to_predictions_and_back(shop, run_here, label):
    place, made, _ = shop
    at = ("--database", place.url)
    tables = (
        "--nodes",
        "person=people",
        "--nodes",
        "device=devices",
        "--edges",
        "uses=uses",
        "--edges",
        "paid=payments",
    )
    columns = ("--source", "uses=person,paid=payer", "--target", "uses=device,paid=payee")
    ends = ("--ends", "uses=person,device", "--ends", "paid=person,person")
    task = ("--label", f"person={label}", "--task", "regression" if label == "age" else "classification")
    features = ("--features", "person.country")
    run_here("fit", *at, *tables, *columns, *ends, *task, *features, *FAST, "--out", "run")
    run_here("predict", "run", *at, "--to-table", "predicted")
    rows = place.fetch("SELECT type, id, predicted FROM predicted ORDER BY id")
    assert [row[:2] for row in rows] == [("person", i) for i in made["people"]["id"]]
    assert {type(row[2]) for row in rows} == {float if label == "age" else str}
    done = run_here("predict", "run", *at, "--to-table", "devices", "--overwrite", code=2)
    assert "--to-table 'devices' is the table of nodes itself" in done.stderr
    place.execute(
        "CREATE TABLE later AS SELECT 900 AS id, 33 AS age, 'IT' AS country, '2024-12-01' AS joined",
        "CREATE TABLE later_uses AS SELECT 900 AS person, 3 AS device, 1.5 AS hours",
    )
    unseen = ("--nodes", "person=later", "--edges", "uses=later_uses")
    run_here("predict", "run", *at, *unseen, "--to-table", "predicted", "--overwrite")
    assert [row[:2] for row in place.fetch("SELECT type, id, predicted FROM predicted")] == [("person", 900)]


@pytest.mark.parametrize(("kind", "expected"), [("INTEGER", int), ("TEXT", str), ("BOOLEAN", bool)])
def test_classes_come_back_in_their_type(place, run_here, kind, expected):
    if kind == "BOOLEAN" and place.url.startswith("sqlite"):
        pytest.skip("SQLite has no booleans")
    value = {"INTEGER": "source % 2", "TEXT": "'0' || (source % 2)", "BOOLEAN": "source % 2 = 0"}[kind]
    fill(place)
    place.execute(
        f"CREATE TABLE marked AS SELECT id AS id, age, CASE WHEN id % 5 = 0 THEN NULL ELSE {value} END AS label "
        "FROM people JOIN (SELECT DISTINCT source FROM calls) AS c ON source = id"
    )
    at = ("--database", place.url)
    run_here("fit", *at, "--nodes", "marked", "--edges", "calls", *FAST, "--out", "run")
    run_here("predict", "run", *at, "--to-table", "predicted")
    rows = place.fetch("SELECT p.predicted, p.label, m.label FROM predicted AS p JOIN marked AS m ON p.id = m.id")
    assert {type(row[0]) for row in rows} == {expected}
    assert all(row[1] == row[2] for row in rows)
    assert {row[0] for row in rows} <= {row[2] for row in rows}


def test_other_commands_read_databases(filled, run_here, tmp_path):
    at = ("--database", filled.url, "--nodes", "people", "--edges", "calls")
    assert json.loads(run_here("diagnose", *at, "--no-spectral", "--json").stdout)["nodes"] == COUNT
    run_here("store", *at, "--out", "graph")
    assert open_graph(tmp_path / "graph").n == COUNT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("diagnose", "texas", "--database", "x.db"), "--database describe tables"),
        (("diagnose", "--database", "x.db"), "--nodes and --edges"),
        (("diagnose", "--edges", "SELECT 1"), "--edges 'SELECT 1' is a query; say of which database with --database"),
        (("diagnose", "--database", "x.db", "--edges", "e"), "there is no file"),
        (("diagnose", "--database", "x.db", "--edges", "e", "--delimiter", ";"), "delimiter ';' is of text files"),
        (("diagnose", "--database", "oracle://u:s3cret@h/d", "--edges", "e"), "begins with oracle://"),
        (("diagnose", "--database", "sqlite://x.db", "--edges", "e"), "names no file"),
        (("diagnose", "--database", "notes.txt", "--edges", "e"), "neither a URL nor such a path"),
        (("diagnose", "--database", "notes.db", "--edges", "e"), "not a database"),
        (("predict", "run", "--database", "x.db"), "pass --to-table"),
        (("predict", "run", "--to-table", "t"), "--to-table 't' is a table of a database"),
        (("predict", "run", "--overwrite"), "--overwrite replaces the table of --to-table"),
        (("predict", "run", "--database", "x.db", "--to-table", "t", "--out", "p.csv"), "pass one of them"),
        (("predict", "run", "--database", "no/x.db", "--to-table", "t"), "is not a folder"),
        (("predict", "run", "--database", "x.db", "--to-table", ""), "not the name of a table"),
    ],
)
def test_what_the_command_refuses(run_here, tmp_path, arguments, message):
    (tmp_path / "notes.db").write_text("not a database at all, but a text that is long enough to look like one" * 20)
    done = run_here(*arguments, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("missing", ["adbc_driver_manager", "adbc_driver_sqlite"])
def test_without_the_extra_the_error_says_how_to_install(sqlite, monkeypatch, missing):
    fill(sqlite)
    for name in [name for name in sys.modules if name.startswith("adbc_driver")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"{missing}.*pip install 'gpatcher\[database\]'"):
        read_tables("people", "calls", database=sqlite.url)


def test_paths_of_sqlite(sqlite, tmp_path, monkeypatch):
    fill(sqlite)
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "50% of #1?.sqlite"
    shutil.copy(sqlite.path, odd)
    for url in ("shop.db", sqlite.path, "sqlite:///shop.db", f"sqlite:///{sqlite.path}", f"sqlite:///{odd.name}", odd):
        assert read_tables("people", "calls", database=url).n == COUNT
    assert Database.parse("sqlite:///shop.db").url == f"sqlite:///{sqlite.path}"


def test_what_is_a_query():
    queries = [
        "select 1",
        " SELECT\n1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "(select 1)",
        "select(1)",
        "select*from a",
    ]
    for query in [*queries, "-- all\nSELECT 1", "with a(b)\nas (select 1) select b from a"]:
        assert is_query(query), query
    for name in ("people", "selected", "select", "with", "table.csv", "with love", "my table", "select.csv", "(1).csv"):
        assert not is_query(name), name


def test_a_file_with_the_name_of_a_query(run_here, tmp_path):
    (tmp_path / "select all.csv").write_text("source,target\na,b\n")
    assert json.loads(run_here("diagnose", "--edges", "select all.csv", "--no-spectral", "--json").stdout)["nodes"] == 2
