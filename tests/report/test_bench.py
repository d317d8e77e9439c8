"""The page of a benchmark from its records: in a real browser, and as Markdown, CSV and LaTeX."""

import csv
import io
import json
import sys

import numpy as np
import pytest

from gpatcher.bench.leaderboard import NOT_RUN, ResultTable, Runs, compare, read_bench, verdict
from gpatcher.bench.plan import load_experiment
from gpatcher.errors import InputError
from gpatcher.report.bench import write_bench
from gpatcher.report.text_tables import csv_text, latex, markdown
from gpatcher.runs.records import RECORD_VERSION


def record(experiment, dataset, row, split, test, **more):
    made = {
        "job": f"{experiment} {dataset} {row} {split}",
        "version": RECORD_VERSION,
        "experiment": experiment,
        "dataset": dataset,
        "row": row,
        "model": row,
        "split": split,
        "seed": split,
        "trials": None,
        "error": None,
        "metric": "accuracy",
        "val": test,
        "test": test,
        "train_seconds": 1.5,
        "extract_seconds": 0.25 if row == "gpatcher" else 0.0,
        "seconds": 2.0,
        "split_hash": f"{split:016x}",
        "split_sizes": [48, 32, 20],
        "node_heterophily": 0.5,
        "peak_rss_mb": 700.0,
        "settings_hash": "aaaa",
        "settings": {},
        "versions": {"torch": "2.0"},
    }
    if row == "gpatcher":
        made["response"] = np.linspace(0.2, 1, 41).round(3).tolist()
    return made | more


