"""Pictures of all pages for the docs, in both themes: ``python -m tests.e2e.screenshots [FOLDER]``.

Needs the extra ``plots``, for Pillow.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect

from tests.e2e.browser import browsing, visiting
from tests.e2e.servers import serving
from tests.e2e.showcase import Json, furnished

_QUESTION: Json = {
    "model": "llama-3.1-405b",
    "cluster": "dgx-h100",
    "devices": 16384,
    "global_batch_size": 2048,
    "seq_len": 8192,
    "top": 10,
}
_COLOURS = 256
_SHOWN = {
    "searches": 900,
    "search": 1500,
    "infeasible": 900,
    "plan": 2200,
    "compare": 1500,
    "scaling": 1500,
    "study": 1500,
    "fidelity": 1500,
    "catalog": 900,
    "cluster": 900,
}
"""Page and how much of it is shown, in pixels from its top."""


def main(out: Path) -> None:
    """Write ``PAGE-light.png`` and ``PAGE-dark.png`` of each page."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'planner.db'}"
        with serving(url, folder) as server, browsing() as browser, visiting(browser, server.address) as visit:
            paths = furnished(server, url, folder, _QUESTION).paths
            for page, height in _SHOWN.items():
                visit.page.set_viewport_size({"width": 1280, "height": height})
                for scheme in ("light", "dark"):
                    visit.page.emulate_media(color_scheme=scheme)
                    visit.page.goto(paths[page], wait_until="networkidle")
                    # Of the fidelity of thousands of runs.
                    expect(visit.page.locator(".box.waiting")).to_have_count(0, timeout=120_000)
                    shot = out / f"{page}-{scheme}.png"
                    visit.page.screenshot(path=shot)
                    # A third of the bytes, and nobody sees it.
                    Image.open(shot).convert("RGB").quantize(_COLOURS).save(shot, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/dashboard"))
