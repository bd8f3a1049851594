"""The page of a plan: what it shows is the API's answer, and every state of it has an address."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from api.dashboard.plans.memory import held
from api.schemas.answers import PlanFields
from tests.api.pages import Page
from tests.api.pages_here import Here
from tests.api.plans_here import measure, plans_here, stored_plans

Json = dict[str, Any]
PARTS = {"hx-request": "true"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with plans_here(tmp_path_factory.mktemp("plans")) as running:
        yield running


@pytest.fixture(scope="module")
def search(here: Here) -> tuple[str, list[Json]]:
    """A search with two plans that have a pipeline."""
    return stored_plans(here, pins=["pp=2..", "tp=1..2"], top=2)


@pytest.fixture(scope="module")
def plans(search: tuple[str, list[Json]]) -> list[Json]:
    """The plans, the better one first."""
    return search[1]


def test_the_page_shows_what_the_api_answers(here: Here, search: tuple[str, list[Json]]) -> None:
    identifier, (plan, other) = search
    page = here.page(f"/plans/{plan['id']}")
    prediction = plan["prediction"]
    assert f"{prediction['step_time_s']:.3f}" in page.text
    assert f"{prediction['memory']['peak_bytes'] / 2**30:.1f}" in page.text
    assert "attention" in page.text
    assert "pipeline bubble" in page.text
    assert f"plan 1 of search {identifier[:8]}" in page.text
    assert page.attributes("a", href=f"/compare?plan={plan['id']}&plan={other['id']}")
    twin = here.fetch(f"/plans/{plan['id']}.json")
    assert twin.json() == here.fetch(f"/v1/plans/{plan['id']}").json()
    # Nothing runs before it is asked for, and without a script a link asks for it.
    assert page.attributes("path") == []
    assert page.attributes("a", href=f"/plans/{plan['id']}?timeline=0-100#timeline")


def test_a_plan_of_an_earlier_version_lacks_what_was_not_told_then(here: Here, plans: list[Json]) -> None:
    stored = here.store
    with stored.reading() as repos:
        today = repos.plans.get(plans[0]["id"])
    assert today is not None
    memory = {name: today.prediction["memory"][name] for name in ("peak_bytes", "usable_bytes", "stages")}
    kept = ("step_time_s", "step_time_interval_s", "tokens_per_s_per_device", "mfu", "hfu", "time", "provenance")
    prediction = {name: today.prediction[name] for name in kept} | {"memory": memory}
    later = {name for name, field in PlanFields.model_fields.items() if not field.is_required()}
    fields = {name: value for name, value in today.plan.items() if name not in later}
    old = replace(today, id="a" * 32, cost_model_version="0.0.1+00000000", plan=fields, prediction=prediction)
    with stored.writing() as repos:
        repos.plans.put([old])
    page = here.page(f"/plans/{old.id}?timeline=0-100")
    assert "Drawn by today's cost model" in page.text
    assert "as others count it" not in page.text
    compared = here.page(f"/compare?plan={old.id}&plan={plans[1]['id']}")
    assert "The plans were not priced by the same numbers" in compared.text
    assert "one change after the other" not in compared.text
    # Today's figures of what was stored before the memory of hosts was told.
    new = replace(old, id="b" * 32, cost_model_version=today.cost_model_version)
    with stored.writing() as repos:
        repos.plans.put([new])
    assert "Why plan" in here.page(f"/compare?plan={new.id}&plan={plans[1]['id']}").text


def test_a_plan_of_another_batch_is_of_that_batch_everywhere(here: Here) -> None:
    """As where a tolerance of the batch was given: 9 sequences were asked for, and 8 devices divide 8."""
    (asked,) = stored_plans(here, global_batch_size=9, min_used=0.1, top=1)[1]
    own = next(
        plan
        for plan in stored_plans(here, global_batch_size=9, batch_tolerance=0.2, top=3)[1]
        if plan["plan"]["global_batch_size"] != 9
    )
    size = own["plan"]["global_batch_size"]
    page = here.page(f"/plans/{own['id']}?timeline=0-100&target=megatron-lm")
    assert f"{size} sequences of 4,096 tokens (9 were asked for)" in page.text
    assert f"--global-batch-size {size}" in page.text
    assert here.fetch(f"/plans/{own['id']}/files/trace/trace.json").status_code == 200
    launched = here.fetch(f"/v1/plans/{own['id']}/launch?target=megatron-lm").json()
    assert f"--global-batch-size {size}" in json.dumps(launched)
    scenario = here.json(f"/v1/plans/{own['id']}")["scenario_id"]
    listed = here.json(f"/v1/plans?scenario_id={scenario}")["items"]
    assert {plan["id"]: plan["global_batch_size"] for plan in listed}[own["id"]] == size
    address = f"compare?plan={asked['id']}&plan={own['id']}"
    twin = here.json(f"/v1/plans/{address}")
    assert (twin["same_scenario"], twin["same_work"]) == (True, False)
    compared = here.page(f"/{address}")
    assert "The plans are not for the same work" in compared.text
    assert "batch, sequences" in compared.text
    assert (
        f"a batch of {size} instead of 9 sequences" in compared.text
        or f"a batch of 9 instead of {size}" in compared.text
    )
    assert "one change after the other" not in compared.text


def test_parts_of_the_step_fill_it_one_after_the_other(here: Here, plans: list[Json]) -> None:
    page = here.page(f"/plans/{plans[0]['id']}")
    strips = [rect for rect in page.attributes("rect", height="1") if "x" in rect]
    ends = [float(rect["x"]) + float(rect["width"]) for rect in strips]
    assert ends == pytest.approx([*(float(rect["x"]) for rect in strips[1:]), 100.0], abs=0.01)


def test_the_timeline_is_drawn_in_the_window_of_the_url(here: Here, plans: list[Json]) -> None:
    identifier = plans[0]["id"]
    page = here.page(f"/plans/{identifier}?timeline=25-50&target=sbatch")
    assert "forward of micro-batch" in page.text
    moved = f"/plans/{identifier}?target=sbatch&timeline=12.5-37.5"
    links = [link for link in page.attributes("a") if link.get("hx-push-url") == moved]
    assert len(links) == 1
    part = Page(source=here.fetch(links[0]["hx-get"], **PARTS).text)
    assert part.tags[0] == ("section", {"aria-labelledby": "timeline", "id": "timeline-section"})
    assert "forward of micro-batch" in part.text
    alone = here.fetch(links[0]["hx-get"])
    assert (alone.status_code, alone.headers["location"]) == (303, f"{moved}#timeline")


@pytest.mark.parametrize("window", ["50-25", "0-101", "a-b", "1", "-5-10", "5-5"])
def test_a_window_that_is_none_is_named(here: Here, plans: list[Json], window: str) -> None:
    page = here.page(f"/plans/{plans[0]['id']}?timeline={window}", 422)
    assert "timeline" in page.text
    assert "25-37.5" in page.text


def test_a_plan_is_said_in_the_words_of_a_target_and_its_files_are_there_to_download(
    here: Here, plans: list[Json]
) -> None:
    identifier = plans[0]["id"]
    page = here.page(f"/plans/{identifier}?target=sbatch")
    assert "#SBATCH" in page.text
    (link,) = page.attributes("a", href=f"/plans/{identifier}/files/sbatch/train.sbatch")
    file = here.fetch(link["href"])
    assert file.headers["content-disposition"] == 'attachment; filename="train.sbatch"'
    assert "#SBATCH" in file.text
    trace = here.fetch(f"/plans/{identifier}/files/trace/trace.json")
    assert json.loads(trace.text)["otherData"]["plan_id"] == identifier
    assert "DeepSpeed JSON takes those of" in here.page(f"/plans/{identifier}?target=deepspeed").text
    assert "known are" in here.page(f"/plans/{identifier}?target=none-such", 422).text
    assert here.fetch(f"/plans/{identifier}/files/sbatch/passwd").status_code == 404


def test_versions_of_a_target_have_addresses_and_refuse_with_the_whole_list(here: Here, plans: list[Json]) -> None:
    identifier = plans[0]["id"]
    link = f"/plans/{identifier}?target=megatron-lm&version=0.9#launch"
    assert here.page(f"/plans/{identifier}").attributes("a", href=link)
    refused = here.page(link.partition("#")[0])
    told = here.fetch(f"/v1/plans/{identifier}/launch?target=megatron-lm&version=0.9").json()
    assert "Megatron-LM 0.9 can't express this plan" in refused.text
    for entry in told["refusals"]:
        assert entry["why"] in refused.text
    assert "9.9" in here.page(f"/plans/{identifier}?target=megatron-lm&version=9.9", 422).text


def test_every_axis_is_drawn_on_the_nodes_that_it_reaches(here: Here, plans: list[Json]) -> None:
    page = here.page(f"/plans/{plans[0]['id']}")
    pictures = [svg["aria-label"] for svg in page.attributes("svg", **{"class": "nodes"})]
    assert any(told.startswith("pp of ") for told in pictures)
    assert all("NVLink domain of 8" in told for told in pictures)


def test_measured_runs_stand_beside_the_prediction(here: Here, plans: list[Json]) -> None:
    plan = plans[1]
    assert "Nothing was measured of this plan yet." in here.page(f"/plans/{plan['id']}").text
    measure(here, plan, over_predicted=1.1, note="<b>night</b>")
    measure(here, plan, over_predicted=None)
    page = here.page(f"/plans/{plan['id']}")
    assert "1.100" in page.text
    assert "out of memory" in page.text
    assert "<b>night" not in page.source


def test_the_example_of_a_report_says_no_figure_that_was_not_measured(here: Here, plans: list[Json]) -> None:
    """Sent as it is, it is refused."""
    source = unescape(here.page(f"/plans/{plans[0]['id']}").source)
    (example,) = re.findall(r'<pre id="report"[^>]*>(.*?)</pre>', source)
    body, address = re.findall("'([^']*)'", example)
    assert plans[0]["id"] in body
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert address == "http://here/v1/measurements"


def test_what_is_not_there_is_said(here: Here) -> None:
    for path in (f"/plans/{'0' * 32}", "/plans/nothing", f"/plans/{'0' * 32}/timeline"):
        response = here.fetch(path, **PARTS)
        assert (response.status_code, "there is no plan" in response.text) == (404, True)
    assert here.fetch(f"/plans/{'0' * 32}.json").status_code == 404


def test_a_process_that_would_hold_more_than_there_is_is_said_to_be_at_risk() -> None:
    memory = {"reserved_bytes": int(45.8 * 2**30), "device_bytes": 45 * 2**30}
    assert held(memory).startswith("at risk: the process would then hold about 45.8 GiB")
    assert "at risk" not in held(memory | {"device_bytes": 80 * 2**30})
