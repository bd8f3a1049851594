"""Lists: pages by cursor that hold while rows are added, filters, and every way to sort plans."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from tests.api.asking import answered, ask, infeasible, pointers

_LISTS = ["/v1/searches", "/v1/plans", "/v1/measurements", "/v1/studies"]
_ALONE = [
    "/v1/models",
    "/v1/models/llama-3-8b",
    "/v1/clusters",
    "/v1/clusters/dgx-h100",
    "/v1/calibrations",
    "/v1/plans/{plan}",
    "/v1/searches/{search}",
    "/v1/searches/{search}/events",
]
_SORTS = ["step_time_s", "tokens_per_s_per_device", "mfu", "peak_bytes", "created_at"]
_FOREIGN = [
    [],
    ["-created_at"],
    ["-created_at", "2026-01-01T00:00:00+00:00", "0" * 32],
    ["-created_at", "other", "2026-01-01T00:00:00+00:00", "0" * 32],
    ["-created_at", None, "2026-01-01T00:00:00+00:00", "0" * 32],
    ["-created_at", "", "2026-01-01T00:00:00+00:00"],
    ["-created_at", "", "2026-01-01T00:00:00", "0" * 32],
    ["-created_at", "", "yesterday", "0" * 32],
    ["-created_at", "", "0001-01-01T00:00:00+23:00", "0" * 32],
    ["-created_at", "", "9999-12-31T23:59:59-23:00", "0" * 32],
    ["-created_at", "", 1e308, "0" * 32],
    ["-created_at", "", None, "0" * 32],
    ["-created_at", "", "2026-01-01T00:00:00+00:00", {}],
    ["-created_at", "", "2026-01-01T00:00:00+00:00", 7],
    ["-created_at", "", "2026-01-01T00:00:00+00:00", "\0"],
    ["-created_at", "", "2026-01-01T00:00:00+00:00", "x"],
    ["mfu", "", 0.5, "0" * 32],
    {"sort": "-created_at"},
    "text",
    None,
]


def _cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _pages(client: httpx.Client, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages of a list."""
    pages, cursor = [], None
    while True:
        page = client.get(path, params={**query, **({"cursor": cursor} if cursor else {})}).raise_for_status().json()
        pages.append(page["items"])
        cursor = page["next"]
        if cursor is None:
            return pages


@pytest.fixture(scope="module")
def plans(client: httpx.Client) -> list[str]:
    """Ids of twelve plans, best first."""
    return [plan["id"] for plan in answered(client, top=12)["plans"]]


@pytest.mark.parametrize("sort", [*_SORTS, *(f"-{sort}" for sort in _SORTS)])
def test_plans_sorted_in_every_way(client: httpx.Client, plans: list[str], sort: str) -> None:
    scenario = client.get(f"/v1/plans/{plans[0]}").json()["scenario_id"]

    pages = _pages(client, "/v1/plans", scenario_id=scenario, sort=sort, limit=5)

    assert [len(page) for page in pages] == [5, 5, 2]
    items = [item for page in pages for item in page]
    assert {item["id"] for item in items} == set(plans)
    name = sort.removeprefix("-")
    values = [item["created_at"] if name == "created_at" else item["figures"][name] for item in items]
    assert values == sorted(values, reverse=sort.startswith("-"))


def test_a_cursor_holds_while_searches_are_added(client: httpx.Client) -> None:
    cluster = {"name": "lists-hold", "extends": "dgx-h100"}
    before = [ask(client, infeasible(cluster=cluster, model="llama-3.1-405b")).json()["id"] for _ in range(4)]
    first = client.get("/v1/searches", params={"cluster": "lists-hold", "limit": 2}).json()

    added = ask(client, infeasible(cluster=cluster, model="llama-3.1-405b")).json()["id"]
    second = client.get("/v1/searches", params={"cluster": "lists-hold", "limit": 2, "cursor": first["next"]}).json()

    assert [item["id"] for item in first["items"] + second["items"]] == before[::-1]
    assert second["next"] is None
    newest = client.get("/v1/searches", params={"cluster": "lists-hold", "limit": 1}).json()
    assert newest["items"][0]["id"] == added


def test_searches_are_filtered(client: httpx.Client, answer: dict[str, Any]) -> None:
    none = ask(client, infeasible()).json()

    def ids(**query: str) -> set[str]:
        return {item["id"] for page in _pages(client, "/v1/searches", **query, limit=200) for item in page}

    assert {answer["id"], none["id"]} <= ids(state="done")
    assert answer["id"] in ids(status="optimal", model="llama-3-8b")
    assert none["id"] not in ids(status="optimal")
    assert none["id"] in ids(status="infeasible", cluster="rtx4090-1", state="done")
    assert ids(cluster="rtx4090-1", model="llama-3-8b") == set()
    assert answer["id"] not in ids(state="failed")
    assert answer["id"] in ids(since="PT1H") & ids(since="P7D")
    assert ids(since="P0D") == set()


