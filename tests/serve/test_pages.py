"""The pages of the service in a real browser."""

import re

import pytest

from gpatcher.serve.guard import Limits
from gpatcher.serve.pages import lookup_page


@pytest.fixture
def visit(browser):
    """Open a page of a server; return it with the addresses it asked for and the errors it met."""
    contexts = []

    def open_page(address, width=1180, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        asked, errors = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(address)
        return page, asked, errors

    yield open_page
    for context in contexts:
        context.close()


def look_up(page, name):
    page.get_by_label("Id of a node").fill(name)
    page.get_by_role("button", name="Look up").click()


@pytest.mark.browser
def test_a_node_is_looked_up(server, visit):
    page, asked, errors = visit(server.address)
    assert page.locator("h1").inner_text() == "market: look a node up"
    look_up(page, "p007")
    page.wait_for_selector("#patch:not([hidden])")
    answer = server.post({"ids": ["p007"]}).json()["nodes"][0]
    why = server.client.get("/explain/p007").json()
    assert page.locator("#answer-title").inner_text() == f"p007: {answer['predicted']}"
    assert page.locator("#words").inner_text() == why["words"][0]
    rows = page.locator("#classes tr")
    assert rows.count() == 3
    assert rows.first.inner_text().split()[:2] == [answer["predicted"], f"{100 * answer['confidence']:.1f}%"]
    assert rows.first.locator("i").bounding_box()["width"] > rows.last.locator("i").bounding_box()["width"]
    assert page.locator("#members tr").count() == len(why["members"])
    assert page.locator("#columns tr").count() == len(why["columns"])
    assert all(url.startswith(server.address) or url.startswith("data:") for url in asked)
    assert errors == []
    # the address leads to the node again
    again, _, errors = visit(page.url)
    again.wait_for_selector("#answer:not([hidden])")
    assert again.locator("#answer-title").inner_text().startswith("p007")
    assert errors == []


@pytest.mark.browser
def test_an_unknown_node_gives_the_message(server, visit):
    page, _, _ = visit(server.address)
    look_up(page, "p007")
    page.wait_for_selector("#patch:not([hidden])")
    look_up(page, "<b>no/body</b>")
    page.wait_for_selector("#error:not([hidden])")
    assert "no node with the id '<b>no/body</b>'" in page.get_by_role("alert").inner_text()
    assert page.locator("#answer").is_hidden()
    assert page.locator("#patch").is_hidden()


@pytest.mark.browser
def test_the_answer_comes_before_its_explanation(serve_in_thread, stub_run, visit):
    stub_run.go.set()
    stub_run.explain_go.clear()
    page, _, errors = visit(str(serve_in_thread(stub_run, Limits(seconds=1)).base_url))
    look_up(page, "9007199254740993")
    page.wait_for_selector("#answer:not([hidden])")
    assert stub_run.asked == [9007199254740993]  # a number, not rounded
    assert "being made" in page.locator("#words").inner_text()
    page.wait_for_selector("#error:not([hidden])")
    assert "ask again later" in page.get_by_role("alert").inner_text()
    assert page.locator("#answer").is_visible()
    stub_run.explain_go.set()
    look_up(page, "9007199254740993")
    page.wait_for_selector("#patch:not([hidden])")
    assert page.locator("#words").inner_text() == "Because."
    assert page.locator("#own").is_hidden()
    assert page.locator("#members").inner_text().split()[-3:] == ["+0.500", "for", "b"]
    assert [error for error in errors if "503" not in error] == []


@pytest.mark.browser
def test_the_page_asks_for_the_token(strict_server, token, visit):
    page, _, _ = visit(strict_server.address)
    assert page.locator("h1").inner_text() == "gpatcher: look a node up"
    look_up(page, "p007")
    page.wait_for_selector("#error:not([hidden])")
    assert "token is missing or wrong" in page.get_by_role("alert").inner_text()
    page.get_by_label("Token").fill(token)
    look_up(page, "p007")
    page.wait_for_selector("#patch:not([hidden])")
    assert token not in page.url


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1180])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_screen_and_have_dark_colours(server, visit, width, scheme):
    def brightness(page):
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3

    page, _, errors = visit(server.address, width, scheme)
    look_up(page, "p007")
    page.wait_for_selector("#patch:not([hidden])")
    reference, asked, more = visit(server.address + "/docs", width, scheme)
    assert asked == [server.address + "/docs"]
    assert "POST /predict" in reference.locator("main").inner_text()
    for one in (page, reference):
        assert one.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert (brightness(one) > 128) == (scheme == "light")
        assert one.get_by_role("main").count() == 1
    assert errors + more == []


@pytest.mark.browser
def test_the_pages_can_be_used_by_everybody(server, visit, serious_findings):
    page, _, _ = visit(server.address)
    look_up(page, "p007")
    page.wait_for_selector("#patch:not([hidden])")
    assert serious_findings(page) == []
    assert serious_findings(visit(server.address + "/docs")[0]) == []


def test_names_from_the_data_are_escaped():
    page = lookup_page("<b>x</b>", ["</script><script>alert(1)</script>"], numbers=False)
    assert "<b>x</b>" not in page
    assert "<script>alert(1)" not in page
