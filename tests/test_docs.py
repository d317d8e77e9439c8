"""The documentation: its code runs, its site builds strictly, and it names every departure from the paper."""

import ast
import contextlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest

import gpatcher
from gpatcher import cli
from gpatcher.baselines import BASELINES
from gpatcher.estimator.portfolio import shipped_portfolio
from gpatcher.runs import evaluation
from gpatcher.training import loop

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<above>.*\n)?```(?P<language>\w*).*\n(?P<code>(?:.*\n)*?)```$", re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
SHELL = ("bash", "console", "sh")
TABLES = ROOT / "docs" / "data"  # of the tutorial


def blocks(page):
    """Yield (language, code) of the blocks to run, in order; `<!-- not run: reason -->` above one leaves it out."""
    for found in FENCE.finditer(page.read_text()):
        if found["language"] in ("python", *SHELL) and not NOT_RUN.match(found["above"] or ""):
            line = page.read_text()[: found.start("code")].count("\n")
            yield found["language"], found["code"], line


def commands(code):
    """Yield the commands of a block as lists of words, comments left out."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def call(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, f"{shlex.join(words)} ended with {ended.value.code}"


@pytest.mark.parametrize("page", [p for p in PAGES if any(blocks(p))], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_code_runs(page, tmp_path, monkeypatch, shortened):
    # one member of each kind, since explanations of all take a minute; tests/estimator trains them all
    first = {candidate.kind: shortened(candidate) for candidate in reversed(shipped_portfolio())}
    monkeypatch.setattr("gpatcher.estimator.ensemble.shipped_portfolio", lambda: tuple(first.values()))
    # few epochs and explanations: the pages are run, how well models learn is tested elsewhere
    train = loop.train

    def train_shortly(model, x, y, split, config, **more):
        return train(model, x, y, split, replace(config, epochs=min(config.epochs, 15)), **more)

    monkeypatch.setattr(loop, "train", train_shortly)
    monkeypatch.setattr(evaluation, "_EXPLAINED", 20)
    monkeypatch.setattr(evaluation, "_FEW", 2)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TABLES, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GPATCHER_DATA", str(tmp_path / "data"))
    names = {"__name__": "__main__"}
    with patch.dict(BASELINES):  # a page may add a model
        for language, code, line in blocks(page):
            if language == "python":
                # empty lines in front, so that an error names the line of the page
                exec(compile("\n" * line + code, str(page), "exec"), names)
                continue
            for words in commands(code):
                assert words[0] == "gpatcher", f"{page}: {words[0]!r} is not run here; say why above the block"
                call(words, monkeypatch)


def test_the_reference_of_commands_is_current():
    made = runpy.run_path(str(ROOT / "tools" / "commands.py"))["reference"]()
    assert (ROOT / "docs" / "commands.md").read_text() == made, "run 'python tools/commands.py'"
    for name in ("fit", "predict", "explain", "report"):
        assert f"## {name}\n" in made
    assert "| `--conformal LEVEL` |" in made


def test_the_tables_of_the_tutorial_are_current(tmp_path):
    runpy.run_path(str(ROOT / "tools" / "tutorial_tables.py"))["main"](tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        path.name: path.read_text() for path in TABLES.iterdir()
    }


def test_every_block_names_its_language():
    for page in PAGES:
        for found in FENCE.finditer(page.read_text()):
            assert found["language"] in ("python", "text", *SHELL), f"{page}: {found[0]}"


def test_blocks_are_found_and_left_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n```python\na = 1\n```\n\n<!-- not run: too large -->\n```bash\ngpatcher fit\n```\n\n"
        "```text\nno code\n```\n```bash\ngpatcher fit \\\n  x  # why\n```\n"
    )
    found = list(blocks(page))
    assert [language for language, _, _ in found] == ["python", "bash"]
    assert found[0][1:] == ("a = 1\n", 2)
    assert list(commands(found[1][1])) == [["gpatcher", "fit", "x"]]


# ------------------------------------------------------------------------------------------------ the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed: pip install gpatcher[docs]")
    folder = tmp_path_factory.mktemp("site")
    # not --quiet: it hides warnings from --strict too
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_public_name_is_in_the_reference(site):
    pages = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    for name in gpatcher.__all__:
        assert re.search(rf'id="gpatcher\.[\w.]*\b{name}"', pages), f"{name} is on no page of the reference"


def test_nothing_is_loaded_from_elsewhere(site):
    outside = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="?((?:https?:)?//[^">\s]+)')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        loaded = outside.findall(page.read_text())
        assert not loaded, f"{page.relative_to(site)} loads {loaded}"


def test_a_parameter_has_its_type_and_description(site):
    page = re.sub(r"<[^>]+>", " ", (site / "api" / "patches.html").read_text())
    assert "index ( int32 array, shape (n, p) ) – The node itself" in " ".join(page.split())


def test_formulas_are_blocks_of_code(site):
    pages = [page.read_text() for page in (site / "api").glob("*.html")]
    assert any('<span class="k">\\sum' in page for page in pages)
    assert not any(".. math" in page for page in pages)


def test_the_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link


# ----------------------------------------------------------------------------------------------- the paper


def departures():
    """Yield (module, words) of every NOTE[DIFF] in the source."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = path.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".")
        for words in re.findall(r"NOTE\[DIFF\] (.+)", path.read_text()):
            yield module, words


