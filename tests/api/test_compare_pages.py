"""The page that compares plans: what differs, why one is slower, and what it asks for with fewer than two plans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from api.dashboard.compare import routes
from tests.api.pages_here import Here
from tests.api.plans_here import measure, plans_here, stored_plans

Json = dict[str, Any]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with plans_here(tmp_path_factory.mktemp("compare")) as running:
        yield running


@pytest.fixture(scope="module")
def plans(here: Here) -> list[Json]:
    """Three plans of one search, the best first."""
    return stored_plans(here)[1]


def _address(*plans: Json, path: str = "/compare") -> str:
    ids = [("plan", str(plan["id"])) for plan in plans]
    return f"{path}?{urlencode(ids)}"


def test_why_a_plan_is_slower_is_said_first(here: Here, plans: list[Json]) -> None:
    best, other = plans[0], plans[1]
    page = here.page(_address(best, other))
    slower = other["prediction"]["step_time_s"] / best["prediction"]["step_time_s"] - 1
    assert f"Why plan 2 is {slower:.1%} slower than plan 1" in page.text
    assert "The faster one has" in page.text
    # Turned round, it is the same plan that is slower.
    assert f"Why plan 1 is {slower:.1%} slower than plan 2" in here.page(_address(other, best)).text


def test_the_way_between_plans_of_two_searches_is_priced_change_by_change(here: Here, plans: list[Json]) -> None:
    (cut,) = stored_plans(here, pins=["tp=2", "pp=2"], top=1)[1]
    page = here.page(_address(plans[0], cut))
    assert "one change after the other" in page.text
    changes = page.source.partition('<table class="changes">')[2].partition("</table>")[0]
    assert "tp 1 instead of 2" in changes
    assert "pp 1 instead of 2" in changes
    assert "not for the same work" not in page.text


def test_what_differs_is_marked_and_what_does_not_is_folded_away(here: Here, plans: list[Json]) -> None:
    best, other = plans[0], plans[1]
    page = here.page(_address(best, other))
    twin = here.fetch(_address(best, other, path="/compare.json")).json()
    assert twin == here.fetch(_address(best, other, path="/v1/plans/compare")).json()
    assert len(page.attributes("mark")) == len(twin["axes"])
    assert "What is the same" in page.text


def test_a_difference_is_that_to_the_first_plan(here: Here, plans: list[Json]) -> None:
    best, other = plans[0], plans[1]
    apart = 100 * (other["prediction"]["step_time_s"] / best["prediction"]["step_time_s"] - 1)
    page = here.page(_address(best, other))
    assert f"+{apart:.1f}" in page.text
    assert page.attributes("a", href=_address(other, best))  # put first
    assert page.attributes("a", href=_address(best))  # taken out


def test_plans_for_other_work_are_compared_per_token(here: Here, plans: list[Json]) -> None:
    (longer, *_) = stored_plans(here, seq_len=8192, global_batch_size=16, top=1)[1]
    page = here.page(_address(plans[0], longer))
    assert "The plans are not for the same work" in page.text
    assert "one change after the other" not in page.text
    plan, prediction = longer["plan"], longer["prediction"]
    device_s = prediction["step_time_s"] * plan["devices_used"] * 1e6 / (16 * 8192)
    assert f"{device_s:.3f}" in page.text
    assert "in seconds of one device for a million tokens" in page.text
    assert re.search(r"\d device m?s\b", page.text)


def test_two_that_do_the_same_are_held_against_each_other_by_the_step_whatever_a_third_does(
    here: Here, plans: list[Json]
) -> None:
    (longer, *_) = stored_plans(here, seq_len=8192, global_batch_size=16, top=1)[1]
    alone = here.page(_address(*plans[:2]))
    (title,) = re.findall(r'<h2 id="why-1">(.*?)</h2>', alone.source)
    among = here.page(_address(*plans[:2], longer))
    assert title in among.source
    told = alone.source.partition(title)[2].partition("<ul>")[2].partition("</ul>")[0]
    assert told in among.source
    assert "mlp" not in told


def test_measured_times_in_another_order_are_told(here: Here, plans: list[Json]) -> None:
    fast, slow = plans[0], plans[1]
    measure(here, fast, over_predicted=2.0)
    measure(here, slow, over_predicted=1.0)
    page = here.page(_address(fast, slow))
    assert "plan 2 was faster than plan 1, which was predicted to be the faster one" in page.text
    assert "2.000" in page.text
    assert "other way round" not in here.page(_address(fast, plans[2])).text


@pytest.mark.parametrize("count", [0, 1])
def test_with_fewer_than_two_plans_others_are_offered(here: Here, plans: list[Json], count: int) -> None:
    page = here.page(_address(*plans[:count]) if count else "/compare")
    offered = {box["value"] for box in page.attributes("input", type="checkbox")}
    assert {plan["id"] for plan in plans[count:]} <= offered
    assert not {plan["id"] for plan in plans[:count]} & offered


def test_addresses_and_lists_of_ids_can_be_pasted(here: Here, plans: list[Json]) -> None:
    one, other = plans[0]["id"], plans[1]["id"]
    pasted = f"https://planner.example/plans/{other}?timeline=0-10, {one}"
    response = here.fetch(f"/compare?{urlencode([('plan', one), ('plan', pasted)])}")
    assert (response.status_code, response.headers["location"]) == (303, f"/compare?plan={one}&plan={other}")


def test_the_first_digits_of_an_id_will_do(here: Here, plans: list[Json]) -> None:
    one, other = plans[0]["id"], plans[1]["id"]
    response = here.fetch(f"/compare?plan={one[:8]}&plan={other[:8].upper()}")
    assert response.headers["location"] == f"/compare?plan={one}&plan={other}"


def test_of_too_many_plans_the_first_are_compared(
    here: Here, plans: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_MOST", 2)
    page = here.page(_address(*plans))
    assert "At most 2 plans are compared at a time: these are the first of the 3 that were chosen." in page.text


def test_what_cannot_be_compared_is_named(here: Here, plans: list[Json]) -> None:
    unknown = "0" * 32
    assert unknown in here.page(f"{_address(plans[0])}&plan={unknown}", 404).text
    assert "nonsense" in here.page(f"{_address(plans[0])}&plan=nonsense", 404).text
    many = "&".join(f"plan={digit * 32}" for digit in "1234567")
    assert here.json(f"/compare?{many}", 422)["errors"][0]["pointer"] == "plan"
    assert "no such parameter" in here.page(f"{_address(*plans)}&sort=mfu", 422).text
    assert here.json("/compare.json?plan=")["plans"] == []
    one, other = plans[0]["id"], plans[1]["id"]
    alone = here.json(f"/compare.json?plan={one[:10]}")
    assert alone["plans"] == [one]
    assert other in [offer["id"] for offer in alone["offers"]]
