"""All pages in a real browser: for whoever can't see, has no script, a telephone or the dark; and what is clicked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import browsing, visiting
from tests.e2e.servers import Server, lasting, serving
from tests.e2e.showcase import UNSAFE, Showcase, furnished

PAGES = (
    "searches",
    "ask-again",
    "search",
    "infeasible",
    "unsafe",
    "plan",
    "launch",
    "compare",
    "compare-empty",
    "scaling",
    "scaling-empty",
    "studies",
    "study",
    "fidelity",
    "catalog",
    "model",
    "accelerator",
    "cluster",
    "framework",
    "api",
    "missing",
)
_TAGS = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}
_WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
_CUT = """
[...document.querySelectorAll('.scroll')]
  .filter(box => box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX != 'auto').length
"""
_SMALLEST_TEXT = """
Math.min(...[...document.querySelectorAll('.picture > svg')].map(picture => {
  const text = parseFloat(getComputedStyle(picture.querySelector('text')).fontSize);
  return text * picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
}))
"""
_LUMINANCES = """
["backgroundColor", "color"].map(name => {
  const [red, green, blue] = getComputedStyle(document.body)[name].match(/\\d+/g).map(Number);
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="module")
def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'planner.db'}"


@pytest.fixture(scope="module")
def server(url: str, folder: Path) -> Iterator[Server]:
    with serving(url, folder) as running:
        yield running
        assert running.complaints() == []


@pytest.fixture(scope="module")
def showcase(server: Server, url: str, folder: Path) -> Showcase:
    return furnished(server, url, folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as running:
        yield running


def _violations(page: Page) -> list[str]:
    found = Axe().run(page, options=_TAGS).response["violations"]
    return [f"{one['id']}: {one['help']}: {node['html'][:200]}" for one in found for node in one["nodes"][:5]]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(name: str, browser: Browser, server: Server, showcase: Showcase) -> None:
    with visiting(browser, server.address) as visit:
        page = visit.page
        page.goto(showcase.paths[name])
        expect(page.locator("h1")).to_have_count(1)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            back, text = page.evaluate(_LUMINANCES)
            assert (back < 0.2 < 0.7 < text) if scheme == "dark" else (text < 0.2 < 0.9 < back)
            assert _violations(page) == []
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert not page.evaluate(_WIDER), width
            # Where a table is wider than its box, the box scrolls, and takes the focus for that.
            assert page.evaluate(_CUT) == 0


@pytest.mark.parametrize("name", ["search", "plan", "compare", "scaling", "study", "fidelity"])
def test_charts_are_there_without_a_script_and_move_nothing_when_zoomed(
    name: str, browser: Browser, server: Server, showcase: Showcase
) -> None:
    with visiting(browser, server.address, java_script_enabled=False) as visit:
        visit.page.goto(showcase.paths[name])
        expect(visit.page.locator("figure.chart svg").first).to_be_visible()
        for width in (1280, 390):
            visit.page.set_viewport_size({"width": width, "height": 844})
            assert visit.page.evaluate(_SMALLEST_TEXT) >= 10.0, width
    with visiting(browser, server.address) as visit:
        page = visit.page
        page.goto(showcase.paths[name])
        button = page.get_by_role("button", name="Zoom").first
        chart = page.locator("figure.chart").filter(has=page.get_by_role("button", name="Zoom")).first
        before = chart.bounding_box()
        button.click()
        expect(chart.locator(".main-svg").first).to_be_visible()
        after = chart.bounding_box()
        assert before is not None
        assert after is not None
        assert after["height"] == pytest.approx(before["height"], abs=1)


def test_from_the_question_to_the_launch(browser: Browser, server: Server, showcase: Showcase) -> None:
    """What a newcomer does: asks, looks, wonders why plan 2 is slower, and launches plan 1."""
    with visiting(browser, server.address) as visit:
        page = visit.page
        page.goto("/searches")
        page.locator("summary", has_text="Ask for plans").click()
        for field, text in (("model", "llama-3.2-1b"), ("devices", "8"), ("global_batch_size", "64"), ("top", "4")):
            page.fill(f"#ask-{field}", text)
        page.fill("#ask-seq_len", "4096")
        page.get_by_role("button", name="Ask for plans").click()
        rows = page.locator("table.ranked tbody tr")
        expect(rows).to_have_count(4)
        asked = page.url
        rows.nth(1).get_by_role("link", name=re.compile("slower|why", re.IGNORECASE)).click()
        expect(page).to_have_url(re.compile(r"/compare\?plan="))
        expect(page.locator("main")).to_contain_text(re.compile("faster|slower"))
        page.go_back()
        expect(page).to_have_url(asked)
        rows.first.locator("a[href^='/plans/']").first.click()
        expect(page).to_have_url(re.compile("/plans/"))
        page.goto(f"{page.url.partition('?')[0]}?target=megatron-lm")
        expect(page.locator("main")).to_contain_text("--tensor-model-parallel-size")
        with page.expect_download() as download:
            page.get_by_role("link", name=re.compile("download|trace", re.IGNORECASE)).first.click()
        assert download.value.path().stat().st_size > 100


def test_the_timeline_moves_nothing_when_it_comes_and_keeps_the_focus(
    browser: Browser, server: Server, showcase: Showcase
) -> None:
    section = "#timeline-section"
    with visiting(browser, server.address, java_script_enabled=False) as visit:
        visit.page.goto(showcase.paths["plan"])
        before = visit.page.locator(section).bounding_box()
    with visiting(browser, server.address) as visit:
        page = visit.page
        page.goto(showcase.paths["plan"])
        page.locator(section).scroll_into_view_if_needed()
        expect(page.locator(f"{section} svg")).to_be_visible()
        after = page.locator(section).bounding_box()
        assert before is not None
        assert after is not None
        assert after["height"] == pytest.approx(before["height"], abs=1)
        page.locator("#timeline-zoom-in").focus()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("timeline=25-75"))
        expect(page.locator("#timeline-zoom-in")).to_be_focused()
        # What is copied can be copied after going back, too.
        page.go_back()
        page.locator("button.copy").first.click()
        expect(page.locator("button.copy").first).to_have_text("Copied")


