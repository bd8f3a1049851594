"""The pages in a real browser, by keyboard alone: the form, the answer that comes by itself, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.e2e.browser import Browser, Tab, browsing
from tests.e2e.servers import Server, lasting, serving

_RANKED = "document.querySelectorAll('table.ranked tbody tr').length"
_SAID = "document.querySelector('#live .says').innerText"
_WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
_FOCUS = "document.activeElement.id"
_LUMINANCES = """
["backgroundColor", "color"].map(name => {
  const [red, green, blue] = getComputedStyle(document.body)[name].match(/\\d+/g).map(Number);
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pages")
    with serving(f"sqlite:///{folder / 'planner.db'}", folder) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def tab(server: Server, browser: Browser) -> Iterator[Tab]:
    """A tab that in the end has asked nobody else for anything and has nothing to complain of."""
    base = str(server.client.base_url).rstrip("/")
    opened = browser.tab(base)
    yield opened
    assert opened.requests
    assert [url for url in opened.requests if not url.startswith(f"{base}/")] == []
    assert opened.complaints == []


def fill(tab: Tab, **typed: object) -> None:
    """Go from field to field and type; the fields in the order of the form."""
    for name, text in typed.items():
        tab.tab_to(f"#ask-{name}")
        tab.type(str(text))


def search_id(tab: Tab) -> str:
    found = re.fullmatch(r"/searches/([0-9a-f]{32})", tab.js("location.pathname"))
    assert found is not None, tab.js("location.href")
    return found[1]


def test_the_answer_comes_by_itself(tab: Tab, server: Server) -> None:
    tab.open("/searches")
    tab.tab_to(".skip")
    with_skip = tab.js("document.activeElement.getBoundingClientRect().left >= 0")
    assert with_skip
    fill(tab, model="llama-3.2-1b", devices=8, global_batch_size=64, seq_len=4096, top=3)
    with tab.leaving():
        tab.press("Enter")
    tab.wait_for(f"{_RANKED} == 3")
    answer = server.search(search_id(tab))
    assert tab.js("document.querySelector('.best span').innerText") == f"{answer['best']:.3f} s"
    assert tab.js("document.querySelector('#live')") is None


def test_steps_are_shown_without_a_new_page_and_cancelling_keeps_the_focus(tab: Tab, server: Server) -> None:
    asked = server.ask(lasting(20)).json()["id"]
    tab.open(f"/searches/{asked}")
    tab.js("window.here = true")
    tab.tab_to("form button")
    tab.wait_for(f"/plans priced|decisions listed/.test({_SAID})")
    assert tab.js("window.here && document.activeElement.matches('form button')")
    with tab.leaving():
        tab.press("Enter")
    tab.wait_for("document.querySelector('h2').innerText == 'Cancelled'")
    assert server.state(asked) == "cancelled"
    tab.tab_to("a.button")
    with tab.leaving():
        tab.press("Enter")
    assert tab.js("location.search") == f"?from={asked}"
    assert tab.js("document.querySelector('#ask-model').value") == "deepseek-v3"


def test_what_is_refused_has_the_focus_and_keeps_what_was_typed(tab: Tab) -> None:
    tab.open("/searches")
    fill(tab, model="lama-3.1-70b", seq_len="", pins="tp=x\npp=4")
    tab.tab_to("form.ask button")
    with tab.leaving():
        tab.press("Enter")
    tab.wait_for(f"{_FOCUS} == 'wrong'")
    kept = {"ask-model": "lama-3.1-70b", "ask-seq_len": "", "ask-pins": "tp=x\npp=4"}
    for identifier, text in kept.items():
        assert tab.js(f"document.getElementById({json.dumps(identifier)}).value") == text
    assert tab.js("[...document.querySelectorAll('[aria-invalid]')].map(field => field.id)") == list(kept)
    tab.press("Tab")
    tab.press("Tab")
    tab.press("Enter")
    tab.wait_for(f"{_FOCUS} == 'ask-seq_len'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_follow_the_scheme(tab: Tab, server: Server, scheme: str, width: int) -> None:
    tab.resize(width)
    tab.prefer(scheme)
    small = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "devices": 8, "global_batch_size": 64, "seq_len": 4096}
    answered = server.ask(small, wait=30).json()["id"]
    nothing = server.ask(small | {"model": "llama-3.1-405b"}, wait=30).json()["id"]
    paths = ["/searches", f"/searches?from={answered}", f"/searches/{answered}", f"/searches/{nothing}", "/docs", "/no"]
    for path in paths:
        tab.open(path)
        assert not tab.js(_WIDER), path
        back, text = tab.js(_LUMINANCES)
        assert (back < 0.2 < 0.7 < text) if scheme == "dark" else (text < 0.2 < 0.9 < back), path
        # Where a table is wider than its box, the box scrolls, and takes the focus for that.
        assert tab.js(
            "[...document.querySelectorAll('.scroll')]"
            ".every(box => box.scrollWidth <= box.clientWidth || getComputedStyle(box).overflowX == 'auto')"
        )
