"""The page of fidelity, on some of the shipped runs, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from threading import BoundedSemaphore, Event
from time import monotonic
from typing import cast
from uuid import uuid4

import numpy as np
import pytest

from api.dashboard.fidelity import pictures, routes, runs
from api.dashboard.fidelity.calibrations import differences
from api.dashboard.fidelity.meanings import meaning_of
from api.dashboard.fidelity.quantities import quantity_of
from api.dashboard.fidelity.residuals import Group, residuals_of
from api.dashboard.fidelity.routes import router
from api.dashboard.fidelity.runs import Chosen, Work, view_of
from api.dashboard.fidelity.working import Workings
from api.problems import ProblemRaised
from costmodel.calibration.calibration import Calibration, load_calibration
from costmodel.calibration.parameters import PARAMETER_NAMES
from costmodel.runs.carried import default_runs
from db.records import Measurement
from planner.stored.questions import new_search
from planner.stored.records import calibration_record, result_of, scenario_record
from tests.api.pages import small_answer, small_request
from tests.api.pages_here import Here, pages_here


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    some = default_runs()[::12]
    with pytest.MonkeyPatch.context() as patch, pages_here(tmp_path_factory.mktemp("fidelity"), router) as found:
        patch.setattr(runs, "default_runs", lambda: some)
        with found.store.writing() as repos:
            repos.calibrations.put(calibration_record(_changed()), datetime.now(UTC))
        yield found


def _changed() -> Calibration:
    """The shipped calibration with one value doubled, and a row less."""
    shipped = load_calibration()
    first, *others = shipped.parameters
    doubled = others[0].model_copy(update={"value": 2.0 * others[0].value})
    return shipped.model_copy(update={"name": "own", "parameters": (first, doubled, *others[1:-1])})


@pytest.fixture(scope="module")
def work(here: Here) -> Work:
    """All of the runs, worked out."""
    here.fetch("/fidelity.json", prefer="wait=60")
    found: Work = here.app.state.fidelity.ask(calibration_record(load_calibration()).id, lambda: None).result(60)
    return found


def test_the_page_answers_at_once_and_looks_again(here: Here) -> None:
    here.app.state.fidelity, before = Workings(), here.app.state.fidelity
    held = Event()
    here.app.state.fidelity.ask("other", held.wait)
    page = here.page("/fidelity")
    told = here.fetch("/fidelity.json")
    held.set()
    here.app.state.fidelity = before
    assert "Being worked out" in page.text
    assert page.attributes("meta", **{"http-equiv": "refresh"})
    assert "Nothing was measured here yet" in page.text
    assert (told.status_code, told.json()["state"], told.headers["retry-after"]) == (202, "working", "2")


def test_figures_are_those_of_validate(here: Here, work: Work) -> None:
    page, told = here.page("/fidelity"), here.json("/fidelity.json")
    assert not page.attributes("meta", **{"http-equiv": "refresh"})
    assert told["planner"] == work.judged.figures.as_dict()
    error = work.judged.figures.time_median_ape_macro
    assert error is not None
    assert f"{100 * error:.1f} %" in page.text
    assert set(told["baselines"]) == {"constant_mfu", "one_line"}
    assert len(told["points"]) == int(work.judged.errors.timed.sum())
    assert all(axis["axis"] for axis in told["residuals"])


def test_memory_is_shown_as_well(here: Here, work: Work) -> None:
    points = here.json("/fidelity.json?of=memory")["points"]
    assert len(points) == int(work.judged.errors.weighed.sum()) > 0
    assert all(point["peak_mem_gb"] > 0 and point["measured_peak_mem_gb"] > 0 for point in points)
    assert "Peak memory, predicted against measured" in here.page("/fidelity?of=memory").text


def test_a_filter_leaves_runs_of_its_kind(here: Here, work: Work) -> None:
    name, count = work.offered["framework"][0]
    told = here.json(f"/fidelity.json?framework={name}")
    assert {point["framework"] for point in told["points"]} == {name}
    assert told["judged"] == count < work.judged.observed.judged
    assert "No run like that" in here.page("/fidelity?framework=none-such").text


@pytest.mark.parametrize(
    ("query", "named"), [("calibration=nope", "published-2026-11"), ("colour=red", "accelerator"), ("sort=up", "sort")]
)
def test_what_it_cannot_show_is_said(here: Here, query: str, named: str) -> None:
    assert named in here.page(f"/fidelity?{query}", 422).text


def test_two_calibrations_differ_where_they_do(here: Here) -> None:
    told = here.json("/fidelity.json?against=own", 202)
    ratios = {one["ratio"] for one in told["differences"]}
    assert ratios == {2.0, None}
    assert told["same_parameters"] == len(load_calibration().parameters) - 2
    page = here.page("/fidelity?calibration=published-2026-11&against=own")
    assert "2 rows differ" in page.text
    assert "Where the numbers of published-2026-11 come from" in page.text


def test_a_calibration_differs_from_itself_in_nothing() -> None:
    assert differences(load_calibration(), load_calibration())[0] == []


def test_every_parameter_says_what_it_means() -> None:
    told = {name: meaning_of(name) for name in PARAMETER_NAMES}
    assert [name for name, text in told.items() if not text.endswith(".")] == []
    assert told["gemm_efficiency"] == "Share of the peak that a large aligned GEMM reaches."
    assert told["tp_exposed_share"] == told["ep_exposed_share"]


def test_of_many_runs_those_farthest_off_are_drawn(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(work, Chosen())
    monkeypatch.setattr(pictures, "MOST_DRAWN", 60)
    drawn = pictures.drawn_of(quantity_of(view, "time"))
    assert len(drawn) == len(set(drawn)) <= 60
    errors = view.judged.errors
    off = np.abs(np.log1p(np.where(errors.timed, errors.time, 0.0)))
    assert set(np.argsort(-off)[:40].tolist()) <= set(drawn)


def test_strips_end_at_half_and_double() -> None:
    group = Group(value="1", runs=9, quantiles=(0.1, 0.5, 1.0, 2.0, 9.0), inside=None)
    assert group.strip == (0.0, 0.0, 50.0, 100.0, 100.0)


def test_values_of_axes_stand_in_order(work: Work) -> None:
    view = view_of(work, Chosen())
    told = residuals_of(view, quantity_of(view, "time"))
    found = {axis.axis: [group.value for group in axis.groups] for axis in told}
    assert found["recompute"][:2] == ["none", "selective"]
    sizes = [int(name.split("–")[0].replace(",", "")) for name in found["devices"]]
    assert sizes == sorted(sizes)


def test_own_measurements_stand_beside_their_plans(here: Here) -> None:
    request, now = (
        small_request(pins=("tp=1", "pp=1", "cp=1", "micro_batch_size=1", "zero_stage=1"), top=1),
        datetime.now(UTC),
    )
    answer = small_answer(request)
    plan = answer["plans"][0] | {"id": uuid4().hex}
    measured = Measurement(
        id=uuid4().hex,
        plan_id=plan["id"],
        study_id=None,
        trial_number=None,
        status="ok",
        step_time_s=2.0 * plan["prediction"]["step_time_s"],
        tokens_per_s_per_device=None,
        peak_allocated_bytes=2**30,
        peak_reserved_bytes=None,
        steps=5,
        job_id=None,
        environment={},
        note="",
        log_tail="",
        created_by=None,
        measured_at=now,
        created_at=now,
    )
    with here.store.writing() as repos:
        repos.scenarios.put(scenario_record(request.scenario), now)
        repos.calibrations.put(calibration_record(request.scenario.calibration), now)
        new = replace(new_search(request, None), key=uuid4().hex)
        repos.searches.store_answer(new, result_of(answer | {"plans": [plan]}, now), now)
        repos.measurements.add(measured)
        on_cpus = {"id": uuid4().hex, "step_time_s": 100.0, "environment": {"backend": "gloo"}}
        repos.measurements.add(replace(measured, **on_cpus))
    page = here.page("/fidelity")
    assert "2.000 in the median" in page.text
    assert "Inside the interval 0 of 1" in page.text
    assert "1, which say nothing of accelerators" in page.text
    assert page.attributes("a", href=f"/plans/{plan['id']}")


def test_one_is_worked_out_at_a_time_and_failures_again() -> None:
    workings: Workings[int] = Workings(most=2)
    held = Event()
    first = workings.ask("a", lambda: 1 if held.wait(30) else 0)
    second = workings.ask("b", lambda: 2)
    assert workings.ask("a", lambda: 9) is first
    with pytest.raises(ProblemRaised):
        workings.ask("c", lambda: 3)
    held.set()
    assert (first.result(30), second.result(30)) == (1, 2)

    def fails() -> int:
        raise ValueError("broken")

    broken: Future[int] = workings.ask("c", fails)
    assert isinstance(broken.exception(30), ValueError)
    assert workings.ask("c", lambda: 4).result(30) == 4


def test_where_enough_wait_already_the_next_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait takes a thread of those that answer requests."""
    monkeypatch.setattr(routes, "_WAITERS", BoundedSemaphore(1))
    never: Future[Work] = Future()
    with routes._WAITERS:
        started = monotonic()
        assert routes._all_done([never], 30.0) == [None]
        assert monotonic() - started < 10.0
    done: Future[Work] = Future()
    done.set_result(cast(Work, "figures"))
    assert routes._all_done([done], 30.0) == ["figures"]
