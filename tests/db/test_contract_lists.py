"""Lists of plans, on both databases: filtered, sorted, and paged without a gap or a double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from db.records import PLAN_SORTS, ListedPlan, Plan, PlanFilter
from db.repositories import plan_lists
from db.store import Store
from tests.db.samples import keep, later, new_search, plan, result, scenario

SMALL = scenario()
LARGE = scenario(
    model="mixtral-8x22b", cluster="dgx-b200", accelerator="b200", devices=64, precision="fp8", framework="torchtitan"
)
# Few different times, so that pages end between equal ones.
PLANS = [
    plan(of, tp, 1.0 + (tp * pp) % 3, pp=pp, recompute=recompute, created_at=later(tp))
    for of in (SMALL, LARGE)
    for tp in (1, 2, 4, 8)
    for pp in (1, 2, 4)
    for recompute in ("none", "full")
]


@pytest.fixture
def filled(store: Store) -> Store:
    keep(store, SMALL, LARGE)
    with store.writing() as repos:
        repos.plans.put(PLANS)
    return store


def listed(store: Store, filter: PlanFilter, sort: str, limit: int = 7) -> list[ListedPlan]:
    """All pages of a list."""
    found: list[ListedPlan] = []
    after = None
    while True:
        with store.reading() as repos:
            page = repos.plans.list(filter, sort, after, limit)
        assert len(page.items) <= limit
        found += page.items
        after = page.next
        if after is None:
            return found


def value(one: Plan, sort: str) -> Any:
    if sort == "created_at":
        return one.created_at
    return one.prediction["memory"]["peak_bytes"] if sort == "peak_bytes" else one.prediction[sort]


def expected(sort: str, passes: Callable[[Plan], bool] = lambda one: True) -> list[str]:
    column = sort.removeprefix("-")
    passing = [one for one in PLANS if passes(one)]
    passing.sort(key=lambda one: (value(one, column), one.id), reverse=sort.startswith("-"))
    return [one.id for one in passing]


@pytest.mark.parametrize("sort", [*PLAN_SORTS, *(f"-{name}" for name in PLAN_SORTS)])
@pytest.mark.parametrize("walk", [1, 2_000])
def test_every_sort_pages_through_everything(
    filled: Store, sort: str, walk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_lists, "_WALK", walk)
    assert [one.id for one in listed(filled, PlanFilter(), sort)] == expected(sort)
    fits = PlanFilter(axes={"recompute": "full"}, precision="bf16")
    assert [one.id for one in listed(filled, fits, sort)] == expected(
        sort, lambda one: one.plan["recompute"] == "full" and one.scenario_id == SMALL.id
    )


@pytest.mark.parametrize(
    ("filter", "passes"),
    [
        ({"scenario_id": SMALL.id}, lambda one: one.scenario_id == SMALL.id),
        ({"model": "mixtral-8x22b"}, lambda one: one.scenario_id == LARGE.id),
        ({"cluster": "dgx-b200"}, lambda one: one.scenario_id == LARGE.id),
        ({"accelerator": "b200"}, lambda one: one.scenario_id == LARGE.id),
        ({"framework": "torchtitan"}, lambda one: one.scenario_id == LARGE.id),
        ({"precision": "fp8"}, lambda one: one.scenario_id == LARGE.id),
        ({"devices": 16}, lambda one: one.scenario_id == SMALL.id),
        ({"calibration_id": "f" * 32}, lambda one: False),
        ({"max_peak_bytes": 36_000_000_000}, lambda one: value(one, "peak_bytes") <= 36_000_000_000),
        ({"axes": {"tp": 4, "pp": 2}}, lambda one: (one.plan["tp"], one.plan["pp"]) == (4, 2)),
        ({"axes": {"schedule": "gpipe"}}, lambda one: False),
        ({"model": "no such model"}, lambda one: False),
        ({"search_id": "f" * 32}, lambda one: False),
    ],
)
def test_filters(filled: Store, filter: dict[str, Any], passes: Callable[[Plan], bool]) -> None:
    found = listed(filled, PlanFilter(**filter), "-mfu")
    assert [one.id for one in found] == expected("-mfu", passes)


def test_a_listed_plan_says_what_it_is_and_what_it_is_for(filled: Store) -> None:
    one = plan(LARGE, 4, 3.0, pp=2, recompute="full", created_at=later(4))
    found = next(item for item in listed(filled, PlanFilter(), "created_at") if item.id == one.id)
    assert (found.model, found.cluster, found.accelerator, found.devices) == ("mixtral-8x22b", "dgx-b200", "b200", 64)
    assert (found.precision, found.framework, found.global_batch_size, found.seq_len) == ("fp8", "torchtitan", 64, 4096)
    assert (found.axes["tp"], found.axes["pp"], found.axes["recompute"]) == (4, 2, "full")
    step = one.prediction["step_time_s"]
    assert found.figures["step_time_s"] == step
    assert found.figures["peak_bytes"] == one.prediction["memory"]["peak_bytes"]
    assert found.created_at == one.created_at


def test_plans_of_one_search(filled: Store) -> None:
    with filled.writing() as repos:
        search = repos.searches.store_answer(
            new_search(SMALL), result(SMALL, plans=[PLANS[5], PLANS[3], PLANS[9]]), later(0)
        )
    found = listed(filled, PlanFilter(search_id=search.id), "step_time_s", 2)
    chosen = {PLANS[5].id, PLANS[3].id, PLANS[9].id}
    assert [one.id for one in found] == expected("step_time_s", lambda one: one.id in chosen)


@pytest.mark.parametrize(
    ("filter", "sort", "after", "field"),
    [
        (PlanFilter(), "tp", None, "sort"),
        (PlanFilter(), "--mfu", None, "sort"),
        (PlanFilter(), "id; DROP TABLE plans", None, "sort"),
        (PlanFilter(axes={"layers_per_stage": 1}), "mfu", None, "axis"),
        (PlanFilter(axes={"tp": "eight"}), "mfu", None, "tp"),
        (PlanFilter(axes={"tp": 2**40}), "mfu", None, "number"),
        (PlanFilter(axes={"recompute": 1}), "mfu", None, "recompute"),
        (PlanFilter(model="nul\0"), "mfu", None, "text"),
        (PlanFilter(), "mfu", ("high", "a" * 32), "cursor"),
        (PlanFilter(), "mfu", (True, "a" * 32), "cursor"),
        (PlanFilter(), "mfu", (float("nan"), "a" * 32), "cursor"),
        (PlanFilter(), "mfu", (0.5, 7), "cursor"),
        (PlanFilter(), "peak_bytes", (1e300, "a" * 32), "number"),
        (PlanFilter(), "created_at", (0.5, "a" * 32), "cursor"),
    ],
)
def test_what_can_not_be_asked_is_refused(filled: Store, filter: PlanFilter, sort: str, after: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused, filled.reading() as repos:
        repos.plans.list(filter, sort, after, 10)
    assert refused.value.field == field


def test_an_empty_store_lists_nothing(store: Store) -> None:
    assert listed(store, PlanFilter(), "mfu") == []
