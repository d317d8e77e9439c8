"""Read random tables, valid and broken: either a graph in which every row is counted, or an InputError.

``python tests/tables/fuzz_tables.py --examples 2000`` writes how often each outcome was seen to results/fuzz.jsonl; a
traceback or a lost row ends it with the smallest tables that show it. test_fuzz.py runs a short slice.
"""

import argparse
import csv
import io
import json
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse as sp
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from gpatcher.errors import InputError
from gpatcher.graph.split import is_labelled
from gpatcher.runs.later import LaterNodes
from gpatcher.tables.columns import KINDS
from gpatcher.tables.load import load_tables

RECORDS = Path(__file__).parents[2] / "results" / "fuzz.jsonl"
NUMBERS = st.integers(-9, 9).map(str) | st.floats(-1e6, 1e6).map(str) | st.sampled_from(["1e3", "-0.5", "+2"])
CELLS = {
    "integer": st.integers(-5, 2**63 - 1).map(str),
    "number": st.floats(allow_nan=True, allow_infinity=True).map(str),
    "boolean": st.sampled_from(["true", "false", "0", "1", "yes"]),
    "word": st.sampled_from(["red", "green", "NA", "é", " ", "a b", "-1", '"q,q"', "x;y", "1e400", "0x1"]),
    "date": st.dates().map(str) | st.datetimes().map(str),
    "text": st.text("ab cé,;|\"'\t.1\n", max_size=12),
    "empty": st.just(""),
}
IDS = [
    st.integers(-3, 9).map(str),
    st.sampled_from(list("abcdefgh")),
    st.sampled_from(["1.0", "1.5", "a", "7", "", "2020-01-01", "true"]),
    st.integers(0, 9).map(lambda i: f"{i}.0"),
]


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(mark in cell for mark in ',;|\t"\n') else cell


