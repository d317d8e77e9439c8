"""Pages in a real browser: complete, self-contained, escaped, deterministic."""

import re
from itertools import pairwise

import plotly.graph_objects as go
import pytest

from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.synthetic import csbm, rmat
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.report.diagnosis import write_diagnosis
from gpatcher.report.page import Figure, Heading, Notes, Table, write_page
from gpatcher.spectral.diagnosis import diagnose

PLOTS = [
    "Node heterophily",
    "Spectral energy",
    "Degrees",
    "Class balance",
    "Class compatibility",
]


@pytest.fixture(scope="module")
def diagnosis_page(open_shared_page, tmp_path_factory):
    path = tmp_path_factory.mktemp("diagnosis") / "r.html"
    return open_shared_page(write_diagnosis(diagnose(csbm(phi=-0.8, n=300, features=8)), path))


@pytest.mark.browser
def test_diagnosis_page_in_a_browser(diagnosis_page):
    page, requests, errors = diagnosis_page
    assert requests == []
    assert errors == []
    headings = page.locator("section.figure :is(h2, h3)").all_inner_texts()
    assert headings == PLOTS
    assert page.locator("section.figure .main-svg").count() >= len(PLOTS)
    # every plot has marks of a positive width
    for figure in page.locator("section.figure").all():
        marks = figure.locator(".bars path, .scatterlayer path, .heatmaplayer image")
        assert marks.count() > 0
        assert marks.first.bounding_box()["width"] > 0
    assert page.locator("table").nth(1).locator("tbody tr").count() == 3
    assert "fails on these numbers" in page.locator("main").inner_text()
    # the page does not scroll sideways
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.browser
def test_landmarks_and_headers_of_tables(diagnosis_page):
    page, _, _ = diagnosis_page
    assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
    assert page.get_by_role("columnheader", name="meaning").count() == 1
    assert page.get_by_role("rowheader", name="edge homophily").count() == 1
    assert page.get_by_role("group", name="Degrees").count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


LONG = "a title that is far too long for the axis of a figure on the screen of a telephone"


@pytest.fixture(scope="module")
def wide_page(open_shared_page, tmp_path_factory):
    """Long titles of axes, a table of many columns and a long legend, opened on the screen of a telephone."""
    bars = go.Figure(go.Bar(x=["one", "two"], y=[1, 2])).update_xaxes(title=LONG).update_yaxes(title=LONG)
    columns = ("name", "first column", "second column", "third column", "fourth column", "fifth column")
    many = go.Figure([go.Bar(x=["one"], y=[1], name=f"a model with a long name, number {i}") for i in range(8)])
    parts = [
        Figure("f", "", bars),
        Table("t", "", columns, [["row", *(f"value {i}" for i in range(5))]] * 2),
        Figure("g", "", many, wide=True),
        Figure("h", "", go.Figure(go.Bar(x=["one"], y=[1])), wide=True),
    ]
    return open_shared_page(write_page(tmp_path_factory.mktemp("wide") / "r.html", "t", "s", parts), width=390)


# counts the figures that page.js has adapted: the height is the last thing that it sets
COUNT = """() => {
    const relayout = Plotly.relayout;
    window.adapted = 0;
    Plotly.relayout = (plot, layout) => relayout(plot, layout).then((done) => {
        window.adapted += Object.keys(layout).join() === "height";
        return done;
    });
}"""


def resized(page, width):
    if page.evaluate("window.adapted === undefined"):
        page.wait_for_function("document.querySelectorAll('.js-plotly-plot')[1]._fullLayout.height > 320")
        page.evaluate(COUNT)
    if page.viewport_size["width"] != width:
        page.evaluate("window.adapted = 0")
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("window.adapted === 3")


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 800, 1600])
def test_nothing_is_cut_at_any_width(wide_page, width):
    page, _, errors = wide_page
    resized(page, width)
    assert errors == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    box = page.locator(".js-plotly-plot").first.bounding_box()
    titles = page.locator(".js-plotly-plot").first.locator(".xtitle, .ytitle").all()
    assert len(titles) == 2
    for title in titles:
        inner = title.bounding_box()
        assert box["x"] - 1 <= inner["x"]
        assert inner["x"] + inner["width"] <= box["x"] + box["width"] + 1
        assert inner["y"] >= box["y"] - 1
        assert inner["y"] + inner["height"] <= box["y"] + box["height"] + 1
    last = page.get_by_text("value 4").first.bounding_box()
    assert last["x"] + last["width"] <= width


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
def test_a_long_legend_takes_no_room_from_its_plot(wide_page, width):
    page, _, errors = wide_page
    resized(page, width)
    assert errors == []
    _, first, second = page.locator(".js-plotly-plot").all()
    assert first.evaluate("(plot) => plot._fullLayout._size.h") >= 180
    assert second.evaluate("(plot) => plot._fullLayout.height") == 320
    legend, below = first.locator(".legend").bounding_box(), page.locator("section.figure").nth(2).bounding_box()
    assert legend["height"] > 30
    drawn = first.locator(".main-svg").first.bounding_box()
    assert drawn["y"] + drawn["height"] <= below["y"]