def write(path, records):
    path.mkdir(parents=True, exist_ok=True)
    (path / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


BASE = {"mlp": 0.70, "gcn": 0.60, "fast": 0.82, "gpatcher": 0.85}
NOISE = (0.0, 0.02, -0.01, 0.01, -0.02)


def table1(base=BASE, datasets=("texas", "chameleon", "cora")):
    rng = np.random.default_rng(0)
    return [
        record("table1", d, row, k, round(mean + noise + rng.normal(0, 0.004), 4))
        for d in datasets
        for row, mean in base.items()
        for k, noise in enumerate(NOISE)
    ]


@pytest.fixture
def everything(tmp_path):
    """Some records of every experiment."""
    records = table1()
    records += [
        record("csbm_sweep", d, row, k, 0.8)
        for d in load_experiment("csbm_sweep").datasets
        for row in BASE
        for k in (0, 1)
    ]
    records += [
        record("sensitivity", "texas", row, k, 0.8 + k / 50, model="gpatcher")
        for row in load_experiment("sensitivity").rows
        for k in (0, 1)
    ]
    records += [record("response", d, "gpatcher", 0, 0.8, mean_response=0.3) for d in ("texas", "cora")]
    records += [
        record("runtime", f"n={n}", f"p={p}", 0, None, nodes=n, mixer_seconds=1e-6 * n * p)
        for n in (10, 100)
        for p in (8, 64)
    ]
    names = ("node_heterophily", "edge_homophily", "adjusted_homophily", "label_informativeness")
    measures = {"nodes": 183, "edges": 295, "classes": 5, "features": 1703, "train_duplicates": None}
    records.append(
        record("statistics", "texas", "measures", 0, None, measures={**measures, **dict.fromkeys(names, 0.913)})
    )
    records += [
        record("order", "cora", row, k, 0.7, model="gpatcher") for row in ("ranked", "shuffled") for k in (0, 1)
    ]
    records.append(record("table1", "texas", "gat", 0, None, error="RuntimeError: <b>no</b> memory"))
    return write(tmp_path / "bench", records)


@pytest.mark.browser
def test_page_in_a_browser(open_page, everything, tmp_path):
    path = write_bench(read_bench(everything), tmp_path / "page.html")
    page, requests, errors = open_page(path)
    assert (requests, errors) == ([], [])
    figures = page.locator("section.figure h2").all_inner_texts()
    assert figures == [
        "Mean ranks (table1)",
        "Learned filters (table1)",
        "Sensitivity: patch size and number of filters",
        "Mean frequency response against heterophily",
        "Learned filters (response)",
        "Run time of the patch mixer",
        "Contextual block models, from heterophily to homophily",
        "Mean ranks (csbm_sweep)",
    ]
    for figure in page.locator("section.figure").all():
        marks = figure.locator(".scatterlayer path, .heatmaplayer image")
        assert marks.count() > 0
        assert marks.first.bounding_box()["width"] > 0
    table = page.locator("section", has=page.get_by_text("Table 1: the models on the nine data sets")).locator("table")
    assert table.locator("thead th").all_inner_texts()[1:4] == ["Texas", "Cornell", "Wisconsin"]
    rows = table.locator("tbody tr").all()
    assert len(rows) == 13 + 2
    ours = rows[12].locator("th, td").all_inner_texts()
    assert ours[0] == "GPatcher"
    assert ours[1] == "1.00"
    assert "paper 85.0" in ours[2]
    assert NOT_RUN in ours[3]
    text = page.locator("main").inner_text()
    assert "GPatcher is first" in text
    assert "<b>no</b> memory" in text  # shown, not interpreted
    assert "Not run: table1: Cornell" in text
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.browser
def test_no_serious_finding_of_axe(open_page, everything, serious_findings, tmp_path):
    page, _, _ = open_page(write_bench(read_bench(everything), tmp_path / "page.html"))
    assert serious_findings(page) == []


def test_differences_to_the_paper_are_coloured(tmp_path):
    folder = write(tmp_path, [record("table1", "texas", row, 0, t) for row, t in (("gpatcher", 0.9), ("gcn", 0.5))])
    text = write_bench(read_bench(folder), tmp_path / "p.html").read_text()
    blue, orange = text.index(">+5.0<"), text.index(">-8.7<")
    assert text[:blue].endswith('class="difference better"')
    assert text[:orange].endswith('class="difference worse"')


def test_the_summary_ranks_gpatcher():
    def results(base, **tuned):
        runs = {}
        for r in table1(base):
            r["trials"] = tuned.get(r["dataset"]) if (r["row"], r["dataset"]) != ("gcn", "cora") else None
            runs.setdefault((r["row"], r["dataset"]), []).append(r)
        return ResultTable("table1", load_experiment("table1"), {k: Runs(v, 0) for k, v in runs.items()}, [])

    first = " ".join(verdict([results(BASE)]))
    assert "GPatcher is first of 4 models over 3 data sets (mean rank 1.00)" in first
    assert "without leaky data sets: GPatcher is first of 4 models over 2 data sets (mean rank 1.00)" in first
    assert "no model was tuned" in first
    assert "not ranked: GAT, " in first  # in one line
    assert "were not run." in first
    few = results(BASE)
    few.runs["mlp", "texas"] = Runs(few.runs["mlp", "texas"].records[:2], 0)
    assert "mean of 2 runs only" in " ".join(verdict([few]))
    behind = " ".join(verdict([results({**BASE, "mlp": 0.95})]))
    assert "GPatcher is number 2 of 4 models over 3 data sets (mean rank 2.00); MLP is first (1.00)." in behind
    assert "The gap of 1.00 is more than one standard error (0.00)" in behind
    fast = " ".join(verdict([results({**BASE, "fast": 0.95})]))  # Fast-GPatcher is not a baseline
    assert "GPatcher is number 2" in fast
    assert "table1, against the baselines only: GPatcher is first of 3 models over 3 data sets (mean rank 1.00)" in fast
    # only a data set on which all models had the same number of trials counts as fair
    tuned = " ".join(verdict([results(BASE, texas=20, chameleon=10, cora=20)]))
    assert "same number of tuning trials: GPatcher is first of 4 models over 2 data sets (mean rank 1.00)" in tuned
    assert "trials on validation data, the same for every model: Texas 20, Chameleon 10. " in tuned
    assert "On Cora the models had different numbers of trials or none." in tuned


def test_the_portfolio_has_no_trials_and_is_no_baseline():
    means = {**BASE, "deep": 0.90, "auto": 0.95}
    runs = {}
    for dataset in ("chameleon-filtered", "squirrel-filtered"):
        for row, mean in means.items():
            trials = None if row == "auto" else 9 if (row, dataset) == ("gcn", "squirrel-filtered") else 10
            records = [record("leak_free", dataset, row, k, mean, trials=trials) for k in range(5)]
            runs[row, dataset] = Runs(records, 0)
    table = ResultTable("leak_free", load_experiment("leak_free"), runs, [])
    assert table.budgets == {"chameleon-filtered": 10}
    text = " ".join(verdict([table]))
    assert "GPatcher is number 3 of 6 models over 2 data sets (mean rank 3.00); GPatcher (auto) is first" in text
    assert "against the baselines only: GPatcher is first of 3 models over 2 data sets (mean rank 1.00)" in text
    assert "the same for every model: Chameleon-filtered 10. GPatcher (auto) is not tuned. On Squirrel" in text


def test_a_cell_may_be_on_record_for_another_experiment(tmp_path):
    records = [record("table1", "cora", "gpatcher", k, 0.8) for k in range(3)]
    records += [record("induced", "cora", "gpatcher", 0, 0.7), record("induced", "cora", "gcn", 0, 0.6)]
    records += [record("table1", "cora", "gcn", k, 0.5) for k in range(3)]  # another row: not on the patches
    records += [record("directed", "texas", "deep", 0, 0.9), record("directed", "texas", "fast", 0, 0.4)]
    records += [record("table1", "texas", "fast", k, 0.8) for k in range(2)]
    tables = {table.name: table for table in read_bench(write(tmp_path, records))}
    assert set(tables) == {"table1", "induced", "directed"}
    cells = {name: {key: len(runs.by_run) for key, runs in table.runs.items()} for name, table in tables.items()}
    shared = {("gpatcher", "cora"): 3, ("gcn", "cora"): 3}
    assert cells["directed"] == {("deep", "texas"): 1, ("fast", "texas"): 1, **shared}
    assert cells["induced"] == {("gpatcher", "cora"): 1, ("gcn", "cora"): 1}
    assert cells["table1"] == {("fast", "texas"): 2, **shared}
    assert tables["directed"].cell("fast", "texas").mean == pytest.approx(0.4)  # its own


def test_paired_comparison_by_split(everything):
    [table] = [b for b in read_bench(everything) if b.name == "table1"]
    gap, p, pairs = compare(table, "gpatcher", "mlp", "texas")
    assert gap == pytest.approx(0.15, abs=0.01)
    assert p < 1e-4
    assert pairs == 5
    assert compare(table, "gpatcher", "gat", "texas") is None


def test_only_the_latest_settings_are_shown(tmp_path):
    old = [record("table1", "texas", "gcn", k, 0.5) for k in range(3)]
    new = [{**record("table1", "texas", "gcn", k, 0.6), "job": f"new {k}", "settings_hash": "bbbb"} for k in range(2)]
    [table] = read_bench(write(tmp_path, old + new))
    cell = table.cell("gcn", "texas")
    assert (cell.count, cell.mean) == (2, pytest.approx(0.6))
    assert "Not shown: 3 runs with settings that were replaced" in " ".join(verdict([table]))


def test_a_job_that_failed_and_then_succeeded_counts_once(tmp_path):
    failed = record("table1", "texas", "gcn", 0, None, error="x")
    [table] = read_bench(write(tmp_path, [failed, record("table1", "texas", "gcn", 0, 0.6)]))
    assert table.failures == []
    assert table.cell("gcn", "texas").count == 1


def test_markdown_csv_and_latex(everything):
    tables = read_bench(everything)
    text = markdown(tables)
    line = next(line for line in text.splitlines() if line.startswith("| GPatcher |"))
    cells = [c.strip() for c in line.split("|")[1:-1]]
    assert cells[1].startswith("85.")
    assert cells[1].endswith("(85.0)")
    assert cells[2] == "not run (71.5)"
    assert "Chameleon †" in text
    assert "| runs | 5 |" in text

    rows = list(csv.DictReader(io.StringIO(csv_text(tables))))
    [row] = [r for r in rows if (r["experiment"], r["model"], r["dataset"]) == ("table1", "mlp", "texas")]
    assert (row["runs"], row["metric"], row["leaky"], row["paper_mean"]) == ("5", "accuracy", "False", "74.4")
    assert float(row["low"]) < float(row["mean"]) < float(row["high"])
    assert float(row["difference"]) == pytest.approx(float(row["mean"]) - 74.4, abs=1e-3)
    assert float(row["p_against_gpatcher"]) < 0.05
    [row] = [r for r in rows if (r["experiment"], r["model"], r["dataset"]) == ("table1", "mlp", "pubmed")]
    assert (row["runs"], row["mean"]) == ("0", "")

    tex = latex(tables)
    assert r"\textbf{8" in tex
    assert r"Chameleon$^\dagger$" in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}")
    body = tex.split(r"\midrule")[1]
    assert all(line.count("&") == 9 for line in body.strip().splitlines())


