"""Runs compared on their common test nodes, from predictions in their folders."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpatcher.errors import InputError
from gpatcher.report.compare import comparison_lines, comparison_rows, write_comparison
from gpatcher.runs.compare import compare_runs


def write_run(folder, nodes, right, labels=None):
    """Write the predictions of test nodes: those in ``right`` are correct; one train and one unlabelled node more."""
    folder.mkdir(parents=True)
    labels = labels or {v: "ab"[v % 2] for v in nodes}
    rows = [
        {
            "id": f"n{v}",
            "predicted": labels[v] if v in right else "ba"["ab".index(labels[v])],
            "probability_a": 0.9 if (labels[v] == "a") == (v in right) else 0.1,
            "probability_b": 0.1 if (labels[v] == "a") == (v in right) else 0.9,
            "label": labels[v],
            "part": "test",
        }
        for v in nodes
    ]
    rows += [{**rows[0], "id": "trained", "part": "train"}, {**rows[0], "id": "unlabelled", "label": None}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "predictions.parquet")
    return folder


def test_only_common_test_nodes_count(tmp_path):
    first = write_run(tmp_path / "one", range(20), set(range(15)))
    second = write_run(tmp_path / "two", range(29, 9, -1), set(range(30)))  # another order
    comparison = compare_runs([first, second])
    assert sorted(comparison.ids) == sorted(f"n{v}" for v in range(10, 20))
    assert [run.figures["accuracy"] for run in comparison.runs] == [0.5, 1.0]
    assert [run.test for run in comparison.runs] == [20, 20]
    difference = comparison.runs[1].difference
    assert (difference.better, difference.worse, difference.gain) == (5, 0, 0.5)
    assert {comparison.ids[at] for at in comparison.disputed()} == {f"n{v}" for v in range(15, 20)}
    lines = comparison_lines(comparison)
    assert "10 test nodes" in lines[0]
    assert "two is better than one: +50.0 points" in lines[1]
    assert comparison_rows(comparison)[1][3].startswith("+50.0 (")


def test_runs_that_cannot_be_compared(tmp_path):
    first = write_run(tmp_path / "one", range(10), set())
    apart = write_run(tmp_path / "two", range(10, 20), set())
    with pytest.raises(InputError, match=r"one, two have no test node in common.*--split-column"):
        compare_runs([first, apart])
    other = write_run(tmp_path / "three", range(10), set(), dict.fromkeys(range(10), "a"))
    with pytest.raises(InputError, match=r"node n1 has the label 'b' in .*one and 'a' in .*three"):
        compare_runs([first, other])
    with pytest.raises(InputError, match="given twice"):
        compare_runs([first, first])
    with pytest.raises(InputError, match="at least two runs, got 1 run"):
        compare_runs([first])
    with pytest.raises(InputError, match=r"no predictions.parquet; 'gpatcher predict"):
        compare_runs([first, tmp_path])
    (tmp_path / "two" / "predictions.parquet").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"two/predictions.parquet cannot be read"):
        compare_runs([first, apart])


def write_numbers(folder, labels, errors):
    folder.mkdir(parents=True)
    rows = [
        {"id": f"n{v}", "predicted": y + e, "label": y, "part": "test"}
        for v, (y, e) in enumerate(zip(labels, errors, strict=True))
    ]
    rows.append({"id": "unlabelled", "predicted": 1.0, "label": None, "part": "test"})
    pq.write_table(pa.Table.from_pylist(rows), folder / "predictions.parquet")
    return folder


def test_numbers_are_compared_by_their_absolute_errors(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.normal(size=50) * 100
    errors = rng.normal(size=50), 0.5 * rng.normal(size=50)
    folders = [write_numbers(tmp_path / name, y, e) for name, e in zip(("one", "two"), errors, strict=True)]
    comparison = compare_runs(folders)
    first, second = comparison.runs
    gains = np.abs(errors[0]) - np.abs(errors[1])
    assert first.figures["mae"] == pytest.approx(np.abs(errors[0]).mean())
    assert second.figures["rmse"] == pytest.approx(np.sqrt(np.square(errors[1]).mean()))
    assert second.figures["r2"] == pytest.approx(1 - np.square(errors[1]).mean() / y.var())
    assert second.difference.gain == pytest.approx(gains.mean())
    assert (second.difference.better, second.difference.worse) == ((gains > 0).sum(), (gains < 0).sum())
    assert 0 < second.difference.low < gains.mean() < second.difference.high
    # largest difference first
    spread = np.abs(errors[0] - errors[1])
    assert comparison.ids[comparison.disputed()[0]] == f"n{spread.argmax()}"
    names, group = comparison.groups()
    assert np.bincount(group).tolist() == [10] * 5
    assert names[-1] == f"up to {y.max():.4g}"
    [_, line] = comparison_lines(comparison)
    assert f"two is better than one: {-gains.mean():+.4g} in the mean absolute error" in line
    assert comparison_rows(comparison)[1][3].startswith(f"{-gains.mean():+.4g} ({-second.difference.high:+.4g} to")


def test_numbers_are_not_compared_with_classes_or_on_one_node(tmp_path):
    first = write_run(tmp_path / "one", range(10), set())
    second = write_numbers(tmp_path / "two", [0.4, 1.0], [0.1, 0.1])
    with pytest.raises(InputError, match=r"one predicts classes and .*two numbers"):
        compare_runs([first, second])
    with pytest.raises(InputError, match=r"two predicts numbers and .*one classes"):
        compare_runs([second, first])
    with pytest.raises(InputError, match="two, three have 1 test node in common"):
        compare_runs([second, write_numbers(tmp_path / "three", [0.4], [0.2])])
    with pytest.raises(InputError, match=r"node n1 has the label 1\.0 in .*two and 2\.0 in .*four"):
        compare_runs([second, write_numbers(tmp_path / "four", [0.4, 2.0], [0, 0])])


def test_an_id_of_several_types_is_several_nodes(tmp_path):
    for name in ("one", "two"):
        folder = write_run(tmp_path / name, range(4), {0, 1})
        table = pq.read_table(folder / "predictions.parquet").slice(0, 4)
        typed = [table.append_column("type", pa.array([kind] * 4)) for kind in ("shop", "person")]
        pq.write_table(pa.concat_tables(typed), folder / "predictions.parquet")
    assert len(compare_runs([tmp_path / "one", tmp_path / "two"]).ids) == 8


def test_folders_of_one_name_are_told_apart(tmp_path):
    folders = [write_run(tmp_path / part / "run", range(10), set(range(5))) for part in ("x", "y")]
    comparison = compare_runs(folders)
    assert [run.name for run in comparison.runs] == ["x/run", "y/run"]
    assert "not surely different" in comparison_lines(comparison)[1]


@pytest.mark.browser
def test_the_page_in_a_browser(open_page, tmp_path):
    rng = np.random.default_rng(0)
    runs = [write_run(tmp_path / f"run{i}", range(60), set(rng.choice(60, 40).tolist())) for i in range(3)]
    page, requests, errors = open_page(write_comparison(compare_runs(runs), tmp_path / "c.html"), width=390)
    assert page.get_by_role("rowheader", name="run2").count() == 1
    assert "Where they disagree" in page.locator("main").inner_text()
    for width in (390, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert (requests, errors) == ([], [])


@pytest.mark.browser
def test_the_page_has_no_serious_finding(open_page, serious_findings, tmp_path):
    classes = [write_run(tmp_path / f"run{i}", range(20), set(range(i, 20, 2))) for i in range(2)]
    numbers = [write_numbers(tmp_path / f"number{i}", np.arange(20.0), np.arange(20) % (i + 2)) for i in range(2)]
    for runs in (classes, numbers):
        page, _, errors = open_page(write_comparison(compare_runs(runs), tmp_path / "c.html"))
        assert errors == []
        assert serious_findings(page) == []
