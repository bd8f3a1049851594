"""Studies opened over the API, and what their workers would write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import httpx

from db.records import Measurement, Study, StudyCandidate, Trial
from tests.api.asking import question
from tests.api.conftest import Live

_NUMBER = count()


def study_body(**changes: Any) -> dict[str, Any]:
    """What opens a study of a name that no other has."""
    asked = {key: value for key, value in question().items() if key != "top"}
    return {**asked, "name": f"study {next(_NUMBER)} {uuid4().hex[:6]}", "runner": "command", **changes}


def opened(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    """A study that waits for a worker."""
    response = client.post("/v1/studies", json=study_body(**changes))
    assert response.status_code == 202, response.text
    found: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/v1/studies/{found['id']}"
    return found


class Hand:
    """What a worker writes, by hand."""

    def __init__(self, live: Live, study_id: str, plan_ids: list[str]) -> None:
        self.store, self.id, self.plan_ids = live.store, study_id, plan_ids
        self.now = datetime.now(UTC)
        self.until = self.now + timedelta(minutes=5)

    def prepared(self) -> None:
        """Its candidates are found: the plans, in their order."""
        with self.store.writing() as repos:
            mine = repos.studies.claim_preparation(self.id, "hand", self.now, self.until)
            assert isinstance(mine, Study)
            places = [
                StudyCandidate(study_id=self.id, place=place, plan_id=plan_id, origin="search")
                for place, plan_id in enumerate(self.plan_ids)
            ]
            assert repos.studies.prepared(mine, places)

    def begun(self, place: int) -> Trial:
        """A trial that runs now."""
        with self.store.writing() as repos:
            trial = repos.studies.begin(self.id, place, "hand", {"gain": 0.1}, self.now, self.until)
        assert trial is not None
        return trial

    def finished(self, trial: Trial, outcome: str, step_time_s: float | None) -> None:
        """It is over, and what it measured is written."""
        measured = Measurement(
            id=uuid4().hex,
            plan_id=self.plan_ids[trial.place],
            study_id=self.id,
            trial_number=trial.number,
            status="ok" if outcome == "ok" else "out_of_memory",
            step_time_s=step_time_s,
            tokens_per_s_per_device=None,
            peak_allocated_bytes=2**30,
            peak_reserved_bytes=None,
            steps=5,
            job_id=None,
            environment={},
            note="",
            log_tail="",
            created_by=None,
            measured_at=self.now,
            created_at=self.now,
        )
        with self.store.writing() as repos:
            assert repos.studies.finish(trial, outcome, "" if outcome == "ok" else "too big", measured, self.now)
