"""Labels of tables: when they are classes, when numbers, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from gpatcher.errors import InputError, InputWarning
from gpatcher.tables.load import load_tables

N = 60
EDGES = pa.table({"source": [f"n{v}" for v in range(N - 1)], "target": [f"n{v + 1}" for v in range(N - 1)]})


def read(labels, **options):
    nodes = pa.table({"id": [f"n{v}" for v in range(len(labels))], "label": labels})
    return load_tables(nodes, EDGES, **options)


def read_file(folder, labels, **options):
    path = folder / "nodes.csv"
    path.write_text("id,label\n" + "".join(f"n{v},{label}\n" for v, label in enumerate(labels)))
    return load_tables(path, EDGES, **options)


@pytest.mark.parametrize("dtype", ["float64", "int32", "decimal"])
def test_many_numbers_are_predicted_and_the_way_back_is_named(dtype):
    values = [float(v) - 5 for v in range(N)]
    labels = pa.array(values).cast(pa.decimal128(8, 2)) if dtype == "decimal" else np.array(values, dtype)
    with pytest.warns(InputWarning, match=r"60 distinct numbers in 60 labels.*task='classification'"):
        tables = read(labels)
    assert tables.graph.is_regression
    assert tables.graph.y.tolist() == values  # negative ones too
    assert tables.label_type == "double"


def test_numbers_in_a_text_file(tmp_path):
    with pytest.warns(InputWarning, match="numbers are predicted"):
        graph = read_file(tmp_path, ["", *(f" {v / 4}" for v in range(1, N))]).graph
    assert np.isnan(graph.y[0])
    assert graph.y[1:].tolist() == [v / 4 for v in range(1, N)]


@pytest.mark.parametrize(
    "labels",
    [
        [v % 20 for v in range(N)],  # few values
        [f"{v:03d}" for v in range(N)],  # codes
        [f"c{v}" for v in range(N)],
    ],
)
def test_few_numbers_codes_and_text_are_classes(tmp_path, labels):
    graph = read_file(tmp_path, labels).graph
    assert not graph.is_regression
    assert graph.num_classes == len(set(labels))


def test_many_nodes_with_few_values_each_have_classes():
    edges = pa.table({"source": [0], "target": [1]})
    labels = np.arange(1000) % 40  # 40 of 1,000 is less than a twentieth
    nodes = pa.table({"id": np.arange(1000), "label": labels})
    assert load_tables(nodes, edges).graph.num_classes == 40


def test_the_task_overrides_what_is_inferred(tmp_path):
    assert read_file(tmp_path, range(N), task="classification").graph.num_classes == N
    graph = read_file(tmp_path, [v % 3 for v in range(N)], task="regression").graph
    assert graph.is_regression
    assert set(graph.y) == {0.0, 1.0, 2.0}


@pytest.mark.parametrize(
    ("value", "message"),
    [("cheap", "are not numbers.*line 5 .*'cheap'"), ("inf", "not finite.*line 5"), ("NA", "line 5 .*'NA'.*empty")],
)
def test_a_label_that_is_no_number_is_named_with_its_line(tmp_path, value, message):
    labels = [0.5, 1.5, 2.5, value, *range(N - 4)]
    with pytest.raises(InputError, match=message):
        read_file(tmp_path, labels, task="regression")


def test_an_unknown_task_is_refused():
    with pytest.raises(InputError, match="task must be one of classification, regression, got 'ranking'"):
        read(range(N), task="ranking")


def test_splits_keep_the_quantiles():
    labels = np.random.default_rng(0).lognormal(size=N)
    graph = read(labels, task="regression").with_split().graph
    split = graph.splits[0]
    assert split.sizes == (36, 12, 12)
    for part in (split.train, split.val, split.test):
        assert (labels[part] > np.median(labels)).mean() == pytest.approx(0.5, abs=0.1)


def test_nodes_that_only_edges_name_have_no_number():
    labels = np.arange(N - 1) / 2
    with pytest.warns(InputWarning, match="'n59'"):
        graph = read(labels, task="regression", on_unknown_id="add").graph
    assert np.isnan(graph.y[-1])
    assert graph.y[:-1].tolist() == labels.tolist()