def test_sorted_filtered_and_back(browser: Browser, server: Server, showcase: Showcase) -> None:
    with visiting(browser, server.address) as visit:
        page = visit.page
        page.goto(showcase.paths["search"])
        peaks = page.locator("table.ranked tbody tr .rank")
        ranked = peaks.all_inner_texts()
        page.locator("table.ranked thead").get_by_role("link", name=re.compile("peak")).click()
        expect(page).to_have_url(re.compile("sort="))
        expect(peaks).not_to_have_text(ranked)
        assert sorted(peaks.all_inner_texts(), key=int) == ranked
        page.go_back()
        expect(peaks).to_have_text(ranked)
        with page.expect_download() as download:
            page.get_by_role("link", name="CSV").click()
        lines = download.value.path().read_text(encoding="utf-8").splitlines()
        assert len(lines) == 1 + len(ranked)
        page.goto("/searches")
        page.get_by_label("Result").select_option("infeasible")
        page.get_by_role("button", name="Filter").click()
        expect(page).to_have_url(re.compile("status=infeasible"))
        expect(page.locator("main tbody tr")).to_have_count(1)


def test_plans_that_are_ticked_are_compared(browser: Browser, server: Server, showcase: Showcase) -> None:
    with visiting(browser, server.address) as visit:
        page = visit.page
        page.goto(showcase.paths["search"])
        for place in (0, 2, 3):
            page.locator("table.ranked tbody input[type=checkbox]").nth(place).check()
        page.get_by_role("button", name="Compare").click()
        expect(page).to_have_url(re.compile(r"/compare\?plan=[0-9a-f]{32}&plan=[0-9a-f]{32}&plan=[0-9a-f]{32}"))
        expect(page.get_by_role("heading", name=re.compile("^Why plan"))).to_have_count(2)


def test_a_relaxation_is_one_click_away(browser: Browser, server: Server, showcase: Showcase) -> None:
    with visiting(browser, server.address) as visit:
        page = visit.page
        page.goto(showcase.paths["infeasible"])
        page.get_by_role("button", name=re.compile("search", re.IGNORECASE)).first.click()
        expect(page).to_have_url(re.compile(r"/searches/[0-9a-f]{32}"))
        expect(page).not_to_have_url(re.compile(showcase.paths["infeasible"]))
        expect(page.locator("table.ranked")).to_be_visible(timeout=60_000)


def test_names_are_text(browser: Browser, server: Server, showcase: Showcase) -> None:
    with visiting(browser, server.address) as visit:
        visit.page.goto(showcase.paths["unsafe"])
        expect(visit.page.locator("h1")).to_contain_text(UNSAFE)
        visit.page.goto("/searches")
        expect(visit.page.get_by_role("link", name=UNSAFE)).to_be_visible()


def test_two_look_at_the_same_search(browser: Browser, server: Server, showcase: Showcase) -> None:
    asked = server.ask(lasting(60)).json()["id"]
    with visiting(browser, server.address) as one, visiting(browser, server.address) as other:
        for visit in (one, other):
            visit.page.goto(f"/searches/{asked}")
            expect(visit.page.get_by_role("button", name="Cancel")).to_be_visible()
        one.page.get_by_role("button", name="Cancel").click()
        for visit in (one, other):
            expect(visit.page.locator("main")).to_contain_text("Cancelled")


def test_the_server_is_started_anew_under_an_open_page(browser: Browser, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'planner.db'}"
    with serving(url, tmp_path) as first:
        asked = first.ask(lasting(30)).json()["id"]
        with browser.new_context(base_url=first.address) as context:
            page = context.new_page()
            page.goto(f"/searches/{asked}")
            expect(page.get_by_role("button", name="Cancel")).to_be_visible()
            port = first.port
            first.kill()
            with serving(url, tmp_path, port=port) as second:
                second.client.post(f"/v1/searches/{asked}/cancel").raise_for_status()
                expect(page.locator("main")).to_contain_text("Cancelled", timeout=60_000)
