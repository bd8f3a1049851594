"""How soon pages are seen: ``python -m tests.bench.bench_pages``.

First contentful paint in a real Chromium, of a real server on SQLite with a hundred thousand plans, after one visit to
warm both up. The first line is a page that reads nothing from the store: what the browser and this machine take.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, expect

from db.store import Store
from tests.bench.bench_store import fill
from tests.e2e.browser import browsing, visiting
from tests.e2e.servers import serving
from tests.e2e.showcase import furnished

WITHIN_MS = 300.0
TRIES = 5
_PAINTED = """
() => new Promise(told => new PerformanceObserver(found => {
  const navigation = performance.getEntriesByType("navigation")[0];
  told([found.getEntries()[0].startTime, navigation.responseEnd, navigation.decodedBodySize]);
}).observe({ type: "paint", buffered: true }))
"""


def main() -> int:
    """Print a table; 1 if a page is seen too late."""
    good = True
    with TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'planner.db'}"
        with Store.open(url) as store:
            fill(store)
        with serving(url, folder) as server, browsing() as browser:
            paths = {"reads nothing": "/unknown"} | dict(furnished(server, url, folder).paths)
            print(f"{'page':16}{'KiB':>8}{'server ms':>11}{'paint ms':>10}   wanted < {WITHIN_MS:g} ms")
            for page, path in paths.items():
                paint, response, size = _seen(browser, server.address, path)
                good = good and paint < WITHIN_MS
                verdict = "good" if paint < WITHIN_MS else "MISSED"
                print(f"{page:16}{size / 1024:8.1f}{response:11.0f}{paint:10.0f}   {verdict}", flush=True)
    return int(not good)


def _seen(browser: Browser, address: str, path: str) -> tuple[float, float, float]:
    with visiting(browser, address) as visit:
        visit.page.goto(path)
        # Of the fidelity of thousands of runs, worked out once.
        expect(visit.page.locator(".box.waiting")).to_have_count(0)
        tries: list[list[float]] = []
        for _ in range(TRIES):
            visit.page.goto(path)
            tries.append(visit.page.evaluate(_PAINTED))
    paint, response, size = (statistics.median(column) for column in zip(*tries, strict=True))
    return paint, response, size


if __name__ == "__main__":
    raise SystemExit(main())