def test_plans_are_filtered_by_every_axis_and_name(client: httpx.Client, answer: dict[str, Any]) -> None:
    for ranked in answer["plans"]:
        (listed,) = [
            item
            for item in client.get("/v1/plans", params={"search_id": answer["id"]}).json()["items"]
            if item["id"] == ranked["id"]
        ]
        names = ("model", "cluster", "accelerator", "framework", "precision", "devices", "calibration_id")
        query = listed["axes"] | {name: listed[name] for name in names} | {"scenario_id": listed["scenario_id"]}
        found = client.get("/v1/plans", params=query).json()["items"]
        assert ranked["id"] in [item["id"] for item in found]
        for name, value in query.items():
            other = value + 1 if isinstance(value, int) else value[::-1] if name.endswith("_id") else f"not-{value}"
            assert client.get("/v1/plans", params=query | {name: other}).json()["items"] == [], name


def test_plans_that_need_at_most_so_much_memory(client: httpx.Client, answer: dict[str, Any]) -> None:
    peaks = {plan["id"]: plan["prediction"]["memory"]["peak_bytes"] for plan in answer["plans"]}
    least = min(peaks.values())

    found = client.get("/v1/plans", params={"search_id": answer["id"], "max_peak_bytes": least}).json()["items"]

    assert {item["id"] for item in found} == {id for id, peak in peaks.items() if peak <= least}


@pytest.mark.parametrize("path", _LISTS)
@pytest.mark.parametrize("value", _FOREIGN, ids=repr)
def test_a_cursor_that_is_none_of_ours(client: httpx.Client, path: str, value: Any) -> None:
    assert pointers(client.get(path, params={"cursor": _cursor(value)})) == ["cursor"]


@pytest.mark.parametrize("path", _LISTS)
def test_a_cursor_that_is_no_cursor(client: httpx.Client, path: str) -> None:
    for text in ("x", "%%%", "=", "Ww==" * 40, "x" * 201, "\0", "ü", ""):
        assert pointers(client.get(path, params={"cursor": text})) == ["cursor"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1", 2**63, -(2**70), 1e300, [1], None])
@pytest.mark.parametrize("sort", ["mfu", "peak_bytes"])
def test_a_cursor_with_a_figure_that_is_none(client: httpx.Client, sort: str, value: Any) -> None:
    query = {"sort": sort, "cursor": _cursor([sort, "", value, "0" * 32])}

    assert pointers(client.get("/v1/plans", params=query)) == ["cursor"]


def test_a_cursor_belongs_to_one_way_of_sorting(client: httpx.Client, plans: list[str]) -> None:
    further = client.get("/v1/plans", params={"sort": "mfu", "limit": 1}).json()["next"]

    for sort in ("-mfu", "step_time_s", "-created_at"):
        assert pointers(client.get("/v1/plans", params={"sort": sort, "cursor": further})) == ["cursor"]


def test_a_cursor_belongs_to_one_filter(client: httpx.Client, plans: list[str]) -> None:
    scenario = client.get(f"/v1/plans/{plans[0]}").json()["scenario_id"]
    further = client.get("/v1/plans", params={"scenario_id": scenario, "limit": 1}).json()["next"]

    for other in ({}, {"scenario_id": "0" * 32}, {"scenario_id": scenario, "tp": "1"}):
        assert pointers(client.get("/v1/plans", params={**other, "cursor": further})) == ["cursor"]
    larger = client.get("/v1/plans", params={"scenario_id": scenario, "limit": 5, "cursor": further}).json()
    assert len(larger["items"]) == 5


@pytest.mark.parametrize("path", _ALONE)
def test_what_takes_no_parameters(client: httpx.Client, answer: dict[str, Any], path: str) -> None:
    url = path.format(plan=answer["plans"][0]["id"], search=answer["id"])

    assert pointers(client.get(url, params={"limit": "1", "model": "x"})) == ["limit", "model"]


@pytest.mark.parametrize("path", _LISTS)
def test_parameters_that_are_unusable(client: httpx.Client, path: str) -> None:
    for name, value in (("limit", "0"), ("limit", "201"), ("limit", "x"), ("limit", ""), ("nope", "1")):
        assert pointers(client.get(path, params={name: value})) == [name]


@pytest.mark.parametrize("path", _LISTS)
def test_a_parameter_that_is_given_twice(client: httpx.Client, path: str) -> None:
    assert pointers(client.get(f"{path}?limit=1&limit=2")) == ["limit"]


def test_filters_that_are_unusable(client: httpx.Client) -> None:
    for name, value in (
        ("tp", "-1"),
        ("tp", "1.5"),
        ("tp", str(2**31)),
        ("devices", str(2**60)),
        ("scenario_id", "x"),
        ("search_id", "F" * 32),
        ("model", "\0"),
        ("model", "x" * 201),
        ("sort", "price"),
    ):
        assert pointers(client.get("/v1/plans", params={name: value})) == [name]
    assert pointers(client.get("/v1/searches", params={"state": "over"})) == ["state"]
    assert pointers(client.get("/v1/searches", params={"since": "P1W"})) == ["since"]
    assert pointers(client.get("/v1/measurements", params={"status": "fast"})) == ["status"]


@pytest.mark.parametrize(
    "query", ["model=%ff", "model=%ed%a0%80", "cluster=%c0%80", "model=%F0%9F%98%80", "model=%27--"]
)
def test_text_of_any_kind_finds_nothing(client: httpx.Client, query: str) -> None:
    for path in ("/v1/searches", "/v1/plans"):
        assert client.get(f"{path}?{query}").json() == {"items": [], "next": None}
