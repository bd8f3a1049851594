"""The pages of studies: the list, a study that runs, and one that is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.dashboard.studies.pictures import against, course
from api.dashboard.studies.trials import failures_of, rows_of
from api.schemas.answers import Study
from tests.api.asking import UNKNOWN_ID
from tests.api.conftest import Live
from tests.api.pages import BROWSER, Page
from tests.api.studies_by_hand import Hand, opened


@pytest.fixture(scope="module")
def browser(live_on_sqlite: Live) -> Iterator[httpx.Client]:
    _, secret = live_on_sqlite.key("write")
    headers = BROWSER | {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=live_on_sqlite.url, headers=headers, trust_env=False, timeout=60.0) as client:
        yield client


@pytest.fixture(scope="module")
def hand(live_on_sqlite: Live, browser: httpx.Client) -> Hand:
    """A study of which one trial ran out of memory, one ran, and one runs."""
    plans = live_on_sqlite.answer["plans"]
    name = "<script>alert(1)</script>"
    made = Hand(live_on_sqlite, opened(browser, name=name)["id"], [plan["id"] for plan in plans])
    made.prepared()
    made.finished(made.begun(0), "out_of_memory", None)
    made.finished(made.begun(1), "ok", 2.0 * plans[1]["prediction"]["step_time_s"])
    made.begun(2)
    return made


def _page(browser: httpx.Client, path: str, status: int = 200) -> Page:
    response = browser.get(path)
    assert response.status_code == status, response.text
    return Page(source=response.text)


def test_the_list_shows_what_is_tried_on_what(browser: httpx.Client, hand: Hand) -> None:
    page = _page(browser, "/studies?state=open")
    assert page.attributes("a", href=f"/studies/{hand.id}")
    assert page.attributes("script", src="") == []
    assert "<script>alert(1)</script> llama-3-8b dgx-h100 16 command" in page.text
    assert "No study is like that" in _page(browser, "/studies?state=failed").text
    assert "state" in _page(browser, "/studies?state=over", 422).text


def test_the_twins_are_the_answers_of_the_api(browser: httpx.Client, hand: Hand) -> None:
    for path in ("/studies", f"/studies/{hand.id}"):
        api = browser.get(f"/v1{path}").json()
        assert browser.get(f"{path}.json").json() == api
        assert browser.get(path, headers={"Accept": "application/json"}).json() == api
    assert _page(browser, f"/studies/{UNKNOWN_ID}", 404)
    assert "page" in _page(browser, f"/studies/{hand.id}?page=0", 422).text
    assert "out of memory" in _page(browser, f"/studies/{hand.id}?page=9").text


def test_a_study_that_runs_is_followed_and_can_be_cancelled(browser: httpx.Client, hand: Hand) -> None:
    page = _page(browser, f"/studies/{hand.id}")
    (box,) = page.attributes("div", **{"data-events": f"/v1/studies/{hand.id}/events"})
    assert box["data-ends"].split() == ["done", "stopped", "failed"]
    assert "3 trials of at most" in page.text
    assert page.attributes("meta", **{"http-equiv": "refresh"})
    assert page.attributes("form", action=f"/studies/{hand.id}/cancel")
    assert "out of memory" in page.text
    assert "too big" in page.text
    assert "2.000 in the median" in page.text


def test_its_button_stops_it_for_whoever_may(live_on_sqlite: Live, browser: httpx.Client) -> None:
    path = f"/studies/{opened(browser)['id']}"
    another = httpx.get(
        f"{live_on_sqlite.url}{path}",
        headers=BROWSER | {"Authorization": f"Bearer {live_on_sqlite.key('write')[1]}"},
        trust_env=False,
    )
    assert f'action="{path}/cancel"' not in another.text
    response = browser.post(f"{path}/cancel")
    assert (response.status_code, response.headers["location"]) == (303, path)
    page = _page(browser, path)
    assert "Stopped: it was cancelled" in page.text
    assert "data-events" not in page.source


def _told(trials: list[dict[str, Any]], answer: dict[str, Any]) -> Study:
    """A study with trials of the answer's plans that differ as said."""
    entry = answer["plans"][0]
    trial = {
        "state": "done",
        "reason": "",
        "origin": "search",
        "plan_id": entry["id"],
        "plan": entry["plan"],
        "attempt": 1,
        "worker": None,
        "gain": None,
        "chance_to_fit": None,
        "predicted_step_time_s": 1.0,
        "predicted_step_time_interval_s": (0.8, 1.2),
        "predicted_peak_bytes": 2**30,
        "measurement_id": None,
        "step_time_s": None,
        "measured_over_predicted": None,
        "peak_allocated_bytes": None,
        "peak_reserved_bytes": None,
        "created_at": "2026-11-01T00:00:00Z",
        "ended_at": None,
    }
    study = {"id": UNKNOWN_ID, "name": "s", "scenario_id": UNKNOWN_ID, "state": "open", "ended_because": ""}
    study |= {"runner": "local", "most_trials": 9, "deadline": None, "steps": 3, "warm_up": 1, "seed": 0}
    study |= {"created_at": "2026-11-01T00:00:00Z", "ended_at": None, "candidates": 9, "best": None}
    listed = [trial | {"number": number} | told for number, told in enumerate(trials)]
    return Study.model_validate(study | {"trials": listed})


def test_the_best_so_far_steps_down_and_reasons_come_once(live_on_sqlite: Live) -> None:
    plan = live_on_sqlite.answer["plans"][0]["plan"]
    study = _told(
        [
            {"outcome": "ok", "step_time_s": 1.1},
            {"outcome": "failed", "reason": "exit code 1"},
            {"outcome": "ok", "step_time_s": 0.9, "plan": plan | {"offload": "optimizer"}},
            {"outcome": "failed", "reason": "exit code 1"},
        ],
        live_on_sqlite.answer,
    )
    chart, beside = course(study), against(study)
    assert chart is not None
    assert beside is not None
    line = chart.series[0]
    assert list(zip(line.x, line.y, strict=True)) == [(0.0, 1.1), (2.0, 1.1), (2.0, 0.9), (3.0, 0.9)]
    assert [series.x for series in beside.series] == [(1.1, 0.9)]
    assert [(failure.reason, failure.trials) for failure in failures_of(study)] == [("exit code 1", "1, 3")]
    assert [row.options for row in rows_of(study)] == ["", "", "offload: optimizer", ""]


def test_of_many_trials_the_newest_are_held_against_predictions(live_on_sqlite: Live) -> None:
    study = _told([{"outcome": "ok", "step_time_s": 1.0 + number} for number in range(301)], live_on_sqlite.answer)
    beside = against(study)
    assert beside is not None
    assert beside.title == "Predicted against measured, the newest 300 trials"
    assert beside.series[0].x[0] == 2.0
    assert beside.x.log


def test_before_anything_ran_there_is_no_chart(live_on_sqlite: Live) -> None:
    study = _told([{"outcome": None, "state": "running"}], live_on_sqlite.answer)
    assert (course(study), against(study)) == (None, None)