def brightness(colour):
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3


@pytest.mark.browser
def test_colours_are_dark_or_light_and_on_paper_light(open_page, tmp_path):
    path = write_page(tmp_path / "r.html", "t", "s", [Figure("f", "", go.Figure(go.Bar(x=["one"], y=[1])))])
    page, _, _ = open_page(path, scheme="dark")

    def colours():
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.locator(".xtick text").first.evaluate("(text) => getComputedStyle(text).fill")
        return brightness(ground), brightness(ink)

    dark, chalk = colours()
    assert dark < 60 < 200 < chalk
    before = page.locator(".xtick text").first.evaluate("(text) => getComputedStyle(text).fill")
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"getComputedStyle(document.querySelector('.xtick text')).fill !== '{before}'")
    light, ink = colours()
    assert ink < 60 < 200 < light
    page.emulate_media(color_scheme="dark")  # its event sets the width too: wait for it before that of printing
    page.wait_for_function(f"getComputedStyle(document.querySelector('.xtick text')).fill === '{before}'")
    page.emulate_media(media="print", color_scheme="dark")
    assert brightness(page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")) == 255
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("document.querySelector('.main-svg').clientWidth === 640")
    assert colours()[1] < 60


@pytest.mark.browser
def test_diagnosis_page_of_a_real_graph(open_page, tmp_path, data_root):
    path = write_diagnosis(diagnose(load_dataset("squirrel", data_root)), tmp_path / "r.html")
    page, requests, errors = open_page(path)
    assert (requests, errors) == ([], [])
    assert page.locator("h1").inner_text() == "Diagnosis of Squirrel"
    assert "39.8%" in page.locator("main").inner_text()
    assert page.locator("section.figure :is(h2, h3)").all_inner_texts() == PLOTS


BUTTONS = """() => [...document.querySelectorAll(".js-plotly-plot")].map((plot) =>
    [...plot._fullLayout._modeBar.buttonsNames,
     ...[...plot.querySelectorAll(".modebar-btn")].map((button) => button.getAttribute("data-title") ?? "logo")])"""
UPLOAD = re.compile("cloud|studio|share|upload|logo", re.IGNORECASE)


@pytest.mark.browser
def test_no_button_uploads_a_figure(diagnosis_page):
    page, _, _ = diagnosis_page
    plots = page.evaluate(BUTTONS)
    assert len(plots) == len(PLOTS)
    for names in plots:
        assert "toImage" in names
        assert not [name for name in names if UPLOAD.search(name)]
    # with the option on, plotly adds a button that this test recognises
    page.evaluate(
        """() => Plotly.newPlot(document.body.appendChild(document.createElement("div")), [{ y: [1, 2] }], {},
                                { showSendToCloud: true })"""
    )
    assert [name for name in page.evaluate(BUTTONS)[-1] if UPLOAD.search(name)]
    page.evaluate("document.body.lastElementChild.remove()")


def test_equal_parts_give_equal_bytes(tmp_path):
    for name in ("a.html", "b.html"):
        write_diagnosis(diagnose(csbm(phi=-0.8, n=100, features=8)), tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_figure_alone_in_its_row_is_wide(tmp_path):
    def classes(*parts):
        text = write_page(tmp_path / "r.html", "t", "s", parts).read_text()
        return re.findall(r'<section class="(figure[^"]*)"', text)

    figure, table = Figure("f", "", go.Figure()), Table("t", "", (), ())
    assert classes(figure, figure, table) == ["figure", "figure"]
    assert classes(figure, figure, figure, table) == ["figure", "figure", "figure wide"]
    assert classes(table, figure, Heading("h"), figure, Notes("n", [])) == ["figure wide", "figure"]


def test_names_from_the_data_are_escaped(tmp_path):
    graph = Graph.from_edge_index(
        [[0, 1], [1, 0]], y=[0, 1], classes=["<script>alert(1)</script>", "b"], name="<b>x</b>"
    )
    text = write_diagnosis(diagnose(graph), tmp_path / "r.html").read_text()
    assert "<b>x</b>" not in text
    assert "<script>alert(1)</script>" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text


def test_page_without_labels(tmp_path):
    graph = rmat(n=500, m=1500)
    bare = Graph(graph.indptr, graph.indices, name="bare")
    text = write_diagnosis(diagnose(bare), tmp_path / "r.html").read_text()
    assert "Degrees" in text
    assert "Class balance" not in text
    assert "not defined" in text


def test_a_failed_write_leaves_the_old_page(tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")

    class Broken:
        def __str__(self):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_page(path, "t", "s", [Notes("x", [Broken()])])
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    with pytest.raises(InputError, match="not a folder"):
        write_page(tmp_path / "no" / "r.html", "t", "s", [])
