import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import warnings
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import gpatcher
from gpatcher.datasets.load import load_dataset
from gpatcher.spectral.diagnosis import diagnose

COMMAND = Path(sysconfig.get_path("scripts")) / "gpatcher"


def installed(*arguments, code=0, **variables):
    """Run the installed command as a user would."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "160"} | variables,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def run(command_in, tmp_path):
    """The command without a new process."""
    return partial(command_in, tmp_path)


COMMANDS = [
    "datasets",
    "diagnose",
    "fit",
    "predict",
    "explain",
    "export",
    "settings",
    "store",
    "patches",
    "bench",
    "tune",
    "report",
]


def test_help_names_the_commands():
    text = installed("-h").stdout
    assert "Usage: gpatcher" in text
    for command in COMMANDS:
        assert f" {command} " in text
    assert "--install-completion" in text
    assert installed("--version").stdout.strip() == gpatcher.__version__


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_shows_no_python_types(run, command):
    text = run(*command.split(), "--help").stdout
    assert "Usage: " in text
    assert not re.search(r"<\w+>", text)


def test_help_of_fit_has_panels(run):
    text = run("fit", "--help").stdout
    assert re.findall(r"╭─ ([\w ]+?) ─", text) == [
        *("Arguments", "Options", "Data", "Model", "Split", "Output", "Size and cluster")
    ]


def test_settings_lists_every_setting(run):
    text = run("settings", "--json").stdout
    settings = json.loads(text)
    assert list(settings) == ["patches", "features", "model", "train"]
    table = run("settings", COLUMNS="200").stdout
    for section, values in settings.items():
        for name in values:
            assert f"{section}.{name}" in table
    assert "best of 20 trials on texas" in run("settings", "texas").stdout
    assert json.loads(run("settings", "--model", "gcn", "--json").stdout)["model"]["hidden"] == 64


# from light to heavy, in one process: a command loads what those before it did, and these modules
HEAVY = {"numpy", "scipy.sparse", "scipy.stats", "numba", "plotly", "pyarrow", "pandas", "torch", "sklearn", "ray"}
LOADED = {
    "--help": set(),
    "fit --help": set(),
    "datasets": set(),
    "bench --list": set(),
    "store --help": set(),
    "settings": set(),
    "settings texas --model deep": set(),
    "settings --model gcn --json": set(),
    "bench table1 --models nosuch": {"numpy"},
    "fit texas --model nosuch": {"numpy"},
    "verify graph": {"numpy"},
    "report run": {"numpy", "plotly"},
    "store csbm:n=200,features=4 --out new": {"numpy", "plotly", "scipy.sparse", "numba", "pyarrow"},
    "diagnose csbm:n=200,features=4": {"numpy", "plotly", "scipy.sparse", "numba", "pyarrow"},
    "compare run again": {"numpy", "plotly", "scipy.sparse", "numba", "pyarrow", "pandas", "scipy.stats"},
}


def test_light_commands_load_nothing_heavy(run, tmp_path):
    run("store", "csbm:n=50,features=4", "--out", "graph")
    run("fit", "csbm:n=60,features=4", "--model", "fast", "--set", "train.epochs=1", "--out", "run")
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    code = f"""
import sys
from gpatcher.cli import main
for command in {list(LOADED)}:
    sys.argv = ["gpatcher", *command.split()]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == (2 if "nosuch" in command else 0), command
    print("loaded:", *{HEAVY} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("loaded:")]
    assert len(loaded) == len(LOADED)
    for (command, allowed), modules in zip(LOADED.items(), loaded, strict=True):
        assert modules <= allowed, f"gpatcher {command} loads {modules - allowed}"


def test_diagnose_a_generator(run):
    text = installed("diagnose", "csbm:phi=-0.8,n=400,features=8").stdout
    assert "node heterophily" in text
    assert "Try" in text
    found = json.loads(run("diagnose", "csbm:phi=-0.8,n=400,features=8", "--json").stdout)
    assert found["nodes"] == 400
    assert found["node_heterophily"] > 0.7


