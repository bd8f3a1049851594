"""The first pages in a real browser, by keyboard alone: the form, the answer that comes by itself, what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import Visit, browsing, visiting
from tests.e2e.servers import Server, lasting, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pages")
    with serving(f"sqlite:///{folder / 'planner.db'}", folder) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as running:
        yield running


@pytest.fixture
def visit(server: Server, browser: Browser) -> Iterator[Visit]:
    with visiting(browser, server.address) as opened:
        yield opened


def fill(visit: Visit, **typed: object) -> None:
    """Go from field to field and type; the fields in the order of the form."""
    for name, text in typed.items():
        visit.press_to(f"#ask-{name}")
        visit.page.keyboard.press("Control+a")
        visit.page.keyboard.press("Backspace")
        visit.page.keyboard.insert_text(str(text))


def search_id(page: Page) -> str:
    found = re.search(r"/searches/([0-9a-f]{32})$", page.url)
    assert found is not None, page.url
    return found[1]


def test_the_answer_comes_by_itself(visit: Visit, server: Server) -> None:
    page = visit.page
    page.goto("/searches")
    visit.press_to(".skip")
    assert page.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    fill(visit, model="llama-3.2-1b", devices=8, global_batch_size=64, seq_len=4096, top=3)
    page.keyboard.press("Enter")
    expect(page.locator("table.ranked tbody tr")).to_have_count(3)
    answer = server.search(search_id(page))
    assert page.locator(".best span").inner_text() == f"{answer['best']:.3f} s"
    expect(page.locator("#live")).to_have_count(0)


def test_steps_are_shown_without_a_new_page_and_cancelling_keeps_the_focus(visit: Visit, server: Server) -> None:
    asked = server.ask(lasting(20)).json()["id"]
    page = visit.page
    page.goto(f"/searches/{asked}")
    page.evaluate("window.here = true")
    visit.press_to("form button")
    expect(page.locator("#live .says")).to_have_text(re.compile("plans priced|decisions listed"))
    assert page.evaluate("window.here && document.activeElement.matches('form button')")
    page.keyboard.press("Enter")
    expect(page.locator("h2").first).to_have_text("Cancelled")
    assert server.state(asked) == "cancelled"
    visit.press_to("a.button")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/searches?from={asked}")
    assert page.input_value("#ask-model") == "deepseek-v3"


def test_what_is_refused_has_the_focus_and_keeps_what_was_typed(visit: Visit) -> None:
    page = visit.page
    page.goto("/searches")
    # Folded away, as there are searches by now.
    visit.press_to(".asking > summary")
    page.keyboard.press("Enter")
    fill(visit, model="lama-3.1-70b", seq_len="", pins="tp=x\npp=4")
    visit.press_to("form.ask button")
    page.keyboard.press("Enter")
    expect(page.locator("#wrong")).to_be_focused()
    kept = {"ask-model": "lama-3.1-70b", "ask-seq_len": "", "ask-pins": "tp=x\npp=4"}
    assert {identifier: page.input_value(f"#{identifier}") for identifier in kept} == kept
    assert page.eval_on_selector_all("[aria-invalid]", "fields => fields.map(field => field.id)") == list(kept)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#ask-seq_len")).to_be_focused()
