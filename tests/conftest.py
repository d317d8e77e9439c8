import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpatcher import cli

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(autouse=True)
def same_threads():
    """Restore the number of threads of torch: training on more of them than cores spends its time waiting."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if before and torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets; tests that need it skip where there is none."""
    folder = os.environ.get("GPATCHER_DATA")
    if not folder:
        pytest.skip("GPATCHER_DATA is not set: no real data sets to test on")
    return Path(folder)


@pytest.fixture(scope="session")
def loopback_only() -> list[str]:
    """A command prefix that runs in a network of its own: Ray listens on every interface that there is."""
    pytest.importorskip("ray")
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("unshare or ip is not installed: no network namespace for a cluster")
    prefix = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not permitted here")
    return prefix


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def _open_pages(browser):
    """Open a page offline; return it with the requests it made and the errors it met."""
    before = browser.contexts
    yield partial(_opened, browser)
    for context in browser.contexts:
        if context not in before:
            context.close()


open_page = pytest.fixture(_open_pages, name="open_page")
# for all tests of a module: to load plotly takes seconds each time
open_shared_page = pytest.fixture(_open_pages, scope="module", name="open_shared_page")


@pytest.fixture
def serious_findings():
    """Return what axe-core finds on a page that keeps somebody from using it; AXE_CORE or npm's folder has the file."""
    candidates = [os.environ.get("AXE_CORE", ""), "node_modules/axe-core/axe.min.js"]
    script = next((Path(path) for path in candidates if path and Path(path).is_file()), None)
    if script is None:
        pytest.skip("axe-core is not installed: 'npm install axe-core', or AXE_CORE=/path/to/axe.min.js")

    def find(page):
        page.evaluate(script.read_text())
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        serious = [finding for finding in found if finding["impact"] in ("serious", "critical")]
        return [(finding["id"], finding["nodes"][0]["html"][:200]) for finding in serious]

    return find


def _opened(browser, path, width=1180, scheme="light"):
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    requests, errors = [], []
    page.on("request", lambda r: requests.append(r.url))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.goto(Path(path).resolve().as_uri())
    page.wait_for_selector(".figure .main-svg")
    return page, [r for r in requests if not r.startswith(("file:", "data:", "blob:"))], errors


@pytest.fixture
def shortened():
    """Return a candidate of the portfolio with five epochs or trees."""

    def shorten(candidate):
        changes = {"patches": {"train": {"epochs": 5}}, "trees": {"model": {"iterations": 5}}}.get(candidate.kind, {})
        parts = {section: {**candidate.settings.get(section, {}), **part} for section, part in changes.items()}
        return replace(candidate, settings={**candidate.settings, **parts})

    return shorten


@pytest.fixture
def command_in(monkeypatch, capsys):
    """Call the command in a folder without a new process, which takes seconds to load torch."""

    # enough for a page; all of them take a third of the time of a small fit
    monkeypatch.setattr("gpatcher.runs.evaluation._EXPLAINED", 20)
    monkeypatch.setattr("gpatcher.runs.evaluation._FEW", 2)

    def call(folder, *arguments, code=0, **variables):
        monkeypatch.chdir(folder)
        for name, value in {"GPATCHER_CACHE": str(folder / "cache"), "COLUMNS": "160", **variables}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["gpatcher", *map(str, arguments)])
        ended = 0
        try:
            cli.main()
        except SystemExit as end:
            ended = end.code or 0
        shown = capsys.readouterr()
        assert ended == code, shown.err
        return SimpleNamespace(stdout=shown.out, stderr=shown.err)

    return call