def test_diagnose_without_the_spectral_part(run):
    found = json.loads(run("diagnose", "rmat:n=3000,m=20000,seed=3", "--json", "--no-spectral").stdout)
    assert (found["nodes"], found["edges"]) == (3000, 20000)
    assert "label_energy" not in found
    assert found["label_frequency"] is None


@pytest.fixture
def tables(tmp_path):
    nodes = pa.table({"id": ["a", "b", "c", "d"], "label": ["x", "y", "x", None], "size": [1.0, 2.0, 3.0, 4.0]})
    edges = pa.table({"source": ["a", "b", "c"], "target": ["b", "c", "d"]})
    return nodes, edges, tmp_path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_diagnose_tables(run, tables, kind):
    nodes, edges, folder = tables
    for table, name in ((nodes, "nodes"), (edges, "edges")):
        write = pa.csv.write_csv if kind == "csv" else pa.parquet.write_table
        write(table, folder / f"{name}.{kind}")
    found = json.loads(
        run("diagnose", "--nodes", folder / f"nodes.{kind}", "--edges", folder / f"edges.{kind}", "--json").stdout
    )
    assert (found["nodes"], found["edges"], found["classes"], found["features"]) == (4, 3, 2, 1)
    assert found["labelled"] == 3
    assert found["node_heterophily"] == 1.0


def test_columns_may_have_other_names(run, tables):
    nodes, edges, folder = tables
    pa.csv.write_csv(nodes.rename_columns(["name", "kind", "size"]), folder / "n.csv")
    pa.csv.write_csv(edges.rename_columns(["from", "to"]), folder / "e.csv")
    options = ("--id", "name", "--label", "kind", "--source", "from", "--target", "to", "--json")
    found = json.loads(run("diagnose", "--nodes", folder / "n.csv", "--edges", folder / "e.csv", *options).stdout)
    assert found["classes"] == 2
    wrong = run("diagnose", "--nodes", folder / "n.csv", "--edges", folder / "e.csv", code=2).stderr
    for part in ("e.csv", "'source'", "--source", "from, to"):
        assert part in wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["give a source"]),
        (("nosuchset",), ["nosuchset", "cora"]),
        (("csbm:phi=3",), ["phi", "3"]),
        (("csbm:fi=1",), ["fi", "phi"]),
        (("texas", "--edges", "e.csv"), ["texas", "not both"]),
        (("texas", "--weight", "w", "--id", "name"), ["texas", "--id, --weight", "leave them out"]),
        (("texas", "--column", "a=number", "--on-unknown-id", "drop"), ["--column, --on-unknown-id"]),
        (("--edges", "missing.csv"), ["missing.csv"]),
        (("csbm:n=100,features=4", "--out", "no/such/folder/r.html"), ["no/such/folder"]),
    ],
)
def test_a_mistake_gets_one_line_not_a_traceback(run, arguments, words):
    error = run("diagnose", *arguments, code=2).stderr
    assert "Traceback" not in error
    for word in words:
        assert word in error.lower()


def test_warnings_about_the_input_are_shown(run, tables):
    nodes, edges, folder = tables
    pa.csv.write_csv(nodes, folder / "n.csv")
    pa.csv.write_csv(pa.concat_tables([edges, edges]), folder / "e.csv")
    done = run("diagnose", "--nodes", folder / "n.csv", "--edges", folder / "e.csv", "--json")
    assert "note: " in done.stderr
    assert "3 of 6 edges repeat" in done.stderr
    assert json.loads(done.stdout)["duplicate_edges"] == 3


def test_datasets_shows_what_is_missing(run, tmp_path):
    rows = json.loads(run("datasets", "--root", tmp_path, "--json").stdout)
    assert len(rows) == 18
    assert not any(row["present"] for row in rows)
    assert list(tmp_path.iterdir()) == []
    assert "on first use" in run("datasets", "--root", tmp_path).stdout


