"""Candidates of the one question that most of these tests ask are worked out once in a process."""

from __future__ import annotations

from functools import cache

import pytest

from planner.search.request import SearchRequest
from planner.studying import preparing
from planner.tuning.candidates import Candidate, candidates_of
from tests.studying import lab


@cache
def _of_the_lab() -> list[Candidate]:
    return candidates_of(lab.request())


@pytest.fixture(autouse=True)
def _candidates_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(request: SearchRequest) -> list[Candidate]:
        is_known = request.scenario.devices == lab.request().scenario.devices
        return _of_the_lab() if is_known else candidates_of(request)

    monkeypatch.setattr(preparing, "candidates_of", found)
