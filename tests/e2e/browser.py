"""A real browser for tests: Debian's Chromium without a window, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, expect, sync_playwright

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# As root and in a container there is no sandbox; nothing but the pages under test is to be asked for.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--no-proxy-server",
)
_PATIENCE_MS = 20_000
expect.set_options(timeout=_PATIENCE_MS)
# That a form is answered with 422, or that a page isn't there, is no mistake of the page.
_STATUS = "Failed to load resource: the server responded with a status of"


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser for as long as the block runs. Without one the test is skipped on a user's machine, and fails in CI."""
    program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is not installed: no chromium on PATH")
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        yield browser
        browser.close()


class Visit:
    """What happens while somebody looks at pages.

    Attributes:
        page: the tab.
        strangers: addresses of other origins that were asked for; none of them was reached.
        complaints: errors of scripts, and what the console says: breaches of the content policy, say.
    """

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.strangers, self.complaints = page, list[str](), list[str]()
        self._origin = urlsplit(base)[:2]
        page.set_default_timeout(_PATIENCE_MS)
        page.route("**/*", self._let_pass)
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def press_to(self, selector: str, back: bool = False, most: int = 90) -> None:
        """Press Tab until that element has the focus."""
        for _ in range(most):
            self.page.keyboard.press("Shift+Tab" if back else "Tab")
            if self.page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    def _let_pass(self, route: Route, request: Request) -> None:
        scheme = urlsplit(request.url).scheme
        # What a page holds itself is no request.
        if urlsplit(request.url)[:2] == self._origin or scheme in ("data", "blob"):
            route.continue_()
        else:
            self.strangers.append(request.url)
            route.abort()

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_STATUS):
            self.complaints.append(message.text)


@contextmanager
def visiting(browser: Browser, base: str, **preferences: Any) -> Iterator[Visit]:
    """A tab with a profile of its own, that in the end has asked nobody else for anything and has no complaints.

    Args:
        base: the server's address; paths are under it.
        preferences: of ``Browser.new_context``: ``color_scheme``, ``viewport``, ``java_script_enabled`` and so on.
    """
    chosen: Mapping[str, Any] = {"viewport": {"width": 1280, "height": 844}, **preferences}
    with browser.new_context(base_url=base, **chosen) as context:
        visit = Visit(context.new_page(), base)
        yield visit
        assert visit.strangers == []
        assert visit.complaints == []
