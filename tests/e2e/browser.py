"""A real browser for tests: Chromium without a window, told what to do over two pipes in the DevTools protocol.

That is how Puppeteer and Playwright speak to it too. It takes a hundred lines here, where their packages bring a
hundred megabytes of browsers and runtimes that are never used, and Selenium a driver of just the browser's version.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 20.0
# As root and in a container there is no sandbox; nothing but the pages under test is to be asked for.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-pipe",
)
# The protocol has fixed numbers for its pipes; ours are above nine, so that neither is in the way of the other.
_START = 'exec "${@:3}" 3<&"$1" 4>&"$2"'
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Backspace": (8, ""), "a": (65, "")}
_CTRL, _SHIFT = 2, 8


class Refused(AssertionError):
    """The browser can't do what it was told to: the page that it was told of is gone, say."""


class Browser:
    """A running browser."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._last_id, self._unread, self._answers = 0, b"", dict[int, Json]()
        self.tabs: dict[str, Tab] = {}

    def tab(self, base: str) -> Tab:
        """A new tab, for the pages under that address."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.tabs[session] = Tab(self, session, base)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable", session)
        self.call("Emulation.setFocusEmulationEnabled", session, enabled=True)
        return self.tabs[session]

    def call(self, method: str, session: str | None = None, **params: Any) -> Json:
        """Do something; what the browser answers."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        message |= {} if session is None else {"sessionId": session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _PATIENCE_S
        while self._last_id not in self._answers:
            self.listen(end)
        answer = self._answers.pop(self._last_id)
        if "error" in answer:
            raise Refused(f"{method} {params}: {answer['error']}")
        return dict(answer["result"])

    def listen(self, end: float) -> None:
        """Take in what it says next, until that moment at the latest."""
        readable, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0.0))
        assert readable, "the browser says nothing"
        said = os.read(self._read, 1 << 20)
        assert said, "the browser is gone"
        *messages, self._unread = (self._unread + said).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self.tabs:
                self.tabs[message["sessionId"]].notice(message["method"], message["params"])


class Tab:
    """A tab with a profile of its own.

    Attributes:
        requests: every address that a page asked for.
        complaints: errors of scripts, and what the console says of pages: breaches of the content policy, say.
    """

    def __init__(self, browser: Browser, session: str, base: str) -> None:
        self._browser, self._session, self.base = browser, session, base
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = 0

    def notice(self, event: str, params: Json) -> None:
        """Take note of an event."""
        if event == "Page.loadEventFired":
            self._loaded += 1
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(params))
        # That a form is answered with 422 is no mistake of the page.
        elif event == "Log.entryAdded" and params["entry"]["source"] != "network":
            self.complaints.append(json.dumps(params["entry"]))

    def call(self, method: str, **params: Any) -> Json:
        """Do something in this tab."""
        return self._browser.call(method, self._session, **params)

    def open(self, path: str) -> None:
        """Go to a page, and wait until it is there."""
        with self.leaving():
            self.call("Page.navigate", url=self.base + path)

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """What happens within leads to another page; waits until that is there."""
        before, end = self._loaded, time.monotonic() + _PATIENCE_S
        yield
        while self._loaded == before:
            self._browser.listen(end)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise Refused(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = _PATIENCE_S) -> Any:
        """The value of an expression as soon as it is true; the page may be replaced meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(Refused):
                found = self.js(expression)
                if found:
                    return found
            time.sleep(0.02)
        raise AssertionError(f"not in {seconds:g} s: {expression}\n{self.js('document.body.innerText')}")

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key and let go of it."""
        code, text = _KEYS[key]
        told = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **told, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def tab_to(self, selector: str, back: bool = False, most: int = 60) -> None:
        """Press Tab until that element has the focus."""
        for _ in range(most):
            self.press("Tab", _SHIFT if back else 0)
            if self.js(f"document.activeElement.matches({json.dumps(selector)})"):
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    def type(self, text: str) -> None:
        """Replace what stands in the field with the focus."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key="a", commands=["selectAll"], modifiers=_CTRL)
        self.press("Backspace")
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int = 844) -> None:
        """As on a screen of so many pixels; those below 500 are a telephone's."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``, as its user has chosen for all pages."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser for as long as the block runs. Without one the test is skipped on a user's machine, and fails in CI."""
    program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is not installed: no chromium on PATH")
        pytest.skip("Chromium is not installed")
    to_it, from_it = os.pipe(), os.pipe()
    its = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_it[0], from_it[1])]
    command = ["bash", "-c", _START, "bash", *map(str, its), program, *_FLAGS, f"--user-data-dir={folder / 'profile'}"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=its, process_group=0
        )
    for end in (to_it[0], from_it[1], *its):
        os.close(end)
    try:
        browser = Browser(from_it[0], to_it[1])
        yield browser
        browser.call("Browser.close")
        process.wait(timeout=_PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        os.close(from_it[0])
        os.close(to_it[1])
