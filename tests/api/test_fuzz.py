"""Schemathesis against a live server on each database: no 5xx, and nothing that the OpenAPI document does not promise.

A run is the same every time. To look further by hand: ``FUZZ_EXAMPLES=200 FUZZ_SEED=7 pytest tests/api/test_fuzz.py``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from db.keys import digest_of_secret, new_secret
from db.records import ApiKey
from db.store import Store
from tests.api.asking import MODEL, answered, question
from tests.e2e.servers import Server, serving

_ROOT = Path(__file__).parents[2]
_EXAMPLES = os.environ.get("FUZZ_EXAMPLES", "12")
_SEED = os.environ.get("FUZZ_SEED")
_WITHIN_S = 3_600
_GENERATED = re.compile(r"(\d+) generated, (\d+) passed")


@pytest.mark.slow
def test_whatever_is_sent_is_answered_as_the_document_says(store_url: str, tmp_path: Path) -> None:
    secret = _key(store_url)
    with serving(store_url, tmp_path, "--require-keys", key=secret) as server:
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json"),
            *("--header", f"Authorization: Bearer {secret}"),
            # A schema can't say which models there are, so data that it allows may well be refused.
            *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
            *("--max-examples", _EXAMPLES, "--request-timeout", "30", "--continue-on-failure"),
            *(("--generation-deterministic",) if _SEED is None else ("--seed", _SEED)),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(_ROOT),
            "SCHEMATHESIS_HOOKS": "tests.api.fuzz_hooks",
            "FUZZ_KNOWN": json.dumps(_known(server)),
        }
        found = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
        log = [json.loads(line) for line in server.written().splitlines() if line.startswith("{")]

    (tmp_path / "schemathesis.txt").write_text(found.stdout, encoding="utf-8")
    generated = _GENERATED.search(found.stdout)
    assert found.returncode == 0, found.stdout[-20_000:] + found.stderr[-2_000:]
    assert generated is not None
    assert int(generated[1]) == int(generated[2]) > 500
    assert [line for line in log if line["level"] in ("ERROR", "CRITICAL")] == []
    asked = [line for line in log if line.get("route") == "/v1/searches" and line.get("method") == "POST"]
    assert any(line["status"] in (200, 202) for line in asked), "no question got past the catalog"


def _key(url: str) -> str:
    secret = new_secret()
    record = ApiKey(
        id=uuid4().hex,
        name="fuzz",
        scopes=("write",),
        created_at=datetime.now(UTC),
        expires_at=None,
        revoked_at=None,
        last_used_at=None,
    )
    with Store.open(url) as store, store.writing() as repos:
        repos.api_keys.add(record, digest_of_secret(secret))
    return secret


def _known(server: Server) -> dict[str, Any]:
    """What is there, for the hooks."""
    answer = answered(server.client)
    best = answer["plans"][0]
    measured = server.client.post("/v1/measurements", json={"plan_id": best["id"], "step_time_s": 1.0}).json()
    asked = {name: value for name, value in question().items() if name != "top"}
    study = server.client.post("/v1/studies", json=asked | {"name": "known"}).json()
    return {
        "model": MODEL,
        "study": study["id"],
        "search": answer["id"],
        "scenario": answer["scenario"]["id"],
        "plans": [plan["id"] for plan in answer["plans"]],
        "plan": best["plan"],
        "measurement": measured["id"],
    }