@st.composite
def files(draw):
    """Two files as bytes, their suffix, and options."""
    id_values = draw(st.sampled_from(IDS))
    rows = draw(st.sampled_from([0, *range(1, 9), *range(3, 9), 30]))
    unique = draw(st.sampled_from([True, True, False]))
    ids = draw(
        st.lists(id_values, min_size=rows, max_size=rows, unique=unique)
        if rows < 6
        else st.just([f"n{i}" for i in range(rows)])
    )
    kinds = draw(st.lists(st.sampled_from(list(CELLS)), max_size=3))
    columns = {"id": ids}
    task, label = draw(labels())
    if draw(st.sampled_from([True, True, False])):
        columns["label"] = draw(column(label, rows))
    for j, kind in enumerate(kinds):
        cell = st.one_of(CELLS[kind], CELLS[kind], CELLS["empty"], CELLS[draw(st.sampled_from([kind, "word"]))])
        columns[f"c{j}"] = draw(st.lists(cell, min_size=rows, max_size=rows))
    endpoint = st.sampled_from(ids) if ids and draw(st.sampled_from([True, True, False])) else id_values
    pairs = draw(st.lists(st.tuples(endpoint, endpoint), min_size=draw(st.sampled_from([0, 1, 1, 1])), max_size=10))
    edges = {"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}
    cells = {"amount": NUMBERS, "any": CELLS["number"], "word": CELLS["word"], "day": CELLS["date"]}
    for name in draw(st.lists(st.sampled_from(list(cells)), max_size=2, unique=True)):
        edges[f"edge {name}"] = draw(column(st.one_of(cells[name], CELLS["empty"]), len(pairs)))
    delimiter = draw(st.sampled_from([*[","] * 8, ";", "\t", "|"]))
    texts = [as_text(table, delimiter) for table in (columns, edges)]
    if draw(st.integers(0, 2)) == 0:
        broken = draw(st.integers(0, 1))
        texts[broken] = draw(damage(texts[broken]))
    strict = ["error"] if draw(st.integers(0, 3)) == 0 else []
    options = {
        "on_unknown_id": draw(st.sampled_from([*strict, "drop", "add"])),
        "on_duplicate_id": draw(st.sampled_from([*strict, "first"])),
        "on_missing_id": draw(st.sampled_from([*strict, "drop"])),
        "on_rare_class": draw(st.sampled_from([*strict, "keep", "unlabel"])),
        "directed": True,
        "task": task,
    }
    if strict:
        options["columns"] = {f"c{j}": draw(st.sampled_from(KINDS)) for j in range(len(kinds)) if draw(st.booleans())}
    return texts, options, draw(st.booleans())


@st.composite
def labels(draw):
    """The task, and labels for it: classes or numbers, of which some are missing or wrong."""
    task = draw(st.sampled_from([None, None, "regression", "regression", "classification"]))
    classes = st.sampled_from(["x", "y", "z", "", "1", "0.5"])
    wrong = st.sampled_from(["", "", "", "x", "inf", "nan", "NA", " ", "true"])
    numbers = st.one_of(*[NUMBERS] * 5, draw(st.sampled_from([st.just(""), st.just(""), wrong])))
    usual, other = (numbers, classes) if task == "regression" else (classes, numbers)
    return task, draw(st.sampled_from([*[usual] * 5, other]))


def column(cells, rows):
    return st.lists(cells, min_size=rows, max_size=rows)


def as_text(columns: dict[str, list[str]], delimiter: str) -> bytes:
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    return "".join(delimiter.join(map(quoted, line)) + "\n" for line in lines).encode()


def damage(text: bytes):
    """Mostly the text as it is, else broken in one of the ways in which files break."""
    lines = text.splitlines(keepends=True)
    broken = [
        b"",
        b"\n\n",
        lines[0],
        text + b"one,two,three,four,five,six,seven\n",
        text + b"\xff\xfe,\xff\n",
        text.decode().encode("utf-16"),
        text.rstrip(b"\n") + b'"',
        text.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + text,
        text[: len(text) // 2],
        lines[0].upper() + b"".join(lines[1:]),
        text.replace(b"id", b"id,id", 1),
        text + b"\x00\n",
    ]
    return st.sampled_from([text] * len(broken) + broken)


def check(texts, options, parquet):
    """Read the files, and return what was seen: rejected, read or split, and of what kind the labels are."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = []
        for name, text in zip(("nodes", "edges"), texts, strict=True):
            path = Path(folder) / f"{name}.csv"
            path.write_bytes(text)
            if parquet:
                try:
                    table = pa.csv.read_csv(path)
                except pa.ArrowException:
                    parquet = False
                else:
                    path = path.with_suffix(".parquet")
                    pa.parquet.write_table(table, path)
            paths.append(path)
        try:
            tables = load_tables(*paths, **options)
        except InputError:
            return "rejected"
        check_counts(tables, paths)
        check_labels(tables, texts[0])
        if tables.encoder is not None:
            x = tables.graph.x
            values = x.data if sp.issparse(x) else x
            assert x.shape == (tables.graph.n, tables.encoder.width)
            assert values.dtype == np.float32
            assert np.isfinite(values).all()
            again = load_tables(*paths, **options, encoder=tables.encoder).graph.x
            assert (abs(again - x) if sp.issparse(x) else np.abs(again - x)).max() == 0
        try:
            tables.with_split()
        except InputError:
            return f"read{kind(tables)}"
        return f"read and split{kind(tables)}"


def check_counts(tables, paths):
    """Every row of the files is a node, an edge, or counted as dropped."""
    rows = [count_rows(path) for path in paths]
    counts, graph = tables.counts, tables.graph
    assert counts.node_rows == rows[0]
    assert counts.edge_rows == rows[1]
    assert graph.n == counts.node_rows - counts.missing_ids - counts.duplicate_ids + counts.added
    dropped = counts.missing_endpoints + counts.unknown_ids + counts.duplicate_edges
    assert graph.stored_edges == counts.edge_rows - dropped
    assert len(set(map(str, graph.node_ids.tolist()))) == graph.n


def check_labels(tables, text):
    """Every label of the file is one of the graph, and numbers are the same; not looked at if rows were dropped."""
    counts, y = tables.counts, tables.graph.y
    header, *rows = csv_rows(text)
    if counts.missing_ids or counts.duplicate_ids or "label" not in header or y is None:
        return
    given = [row[header.index("label")] for row in rows]
    given = [value for value in given if value.strip() or (value and not tables.graph.is_regression)]
    # in a column of numbers, these words and blanks stand for one that is missing
    known = [value for value in given if value.strip() and value not in ("nan", "NA")]
    assert len(known) <= is_labelled(y).sum() <= len(given)
    if tables.graph.is_regression:
        assert np.array_equal(np.sort(y[~np.isnan(y)]), np.sort(np.array(known, float)))


def kind(tables):
    numbers = ", numbers" if tables.graph.is_regression else ""
    columns = any(plan.columns for plan in getattr(tables.encoder, "edges", ()))
    columns |= any(plan.columns for block in getattr(tables.encoder, "blocks", {}).values() for plan in block.edges)
    return numbers + (", edge columns" if columns else "")


def csv_rows(text):
    text = text.decode("utf-8-sig")
    delimiter = max(",;\t|", key=text.splitlines()[0].count)
    # both readers skip empty lines
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


def count_rows(path):
    """Count the rows with the csv module."""
    if path.suffix == ".parquet":
        return pa.parquet.read_metadata(path).num_rows
    return len(csv_rows(path.read_bytes())) - 1


@st.composite
def typed_files(draw):
    """Files of two node types and two edge types, with an edge column and times, and options; mostly valid."""

    def often(usual, other):
        return draw(st.sampled_from([usual, usual, usual, other]))

    rows = draw(st.sampled_from([*range(1, 7), 30])), draw(st.integers(1, 4))
    ids = {
        "n0": [f"a{i}" for i in range(rows[0])],
        "n1": often([str(i) for i in range(rows[1])], [f"a{i}" for i in range(rows[1])]),
    }
    times = CELLS[draw(st.sampled_from(["date", "date", "integer"]))]
    day = st.one_of(times, CELLS[often("date", "word")]) if often(False, True) else times
    joins = {"e0": ("n0", often("n1", "n0")), "e1": ("n0", "n0")}
    columns = {}
    for name, values in ids.items():
        columns[name] = {"id": values, "c": draw(column(CELLS[draw(st.sampled_from(list(CELLS)))], len(values)))}
        columns[name]["day"] = draw(column(day, len(values)))
    task, label = draw(labels())
    columns["n0"]["label"] = draw(column(label, rows[0]))
    for name, ends in joins.items():
        unknown = often([], ["zz", ""])
        count = draw(st.integers(1, 8))
        columns[name] = {
            side: draw(column(st.sampled_from([*ids[end], *unknown]), count))
            for side, end in zip(("source", "target"), ends, strict=True)
        }
        amounts = often(NUMBERS, CELLS["number"])
        columns[name] |= {"amount": draw(column(amounts, count)), "day": draw(column(day, count))}
    texts = {name: as_text(table, draw(st.sampled_from([",", ";"]))) for name, table in columns.items()}
    if often(False, True):
        broken = draw(st.sampled_from(list(texts)))
        texts[broken] = draw(damage(texts[broken]))
    options = {
        "on_unknown_id": draw(st.sampled_from(["error", "drop"])),
        "on_missing_id": draw(st.sampled_from(["error", "drop"])),
        "directed": True,
        "task": task,
    }
    if draw(st.booleans()):
        options["ends"] = joins
    if often(False, True):
        options["weight"] = "amount"
    if draw(st.booleans()):
        options |= {"ends": joins, "cut": draw(st.sampled_from([0.5, 0.8, "2000-01-01", 3, "never"]))}
        some = {"time": {"n0": "day"}, "edge_time": {"e1": "day"}}
        ways = [{"time": "day"}, {"edge_time": "day"}, {"time": "day", "edge_time": "day"}, some]
        options |= draw(st.sampled_from(ways))
    return texts, options


def check_typed(texts, options):
    """Read the files, and return what was seen: rejected, read or cut, and of what kind the labels are."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = {name: Path(folder) / f"{name}.csv" for name in texts}
        for name, text in texts.items():
            paths[name].write_bytes(text)
        nodes, edges = ({name: paths[name] for name in paths if name[0] == kind} for kind in "ne")
        try:
            tables = load_tables(nodes, edges, **options)
        except InputError:
            return "rejected"
        rows = {name: count_rows(path) for name, path in paths.items()}
        counts, graph, cut = tables.counts, tables.graph, tables.cut
        later = (0, 0) if cut is None else (cut.later_nodes, cut.later_edges)
        assert counts.node_rows + later[0] == rows["n0"] + rows["n1"]
        assert counts.edge_rows + later[1] == rows["e0"] + rows["e1"]
        assert graph.n == counts.node_rows - counts.missing_ids - counts.duplicate_ids
        dropped = counts.missing_endpoints + counts.unknown_ids + counts.duplicate_edges
        assert sum(part.stored_edges for part in graph.relations.values()) == counts.edge_rows - dropped
        assert len(set(graph.node_ids.tolist())) == graph.n
        x = graph.x.data if sp.issparse(graph.x) else graph.x
        assert graph.x.shape == (graph.n, tables.encoder.width)
        assert np.isfinite(x).all()
        LaterNodes.read(tables)
        if cut is None:
            check_labels(tables, texts["n0"])
        try:
            tables.with_split()
        except InputError:
            return f"{'read' if cut is None else 'cut'}{kind(tables)}"
        return f"{'read' if cut is None else 'cut'} and split{kind(tables)}"


FUZZED = {"one table of nodes and one of edges": (files, check), "several types": (typed_files, check_typed)}


def fuzz(kind, examples, start=0):
    """Read so many random tables of a kind, and return how often each outcome was seen."""
    strategy, check_case = FUZZED[kind]
    outcomes = Counter()

    @seed(start)
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(strategy())
    def run(case):
        outcomes[check_case(*case)] += 1

    run()
    return outcomes


def main():
    """Fuzz both kinds, and write a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="tables of each kind (2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORDS)
    options = parser.parse_args()
    lines = []
    for name in FUZZED:
        outcomes = fuzz(name, options.examples, options.seed)
        lines.append(
            {"kind": name, "tables": outcomes.total(), "seed": options.seed, "outcomes": dict(sorted(outcomes.items()))}
        )
        print(lines[-1], flush=True)
    options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
