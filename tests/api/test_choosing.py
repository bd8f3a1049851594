"""Questions about more than one ranking: batches, fronts, short lists, limits; asked, stored and given again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.asking import ask, pointers, question


def test_what_was_asked_beyond_a_ranking_is_stored_and_given_again(client: httpx.Client) -> None:
    asked = question(
        min_devices=8,
        max_step_time_s=1000,
        pareto=True,
        shortlist=0.5,
        objective="cost",
        price_per_device_hour=2,
        pins=["tp=2,4", "cp=1"],
    )
    found = ask(client, asked).json()
    assert found["status"] == "optimal"
    for name in ("min_devices", "max_step_time_s", "pareto", "shortlist"):
        assert found["question"][name] == asked[name]
    assert found["pareto_proven"] is True
    assert found["pareto"]
    assert found["shortlist"]["probability"] >= 0.5
    assert found["price_per_device_hour"] == 2
    assert found["cost_per_1e9_tokens"] > 0
    assert client.get(f"/v1/searches/{found['id']}").json() == found
    assert client.post("/v1/searches", json=asked).json() == found


def test_another_batch_is_told_with_the_batches_that_were_searched(client: httpx.Client) -> None:
    found = ask(client, question(batch_tolerance=0.1, global_batch_size=15)).json()
    assert found["batches"]["asked"] == 15
    assert 16 in found["batches"]["searched"]
    assert found["batches"]["per"] == "sequence"
    assert found["plans"][0]["plan"]["global_batch_size"] == 16
    assert any("global_batch_size 16 changes the training" in line for line in found["warnings"])
    plan = client.get(f"/v1/plans/{found['plans'][0]['id']}")
    assert plan.status_code == 200


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"min_devices": 0}, "/min_devices"),
        ({"max_step_time_s": 0}, "/max_step_time_s"),
        ({"batch_tolerance": 1}, "/batch_tolerance"),
        ({"batch_tolerance": "5%"}, "/batch_tolerance"),
        ({"pareto": "yes"}, "/pareto"),
        ({"shortlist": 1}, "/shortlist"),
        ({"pareto": True, "batch_tolerance": 0.1}, "/pareto"),
        ({"min_devices": 1000}, "/devices"),
    ],
)
def test_what_can_not_be_meant_is_refused_by_its_field(
    client: httpx.Client, changes: dict[str, Any], pointer: str
) -> None:
    response = client.post("/v1/searches", json=question(**changes))
    assert response.status_code == 422
    assert pointers(response) == [pointer]