def test_every_departure_has_its_row():
    text = (ROOT / "docs" / "paper-to-code.md").read_text()
    table = text.partition("## Departures")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(gpatcher[\w.]*)` \|", table, re.MULTILINE)
    found = [module for module, _ in departures()]
    assert found
    assert sorted(rows) == sorted(found)


def test_the_names_in_paper_to_code_exist():
    text = (ROOT / "docs" / "paper-to-code.md").read_text()
    for name in set(re.findall(r"`(gpatcher(?:\.\w+)+)[`(]", text)):
        with contextlib.suppress(ModuleNotFoundError):
            __import__(name)
            continue
        module, _, attribute = name.rpartition(".")
        __import__(module)
        assert hasattr(sys.modules[module], attribute), f"there is no {name}"


def is_defined(file, name):
    """Whether a file of the package defines a function, a class, or a class with this method."""
    first, _, method = name.partition(".")
    nodes = ast.walk(ast.parse((ROOT / "src" / "gpatcher" / file).read_text()))
    if not any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and n.name == first for n in nodes):
        return False
    module = import_module(f"gpatcher.{file.removesuffix('.py').replace('/', '.')}")
    return not method or hasattr(getattr(module, first), method)


def test_the_call_sequences_of_the_architecture_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    sequences = text.partition("call sequences\n")[2].partition("\n## ")[0].split("\n**")[1:]
    assert len(sequences) == 5
    for sequence in sequences:
        steps = re.split(r"^\d+\. ", sequence, flags=re.MULTILINE)[1:]
        assert 8 <= len(steps) <= 12, sequence
        for step in steps:
            files = re.findall(r"`([\w/]+\.py)`", step)
            assert files, f"{step!r} names no file"
            for file in files:
                assert (ROOT / "src" / "gpatcher" / file).is_file(), f"there is no {file}"
            for file, name in re.findall(r"`([\w/]+\.py)`:(?: the route)? `([\w.]+)`", step):
                assert is_defined(file, name), f"there is no {name} in {file}"


def test_results_are_those_of_the_records(monkeypatch):
    monkeypatch.chdir(ROOT)
    tool = runpy.run_path("tools/results.py")
    for path, text in tool["made"]().items():
        assert path.read_text() == text, f"{path} is not what the records say; run tools/results.py"


def test_tables_of_the_benchmarks_are_those_of_the_records():
    record = runpy.run_path(str(ROOT / "benchmarks" / "record.py"))
    assert record["README"].read_text() == record["readme"](), "run benchmarks/record.py"


def test_the_cost_model_is_that_of_the_record(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for path, text in runpy.run_path(str(ROOT / "benchmarks" / "scale.py"))["made"]().items():
        assert path.read_text() == text, f"{path} is not what the record says; run benchmarks/scale.py"
