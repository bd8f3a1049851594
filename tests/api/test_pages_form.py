"""The form to ask: what is wrong is said at its fields, all of it at once, and a stored question fills it again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.dashboard.searches.again import form_of
from api.dashboard.searches.form import Form, question_of
from api.questions import search_request
from api.settings import Settings
from costmodel.calibration.calibration import Calibration, load_calibration
from planner.calibrating import calibration_text
from planner.search.request import SearchRequest
from planner.stored.questions import problem_key
from tests.api.pages import BROWSER, FORM, Page, Site, running_site, shown_in, small_answer, small_request
from tests.databases import BACKENDS


@pytest.fixture(scope="module", params=BACKENDS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(request, tmp_path_factory.mktemp("form")) as running:
        yield running


def wrong_in(page: Page) -> list[str]:
    """Fields that are marked as wrong."""
    return [name for name in FORM if page.with_id(f"ask-{name}").get("aria-invalid") == "true"]


def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_is_kept(site: Site) -> None:
    response = site.ask(devices="5x12", seq_len="", top="0", forbids="recompute=full", objective="cost")
    assert response.status_code == 422
    page = Page(source=response.text)
    assert page.with_id("ask-devices")["value"] == "5x12"
    assert page.with_id("ask-model")["value"] == FORM["model"]
    assert re.search(r'<textarea [^>]*name="forbids"[^>]*>\nrecompute=full</textarea>', response.text)
    assert page.attributes("option", value="cost", selected="")
    assert wrong_in(page) == ["devices", "seq_len", "top"]
    assert "a whole number in digits is expected" in page.text
    assert page.attributes("a", href="#ask-devices")


def test_all_that_is_wrong_is_said_in_one_answer(site: Site) -> None:
    typed = {"model": "lama-3.1-70b", "cluster": "dgx-h10", "framework": "megatrom", "precision": "int3"}
    typed |= {"seq_len": "long", "global_batch_size": "900000000", "devices": "0", "optimizer": "adamv"}
    response = site.ask(**typed, pins="tp=x colour=red pp=4", forbids="recompute=some")
    assert response.status_code == 422
    page = Page(source=response.text)
    wrong = wrong_in(page)
    assert sorted(wrong) == sorted([*typed, "pins", "forbids"])
    for name in wrong:
        assert f"error-{name}" in page.with_id(f"ask-{name}")["aria-describedby"].split()
        assert page.attributes("a", href=f"#ask-{name}")
    for said in (
        "did you mean llama-3.1-70b",
        "'x' must be a whole number",
        "'colour' is not usable",
        "at most 100000000",
    ):
        # At the field, and in the list above the form.
        assert page.text.count(said) == 2, said
    assert page.with_id("wrong") == {
        "class": "box bad",
        "id": "wrong",
        "role": "alert",
        "tabindex": "-1",
        "autofocus": "",
    }
    # One field at a time is what a browser would say by itself.
    assert "novalidate" in page.attributes("form", method="post")[0]
    assert page.attributes("details", open="", **{"class": "rare"})


def test_what_rests_on_two_fields_is_said_once_both_can_be_read(site: Site) -> None:
    typed = {"model": "lama-3.1-70b", "cluster": "rtx4090-1", "framework_version": "9.9"}
    several = Page(source=site.ask(**typed).text)
    assert wrong_in(several) == ["model", "devices", "framework_version"]
    other = Page(source=site.ask(framework="megatrom", framework_version="9.9").text)
    assert "aria-invalid" not in other.with_id("ask-framework_version")


@pytest.mark.parametrize(
    ("typed", "field", "said"),
    [
        ({"model": "lama-3.1-70b"}, "model", "did you mean llama-3.1-70b"),
        ({"model": "/etc/passwd"}, "model", "is not usable"),
        ({"cluster": "./cluster.yaml"}, "cluster", "is not usable"),
        ({"pins": "tp=<script>alert(1)</script>"}, "pins", "must be a whole number"),
        ({"forbids": "colour=red"}, "forbids", "colour"),
        ({"max_seconds": "100000"}, "max_seconds", "allowed by this server"),
        ({"precision": "int8"}, "precision", "known"),
        ({"framework": "torchtitan", "gradient_dtype": "bf16"}, "gradient_dtype", "torchtitan has fp32 with bf16"),
        ({"objective": "cost", "cluster": "dgx-h100"}, "price_per_device_hour", "price"),
    ],
)
def test_what_the_planner_refuses_is_said_at_its_field(
    site: Site, typed: dict[str, str], field: str, said: str
) -> None:
    response = site.ask(**typed)
    assert response.status_code == 422
    page = Page(source=response.text)
    assert page.with_id(f"ask-{field}")["aria-invalid"] == "true"
    assert said in page.text
    assert "<script>" not in response.text


def test_programs_get_a_problem_for_a_bad_form(site: Site) -> None:
    data = FORM | {"top": "none", "model": "lama-3.1-70b", "pins": "tp=x pp=y"}
    response = site.server.client.post("/searches", data=data, headers={"Accept": "application/json"})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/top", "/model", "/pins", "/pins"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"model=" + b"x" * 70_000, "application/x-www-form-urlencoded", 413),
        (b"&".join(b"top=1" for _ in range(100)), "application/x-www-form-urlencoded", 400),
        (b"colour=red", "application/x-www-form-urlencoded", 422),
        (b"model=\xff", "application/x-www-form-urlencoded", 400),
        (b"model=%00&cluster=%00", "application/x-www-form-urlencoded", 422),
    ],
)
def test_forms_that_no_browser_sends_are_refused(site: Site, body: bytes, kind: str, status: int) -> None:
    response = site.server.client.post("/searches", content=body, headers={**BROWSER, "Content-Type": kind})
    assert response.status_code == status, response.text
    Page(source=response.text)


def test_another_sites_form_is_refused(site: Site) -> None:
    for header in ({"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        response = site.server.client.post("/searches", data=FORM, headers={**BROWSER, **header})
        assert response.status_code == 403


def test_a_question_is_asked_again_with_changes(site: Site) -> None:
    how = {"framework": "megatron-core", "framework_version": "0.15", "objective": "cost", "optimizer": "muon"}
    how |= {"gradient_dtype": "bf16", "precision": "fp8-current"}
    request = small_request(
        **how,
        price_per_device_hour=2.35,
        pins=("tp=1,2", "dp = 2.."),
        forbids=("recompute=full",),
        min_free_gib=1.3,
        min_used=0.5,
        max_seconds=12.5,
        seed=7,
        top=4,
        min_devices=2,
        max_step_time_s=50.5,
        shortlist=0.75,
        pareto=True,
        explain=True,
    )
    identifier = site.store_answer(request, small_answer(request))
    asked_about = site.get(f"/searches/{identifier}")
    for said in (
        "bf16 gradients",
        "at least 2",
        "at most 50.5 s",
        "fastest with probability 0.75",
        "Pareto front, explanation",
    ):
        assert said in asked_about.text
    link, scaling = asked_about.attributes("a", **{"class": "button"})
    for kept in ("min_devices=2", "max_step_time_s=50.5", "shortlist=0.75", "pareto=yes", "explain=yes"):
        assert kept in scaling["href"]
    assert link["href"] == f"/searches?from={identifier}"
    page = site.get(link["href"])
    assert "Filled in with the question of an earlier search" in page.text
    body, form = question_of(shown_in(page))
    assert form.errors == {}
    assert body is not None
    asked = search_request(body, Settings())
    assert problem_key(asked) == problem_key(request)
    assert (asked.min_devices, asked.explain) == (2, True)
    assert (asked.max_seconds, asked.seed) == (12.5, 7)


@pytest.mark.parametrize("changed", [{}, {"model": "llama-3.1-405b", "devices": 64}])
def test_what_has_its_default_is_left_as_it_is(site: Site, changed: dict[str, Any]) -> None:
    request = small_request(**changed)
    page = site.get(f"/searches?from={site.store_answer(request, small_answer(request))}")
    assert shown_in(page) == FORM | {name: str(value) for name, value in changed.items()}
    assert page.attributes("details", open="", **{"class": "rare"}) == []


def test_a_search_that_failed_or_was_cancelled_can_be_asked_again_and_one_that_runs_can_not(site: Site) -> None:
    failed, cancelled, running = (site.store_search(small_request(top=top)) for top in (11, 12, 13))
    with site.store.writing() as repos:
        assert repos.searches.fail(failed, "another", 1, {"type": "x", "detail": "y"}, datetime.now(UTC))
        assert repos.searches.request_cancel(cancelled, datetime.now(UTC))
        assert repos.searches.mark_cancelled(cancelled, "another", 1, datetime.now(UTC))
    for identifier in (failed, cancelled):
        assert site.get(f"/searches/{identifier}").attributes("a", href=f"/searches?from={identifier}")
    assert site.get(f"/searches/{running}").attributes("a", **{"class": "button"}) == []


def test_what_the_form_can_not_ask_again_is_said(site: Site) -> None:
    known = small_request()
    model = known.scenario.model.model_copy(update={"name": "ours<1b>"})
    cluster = known.scenario.cluster.model_copy(update={"name": "our-pod"})
    changed = known.scenario.cluster.model_copy(update={"max_devices": 16})
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model": model}, "the model 'ours<1b>' is not in it"),
        ({"model": model, "cluster": cluster}, "the model 'ours<1b>' and the cluster 'our-pod' are not in it"),
    ]
    for given, missing in cases:
        scenario = known.scenario.model_copy(update=given)
        identifier = site.store_search(replace(known, scenario=scenario))
        with site.store.writing() as repos:
            assert repos.searches.fail(identifier, "another", 1, {"detail": "y"}, datetime.now(UTC))
        page = site.get(f"/searches/{identifier}")
        assert missing in page.text
        assert page.attributes("a", **{"class": "button"}) == []
        form = site.get(f"/searches?from={identifier}")
        assert "The model 'ours<1b>' is not in the catalog" in form.text
        assert form.with_id("ask-model")["value"] == ""
    other = site.store_search(replace(known, scenario=known.scenario.model_copy(update={"cluster": changed})))
    page = site.get(f"/searches?from={other}")
    assert "The cluster 'dgx-h100' of the catalog is not the one that was asked about" in page.text
    assert page.with_id("ask-cluster")["value"] == "dgx-h100"


@pytest.fixture
def slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calibration:
    """A calibration of the user's own catalog: the shipped one, under another name and with steps twice as long."""
    shipped = load_calibration()
    rows = [row if row.name != "time_level" else row.model_copy(update={"value": 2.0}) for row in shipped.parameters]
    own = Calibration.model_validate(shipped.model_dump() | {"name": "slower", "parameters": rows})
    (tmp_path / "calibrations").mkdir()
    (tmp_path / "calibrations" / "slower.json").write_text(calibration_text(own), encoding="utf-8")
    monkeypatch.setenv("PLANNER_CATALOG_DIR", str(tmp_path))
    return own


