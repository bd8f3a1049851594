"""A search that tells how far it is, and one that is told to stop."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from planner.search.answer import answer_of
from planner.search.request import SearchRequest
from planner.search.solve import Search
from tests.running_jobs import long_request
from tests.scenarios import scenario_of
from tests.searches import request_of


def answered(search: Search) -> dict[str, Any]:
    answer = answer_of(search.request, search.facts, search.run())
    answer["search"].pop("elapsed_s")
    return answer


def small(**how: Any) -> SearchRequest:
    return request_of(scenario_of("llama-3.1-8b", "dgx-h100", 16, 32, 4096), **how)


def test_progress_tells_the_steps_in_order_and_ends_at_the_answer() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    answer = answered(Search(small(top=30), lambda step, figures: told.append((step, figures))))
    assert [step for step, _ in told] == ["candidates", "relaxed", "incumbents", "listed", "listed"]
    figures = dict(told)
    assert 0 < figures["candidates"]["legal"] <= figures["candidates"]["meshes"] == answer["search"]["meshes"]
    assert figures["relaxed"]["bound"] <= answer["best"] <= figures["incumbents"]["best"]
    assert figures["listed"] == {
        "decisions": answer["search"]["master_solutions"],
        "complete": True,
        "best": answer["best"],
    }


def test_what_is_told_is_in_the_unit_of_the_objective() -> None:
    told: dict[str, dict[str, Any]] = {}
    answer = answered(Search(small(objective="fewest_devices"), lambda step, figures: told.update({step: figures})))
    assert told["incumbents"]["best"] == answer["best"] == round(answer["best"])


def test_nothing_that_fits_is_told_without_figures() -> None:
    told: dict[str, dict[str, Any]] = {}
    request = request_of(scenario_of("llama-3.1-405b", "dgx-h100", 8, 8, 4096))
    Search(request, lambda step, figures: told.update({step: figures})).run()
    assert told["relaxed"] == {"bound": None}
    assert "incumbents" not in told


def test_being_listened_to_changes_nothing() -> None:
    plain = answered(Search(small()))
    assert answered(Search(small(), lambda *_: None, threading.Event())) == plain


def test_a_search_that_was_stopped_before_it_began_still_has_an_answer() -> None:
    stopped = threading.Event()
    stopped.set()
    answer = answered(Search(small(), stopped=stopped))
    assert answer["status"] == "feasible"
    assert answer["plans"]


@pytest.mark.parametrize("after", ["candidates", "listed"])
def test_a_long_search_ends_soon_after_it_was_stopped(after: str) -> None:
    """Stopped between two steps, and half a second into the list of the master, which takes several more."""
    stopped, told, at = threading.Event(), [], []

    def stop() -> None:
        at.append(time.monotonic())
        stopped.set()

    def progress(step: str, _: dict[str, Any]) -> None:
        told.append(step)
        if step == after and not at:
            threading.Timer(0.5, stop).start() if after == "listed" else stop()

    outcome = Search(long_request(), progress, stopped).run()
    taken = time.monotonic() - at[0]
    assert not outcome.proven
    # Plans are found at least, also where nothing is listed any more.
    assert told[-1] == ("listed" if after == "listed" else "incumbents")
    assert taken < 3.0, "a machine under load is slow, but the rest of the search takes longer"
