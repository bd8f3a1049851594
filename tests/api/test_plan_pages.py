"""The page of a plan: what it shows is the API's answer, and every state of it has an address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.pages import BROWSER, Site, running_site, small_answer, small_request
from tests.e2e.servers import Server

Json = dict[str, Any]
PARTS = {"hx-request": "true"}


@pytest.fixture(scope="module", params=["sqlite"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(request, tmp_path_factory.mktemp("plans")) as running:
        yield running


@pytest.fixture(scope="module")
def plans(site: Site) -> list[Json]:
    """Two plans of one search with a pipeline, the better one first."""
    request = small_request(pins=["pp=2..", "tp=1..2"], top=2)
    search = site.store_answer(request, small_answer(request))
    return list(site.server.search(search)["plans"])


def _measured(server: Server, plan: Json, **told: Any) -> None:
    server.client.post("/v1/measurements", json={"plan_id": plan["id"]} | told).raise_for_status()


def test_the_page_shows_what_the_api_answers(site: Site, plans: list[Json]) -> None:
    plan = plans[0]
    page = site.get(f"/plans/{plan['id']}")
    prediction = plan["prediction"]
    assert f"{prediction['step_time_s']:.3f}" in page.text
    assert f"{prediction['memory']['peak_bytes'] / 2**30:.1f}" in page.text
    assert "attention" in page.text
    assert "pipeline bubble" in page.text
    assert f"plan {plan['rank']} of search" in page.text
    twin = site.server.client.get(f"/plans/{plan['id']}.json")
    assert twin.json() == site.server.client.get(f"/v1/plans/{plan['id']}").json()
    # Nothing runs before it is asked for, and without a script a link asks for it.
    assert page.attributes("path") == []
    assert page.attributes("a", href=f"/plans/{plan['id']}?timeline=0-100#timeline")


def test_parts_of_the_step_fill_it_one_after_the_other(site: Site, plans: list[Json]) -> None:
    page = site.get(f"/plans/{plans[0]['id']}")
    strips = [rect for rect in page.attributes("rect", height="1") if "x" in rect]
    ends = [float(rect["x"]) + float(rect["width"]) for rect in strips]
    assert ends == pytest.approx([*(float(rect["x"]) for rect in strips[1:]), 100.0], abs=0.01)


def test_the_timeline_is_drawn_in_the_window_of_the_url(site: Site, plans: list[Json]) -> None:
    identifier = plans[0]["id"]
    page = site.get(f"/plans/{identifier}?timeline=25-50&target=sbatch")
    assert "forward of micro-batch" in page.text
    moved = f"/plans/{identifier}?target=sbatch&timeline=12.5-37.5"
    links = [link for link in page.attributes("a") if link.get("hx-push-url") == moved]
    assert len(links) == 1
    part = site.get(links[0]["hx-get"], **PARTS)
    assert part.tags[0] == ("section", {"aria-labelledby": "timeline", "id": "timeline-section"})
    assert "forward of micro-batch" in part.text
    alone = site.server.client.get(links[0]["hx-get"], headers=BROWSER)
    assert (alone.status_code, alone.headers["location"]) == (303, f"{moved}#timeline")


@pytest.mark.parametrize("window", ["50-25", "0-101", "a-b", "1", "-5-10", "5-5"])
def test_a_window_that_is_none_is_named(site: Site, plans: list[Json], window: str) -> None:
    page = site.get(f"/plans/{plans[0]['id']}?timeline={window}", 422)
    assert "timeline" in page.text
    assert "25-37.5" in page.text


def test_a_plan_is_said_in_the_words_of_a_target_and_its_files_are_there_to_download(
    site: Site, plans: list[Json]
) -> None:
    identifier = plans[0]["id"]
    page = site.get(f"/plans/{identifier}?target=sbatch")
    assert "#SBATCH" in page.text
    (link,) = page.attributes("a", href=f"/plans/{identifier}/files/sbatch/train.sbatch")
    file = site.server.client.get(link["href"])
    assert file.headers["content-disposition"] == 'attachment; filename="train.sbatch"'
    assert "#SBATCH" in file.text
    trace = site.server.client.get(f"/plans/{identifier}/files/trace/trace.json")
    assert json.loads(trace.text)["otherData"]["plan_id"] == identifier
    assert "DeepSpeed JSON takes those of" in site.get(f"/plans/{identifier}?target=deepspeed").text
    assert "known are" in site.get(f"/plans/{identifier}?target=none-such", 422).text
    assert site.server.client.get(f"/plans/{identifier}/files/sbatch/passwd").status_code == 404


def test_versions_of_a_target_have_addresses_and_refuse_with_the_whole_list(site: Site, plans: list[Json]) -> None:
    identifier = plans[0]["id"]
    link = f"/plans/{identifier}?target=megatron-lm&version=0.9#launch"
    assert site.get(f"/plans/{identifier}").attributes("a", href=link)
    refused = site.get(link.partition("#")[0])
    told = site.server.client.get(f"/v1/plans/{identifier}/launch?target=megatron-lm&version=0.9").json()
    assert "Megatron-LM 0.9 can't express this plan" in refused.text
    for entry in told["refusals"]:
        assert entry["why"] in refused.text
    assert "9.9" in site.get(f"/plans/{identifier}?target=megatron-lm&version=9.9", 422).text


def test_every_axis_is_drawn_on_the_nodes_that_it_reaches(site: Site, plans: list[Json]) -> None:
    page = site.get(f"/plans/{plans[0]['id']}")
    pictures = [svg["aria-label"] for svg in page.attributes("svg", **{"class": "nodes"})]
    assert any(told.startswith("pp of ") for told in pictures)
    assert all("NVLink domain of 8" in told for told in pictures)


def test_measured_runs_stand_beside_the_prediction(site: Site, plans: list[Json]) -> None:
    plan = plans[1]
    assert "Nothing was measured of this plan yet." in site.get(f"/plans/{plan['id']}").text
    _measured(site.server, plan, status="ok", step_time_s=1.1 * plan["prediction"]["step_time_s"], note="<b>night</b>")
    _measured(site.server, plan, status="out_of_memory")
    page = site.get(f"/plans/{plan['id']}")
    assert "1.100" in page.text
    assert "out of memory" in page.text
    assert "<b>night" not in page.source


def test_what_is_not_there_is_said(site: Site) -> None:
    for path in (f"/plans/{'0' * 32}", "/plans/nothing", f"/plans/{'0' * 32}/timeline"):
        assert "there is no plan" in site.get(path, 404, **PARTS).text
    assert site.server.client.get(f"/plans/{'0' * 32}.json", headers=BROWSER).status_code == 404
