"""The page of a scaling curve: what is stored, what is on its way, what nobody asked; and the button that asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from planner.search.request import SearchRequest
from planner.stored.questions import new_search
from tests.api.pages import BROWSER, FORM, Page, Site, running_site, shown_in, small_answer, small_request


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    # What of it is the database's own is tested on both in tests/db.
    folder = tmp_path_factory.mktemp("scaling")

    class Sqlite:
        param = "sqlite"

    with running_site(Sqlite(), folder) as running:  # type: ignore[arg-type]
        yield running


def address(**asked: Any) -> str:
    given = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "global_batch_size": 64, "seq_len": 4096, "top": 3}
    return f"/scaling?{urlencode(given | asked)}"


def stored(site: Site, request: SearchRequest) -> tuple[str, dict[str, Any]]:
    """An answer under the key that its question has."""
    answer = small_answer(request)
    key = new_search(request, None).key
    return site.store_answer(request, answer, key=key), answer


def in_the_table(page: Page) -> list[str]:
    return [box["value"] for box in page.attributes("input", name="plan")]


def test_before_anything_is_asked_there_is_the_form_with_an_example(site: Site) -> None:
    assert site.server.client.get("/scaling.json").json() == {"question": None, "points": []}
    page = site.get("/scaling")
    assert page.with_id("ask-devices")["value"] == "64..1024"
    assert page.attributes("table") == []
    for name in FORM:
        assert page.attributes("label", **{"for": f"ask-{name}"})
    assert page.attributes("a", **{"aria-current": "page", "href": "/scaling"})


def test_looking_shows_what_is_stored_and_asks_nothing(site: Site) -> None:
    searches = {devices: stored(site, small_request(devices=devices)) for devices in (8, 16)}
    path = address(devices="8..32")
    before = site.server.client.get("/v1/searches").json()
    page = site.get(path)
    assert site.server.client.get("/v1/searches").json() == before
    assert "2 of 3 counts are answered, 1 is not asked" in page.text
    for search, answer in searches.values():
        assert page.attributes("a", href=f"/searches/{search}")
        assert f"{answer['best']:.3f}" in page.text
    for said in ("Sequence length 4,096 tokens", "Objective least time of a step", "Framework Megatron-Core"):
        assert said in page.text
    first, second = in_the_table(page)
    assert page.attributes("a", href=f"/plans/{first}")
    assert {chart["id"] for chart in page.attributes("figure")} == {"step-time", "cost", "tokens"}
    twin = site.server.client.get(path.replace("/scaling?", "/scaling.json?")).json()
    assert [point["status"] for point in twin["points"]] == ["optimal", "optimal", "not_asked"]
    assert [point["plan_id"] for point in twin["points"]] == [first, second, None]
    rates = [point["tokens_per_s"] / point["devices"] for point in twin["points"][:2]]
    assert twin["points"][1]["efficiency"] == pytest.approx(rates[1] / rates[0])
    hours = twin["points"][0]["device_hours_per_1e9_tokens"]
    assert hours == pytest.approx(8 * 1e9 / twin["points"][0]["tokens_per_s"] / 3600)
    assert twin["question"]["devices"] == [8, 16, 32]


def test_a_search_leads_to_its_own_curve(site: Site) -> None:
    search, _ = stored(site, small_request(devices=24, global_batch_size=48, pins=["recompute=none"]))
    (link,) = [a["href"] for a in site.get(f"/searches/{search}").attributes("a") if a["href"].startswith("/scaling?")]
    page = site.get(link)
    assert page.attributes("a", href=f"/searches/{search}")
    shown = {"devices": "6..96", "global_batch_size": "48", "pins": "recompute=none"}
    assert shown_in(page) == FORM | shown


def test_the_button_asks_for_what_is_missing_and_comes_back(site: Site) -> None:
    held = site.store_search(small_request(devices=64), key=new_search(small_request(devices=64), None).key)
    path = address(devices="32,64,128", forbids="tp=8")
    assert "0 of 3 counts are answered, 3 are not asked" in site.get(path).text
    path = address(devices="32,64")
    page = site.get(path)
    assert "1 is being searched, 1 is not asked" in page.text
    assert page.attributes("form", action=path, method="post")
    asked = site.server.client.post(path, headers=BROWSER)
    assert (asked.status_code, asked.headers["location"]) == (303, path)
    points = site.server.client.get(path.replace("/scaling?", "/scaling.json?")).json()["points"]
    assert points[1]["search_id"] == held
    assert points[1]["status"] == "running"
    assert points[0]["status"] in ("queued", "running", "optimal")
    waiting = site.get(path)
    assert waiting.attributes("div", **{"data-every": "3000"})
    assert [part["id"] for part in waiting.attributes("section", **{"data-part": ""})] == ["points"]
    site.server.client.post(f"/searches/{points[0]['search_id']}/cancel", headers=BROWSER)


def test_counts_that_a_cluster_can_not_have_are_points(site: Site) -> None:
    page = site.get(address(cluster="rtx4090-1", devices="1,2"))
    assert "can't be asked" in page.text
    assert "Ask for the 1 that is missing" in page.text


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"devices": "8..x"}, "devices"),
        ({"devices": "1..65:1"}, "devices"),
        ({"devices": ""}, "devices"),
        ({"model": "lama", "devices": "8"}, "model"),
        ({"pins": "tp=x", "devices": "8"}, "pins"),
        ({"max_seconds": "1e9", "devices": "8"}, "max_seconds"),
        ({"devices": "8", "colour": "red"}, "colour"),
    ],
)
def test_what_is_unusable_is_said_at_its_field(site: Site, asked: dict[str, str], field: str) -> None:
    path = address(**asked)
    page = site.get(path, 422)
    told = page.attributes("input", id=f"ask-{field}") or page.attributes("textarea", id=f"ask-{field}")
    if told:
        assert told[0]["aria-invalid"] == "true"
    else:
        assert field in page.text
    problem = site.server.client.get(path.replace("/scaling?", "/scaling.json?"))
    assert problem.status_code == 422
    assert [error["pointer"] for error in problem.json()["errors"]] == [field]
