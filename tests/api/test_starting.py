"""How a server starts: what it refuses, and which addresses it answers on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.api.asking import question
from tests.e2e.servers import environment_of, serve_command, serving


def test_a_catalog_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'planner.db'}"
    environment = environment_of(url) | {"PLANNER_CATALOG_DIR": str(tmp_path / "nothing")}

    ended = subprocess.run(
        serve_command("--port", "0"), env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 2
    assert "PLANNER_CATALOG_DIR" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_every_loopback_address_is_answered_on_and_the_servers_own_files_are_its_own_fault(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path / 'planner.db'}", tmp_path / "catalog"
    folder.mkdir()
    with serving(url, tmp_path, host="127.0.0.2", PLANNER_CATALOG_DIR=str(folder)) as server:
        client = server.client
        assert client.get("/v1/models/llama-3-8b").status_code == 200
        folder.rmdir()
        item = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": {"tp": 1}}
        for response in (
            client.get("/v1/models/llama-3-8b"),
            client.post("/v1/searches", json=question()),
            client.post("/v1/predictions", json={"items": [item]}),
        ):
            assert (response.status_code, response.json()["type"]) == (500, "internal-error")
            assert str(folder) not in response.text
        assert str(folder) in server.written()
