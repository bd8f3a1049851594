"""The README's scheduler example, word for word, on both databases."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
PORT = 8000


def example() -> str:
    """The first shell block under the heading for schedulers."""
    section = README.read_text(encoding="utf-8").split("## For a scheduler\n", 1)[1]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found, "the README has no example for schedulers"
    return found[1]


def port_is_free() -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return False
    return True


@pytest.mark.slow
def test_a_scheduler_can_follow_it(store_url: str, tmp_path: Path) -> None:
    if not port_is_free():
        if os.environ.get("CI"):
            pytest.fail(f"port {PORT} is taken")
        pytest.skip(f"something else listens on port {PORT}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", example() + "\nkill %1\nwait\n"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PLANNER_DATABASE_URL": store_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, log = ran.communicate(timeout=90)
    finally:
        if ran.poll() is None:
            os.killpg(ran.pid, signal.SIGKILL)
    assert ran.returncode == 0, log

    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    assert answer["state"] == "done"
    assert answer["status"] == "optimal"
    best = answer["plans"][0]
    assert 0.9 * 488 <= best["plan"]["devices_used"] <= 488
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["prediction"] == best["prediction"]

    *_, measured, listed = (json.loads(line) for line in re.findall(r"\{\"(?:id|items)\".*?\}(?=\{\"items\"|$)", out))
    assert measured["measured_over_predicted"] == pytest.approx(17.9 / best["prediction"]["step_time_s"])
    assert [item["id"] for item in listed["items"]] == [entry["id"] for entry in answer["plans"]]