def test_subfolders_and_records_without_a_job(tmp_path):
    write(tmp_path / "a", [record("table1", "texas", "gcn", 0, 0.6)])
    write(
        tmp_path / "b",
        [{"version": RECORD_VERSION, "experiment": "fit", "job": "x", "dataset": "Texas", "model": "gpatcher"}],
    )
    [table] = read_bench(tmp_path)
    assert list(table.runs) == [("gcn", "texas")]
    with pytest.raises(InputError, match="no records of 'gpatcher bench'"):
        read_bench(tmp_path / "b")
    with pytest.raises(InputError, match="unknown experiments: nonsense"):
        read_bench(write(tmp_path / "c", [record("nonsense", "texas", "gcn", 0, 0.6)]))


def test_a_single_run_makes_a_page(tmp_path):
    folder = write(tmp_path, [record("leak_free", "minesweeper", "gcn", 0, 0.9, metric="roc_auc")])
    text = write_bench(read_bench(folder), tmp_path / "p.html").read_text()
    assert "Minesweeper (AUC)" in text
    assert "too few cells" in text


def test_the_report_never_loads_torch(everything, tmp_path):
    import subprocess

    code = (
        "import sys; from pathlib import Path; from gpatcher.bench.leaderboard import read_bench\n"
        "from gpatcher.report.bench import write_bench\n"
        "write_bench(read_bench(Path(sys.argv[1])), sys.argv[2]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, everything, tmp_path / "p.html"], check=False)
    assert done.returncode == 0
