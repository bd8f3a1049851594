"""Candidates of the one question that these tests ask are worked out once in a process."""

from __future__ import annotations

from functools import cache

import pytest

from planner.search.request import SearchRequest
from planner.studying import opening
from planner.tuning.candidates import Candidate, candidates_of


@cache
def _found(devices: int) -> list[Candidate]:
    from tests.studying.lab import request

    assert request().scenario.devices == devices
    return candidates_of(request())


@pytest.fixture(autouse=True)
def _candidates_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(request: SearchRequest) -> list[Candidate]:
        return _found(request.scenario.devices)

    monkeypatch.setattr(opening, "candidates_of", found)
