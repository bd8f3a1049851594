"""Questions for tests of the API, and what they look for in its answers."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx

from tests.api.contract import PROBLEM

_COUNTER = count(1)
MODEL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
PLAIN: dict[str, Any] = {
    "tp": 1,
    "pp": 1,
    "dp": 16,
    "zero_stage": 1,
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "seq_len": 2048,
}
"""A plan of llama-3-8b on 16 devices that fits."""
UNKNOWN_ID = "0" * 32


def question(**changes: Any) -> dict[str, Any]:
    """A question that takes a quarter of a second, and that no other test has asked."""
    fresh = {"seq_len": 1024 + 64 * next(_COUNTER)}
    return {
        "model": "llama-3-8b",
        "cluster": "dgx-h100",
        "devices": 16,
        "global_batch_size": 64,
        "top": 3,
        **fresh,
        **changes,
    }


def lasting(**changes: Any) -> dict[str, Any]:
    """A question of a minute: to be cancelled."""
    large = {"model": "deepseek-v3", "devices": 2048, "global_batch_size": 15360, "top": 200, "max_seconds": 60}
    return question(**(large | changes))


def infeasible(**changes: Any) -> dict[str, Any]:
    """A question about a model that is far too large for one small device."""
    return question(**({"model": "llama-3.1-70b", "cluster": "rtx4090-1", "devices": 1} | changes))


def ask(client: httpx.Client, asked: dict[str, Any], **headers: str) -> httpx.Response:
    """Ask, and wait for the answer."""
    return client.post("/v1/searches", json=asked, headers={"Prefer": "wait=60", **headers})


def answered(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    """The answer to a question of its own."""
    response = ask(client, question(**changes))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    assert found["state"] == "done", found
    return found


def problem(response: httpx.Response, status: int, type: str) -> dict[str, Any]:
    """The problem that a response is."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == PROBLEM
    found: dict[str, Any] = response.json()
    assert (found["type"], found["status"]) == (type, status), found
    assert found["request_id"] == response.headers["x-request-id"]
    return found


def pointers(response: httpx.Response, type: str = "invalid-input") -> list[str]:
    """Where a request is wrong."""
    return [error["pointer"] for error in problem(response, 422, type)["errors"]]