def test_the_list_of_data_sets_is_quick_and_narrow(tmp_path):
    code = "import sys; from gpatcher.cli import app; sys.argv = ['gpatcher', 'datasets']\n"
    code += "try:\n    app()\nfinally:\n    print({'torch', 'torch_geometric', 'numpy', 'scipy'} & set(sys.modules))"
    environment = {**os.environ, "GPATCHER_DATA": str(tmp_path), "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    *lines, loaded = done.stdout.splitlines()
    assert loaded == "set()"
    assert "Chameleon-filtered-directed" in done.stdout
    assert max(map(len, lines[: lines.index("")])) <= 80


def test_the_figures_of_data_sets_are_those_measured(run, data_root):
    rows = {row["name"]: row for row in json.loads(run("datasets", "--root", data_root, "--json").stdout)}
    for name in ("cornell", "chameleon-filtered"):
        result = diagnose(load_dataset(name, data_root), spectral=False)
        row = rows[result.name]
        assert [row[key] for key in ("nodes", "edges", "classes", "features")] == [
            result.nodes,
            result.edges,
            result.classes,
            result.features,
        ]
        assert row["heterophily"] == pytest.approx(result.node_heterophily, abs=1e-3)
    assert rows["Texas"]["heterophily"] == pytest.approx(0.913, abs=1e-3)
    assert rows["Texas"]["present"]


def test_diagnose_real_data(run, data_root):
    found = json.loads(run("diagnose", "texas", "--json", GPATCHER_DATA=str(data_root)).stdout)
    assert found["nodes"] == 183
    assert found["node_heterophily"] == pytest.approx(0.913, abs=1e-3)
    assert found["lemma1"]["constant 1/2"]["holds_as_printed"] is False


def test_a_note_is_shown_once_and_other_warnings_stay(capsys):
    from gpatcher.cli.console import warnings_as_notes
    from gpatcher.errors import warn_input

    def odd_twice_and_old():
        warn_input("odd rows")
        warn_input("odd rows")
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    with pytest.warns(DeprecationWarning, match="old"), warnings_as_notes():
        odd_twice_and_old()
    assert capsys.readouterr().err == "note: odd rows\n"


# ------------------------------------------------------------------------------------------ quiet


def silent(done):
    return not done.stdout and not done.stderr


def test_quiet_commands_print_nothing_but_write_their_files(run, tmp_path):
    graph = "csbm:n=80,features=4"
    fit = ("--model", "fast", "--set", "train.epochs=2", "--no-compare", "--quiet", "--out", "run")
    assert silent(run("fit", graph, *fit))
    assert (tmp_path / "run" / "report.html").is_file()
    assert silent(run("predict", "run", "--out", "p.csv", "--conformal", "0.9", "--quiet"))
    assert (tmp_path / "p.csv").is_file()
    # what is asked for as JSON is the result, and errors are told
    assert json.loads(run("explain", "run", "3", "--json", "--quiet").stdout)["members"]
    assert "no node" in run("explain", "run", "99999", "--quiet", code=2).stderr


def test_quiet_is_of_one_command(run):
    assert silent(run("diagnose", "csbm:n=40,features=4", "--no-spectral", "--quiet"))
    assert "heterophily" in run("diagnose", "csbm:n=40,features=4", "--no-spectral").stdout


def test_notes_are_written_above_a_spinner(monkeypatch):
    """Not by typer.echo, which writes past rich onto the line of the spinner."""
    import warnings as module
    from io import StringIO

    from gpatcher.cli.console import warnings_as_notes
    from gpatcher.errors import InputWarning

    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with warnings_as_notes():
        module.warn("two rows repeat", InputWarning, stacklevel=1)
        module.warn("two rows repeat", InputWarning, stacklevel=1)
    assert stream.getvalue() == "note: two rows repeat\n"


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "gpatcher", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == gpatcher.__version__