def asked_again(site: Site, request: SearchRequest) -> Form:
    """The form filled here, where the user's own catalog is; the server has none."""
    identifier = site.store_search(request)
    with site.store.reading() as repos:
        search = repos.searches.get(identifier)
        assert search is not None
        scenario = repos.scenarios.get(search.scenario_id)
        assert scenario is not None
        return form_of(search, scenario)


def test_the_calibration_of_a_question_is_asked_again(site: Site, slower: Calibration) -> None:
    form = asked_again(site, small_request(calibration="slower", top=5))
    body, again = question_of({name: value for name, value in form.typed.items() if value})
    assert again.errors == {}
    assert body is not None
    assert search_request(body, Settings()).scenario.calibration == slower
    assert len(form.notes) == 1


def test_a_calibration_that_the_catalog_does_not_have_is_named(site: Site, slower: Calibration) -> None:
    request = small_request(calibration="slower", top=6)
    page = site.get(f"/searches?from={site.store_search(request)}")
    assert "The calibration 'slower' is not in the catalog: published-2026-11 prices what is asked here" in page.text
    assert page.with_id("ask-calibration")["value"] == ""
    changed = slower.model_copy(update={"parameters": load_calibration().parameters})
    other = replace(request, scenario=request.scenario.model_copy(update={"calibration": changed}))
    form = asked_again(site, other)
    assert form.typed["calibration"] == "slower"
    assert "The calibration 'slower' of the catalog is not the one that priced it then." in form.notes


@pytest.mark.parametrize("identifier", ["0" * 32, "none", "%00", "x" * 5_000, "<b>"])
def test_a_search_to_start_from_that_is_not_there_is_noted(site: Site, identifier: str) -> None:
    page = site.get(f"/searches?from={identifier}")
    assert "There is no search" in page.text
    assert page.with_id("ask-model")["value"] == "llama-3.1-70b"
    assert site.server.client.get(f"/searches.json?from={identifier}").status_code == 200
