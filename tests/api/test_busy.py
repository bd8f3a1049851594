"""A server to which more is asked than it can answer: it says so at once, and what it knows it still answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from api.settings import Settings
from planner.question import Question
from planner.resolving import request_of
from planner.stored.questions import new_search
from planner.stored.records import calibration_record, scenario_record
from tests.api.asking import lasting, problem, question
from tests.api.conftest import Live


@pytest.fixture
def busy(live: Live) -> Iterator[None]:
    """So many searches wait that none may be added, though the server goes on with them."""
    request, now = request_of(Question(**lasting())), datetime.now(UTC)
    new = new_search(request, None)
    ids = [uuid4().hex for _ in range(Settings().most_waiting + 10)]
    with live.store.writing() as repos:
        repos.scenarios.put(scenario_record(request.scenario), now)
        repos.calibrations.put(calibration_record(request.scenario.calibration), now)
        for id in ids:
            repos.searches.add(replace(new, id=id, key=uuid4().hex), now)
    yield
    with live.store.writing() as repos:
        for id in ids:
            repos.searches.request_cancel(id, datetime.now(UTC))


@pytest.mark.usefixtures("busy")
def test_a_new_question_is_refused_until_there_is_room(client: httpx.Client, answer: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": uuid4().hex}

    for _ in range(2):
        refused = client.post("/v1/searches", json=question(), headers=headers)
        problem(refused, 503, "busy")
        assert int(refused.headers["retry-after"]) >= 1

    scenario = answer["scenario"]
    names = ("model", "cluster", "devices", "global_batch_size", "seq_len")
    known = {name: scenario[name] for name in names} | {"top": answer["question"]["top"]}
    assert client.post("/v1/searches", json=known).json()["id"] == answer["id"]
    assert client.get("/healthz").status_code == 200
