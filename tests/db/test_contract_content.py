"""What has content, on both databases: kept as it was given, written once, never changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from costmodel.errors import InvalidInput
from db.store import Store
from tests.db.samples import CALIBRATION, NOON, UTILISATION, keep, later, other_calibration, plan, prediction, scenario

SCENARIO = scenario()


def test_a_scenario_comes_back_as_it_was_given(store: Store) -> None:
    keep(store, SCENARIO)
    with store.reading() as repos:
        assert repos.scenarios.get(SCENARIO.id) == SCENARIO
        assert repos.models.get(SCENARIO.model.id) == SCENARIO.model
        assert repos.clusters.get(SCENARIO.cluster.id) == SCENARIO.cluster
        assert repos.calibrations.get(CALIBRATION.id) == CALIBRATION


@pytest.mark.parametrize("id", ["0" * 32, "", "no such id", "a\0b", "\ud800", "x" * 5000])
def test_what_is_not_there_is_none(store: Store, id: str) -> None:
    with store.reading() as repos:
        for repository in (
            repos.scenarios,
            repos.models,
            repos.clusters,
            repos.calibrations,
            repos.plans,
            repos.searches,
            repos.measurements,
            repos.studies,
        ):
            assert repository.get(id) is None
        assert repos.api_keys.by_digest(id) is None
        assert repos.models.named(id) == []
        assert repos.plans.of_search(id) == []
        assert repos.events.after(id, 0) == []


def test_what_is_there_stays_as_it_is(store: Store) -> None:
    keep(store, SCENARIO)
    changed = replace(SCENARIO, model=replace(SCENARIO.model, source="elsewhere"), precision="fp16")
    with store.writing() as repos:
        repos.scenarios.put(changed, later(60))
        repos.calibrations.put(replace(CALIBRATION, name="renamed"), later(60))
    with store.reading() as repos:
        assert repos.scenarios.get(SCENARIO.id) == SCENARIO
        assert repos.calibrations.get(CALIBRATION.id) == CALIBRATION


def test_what_is_only_shown_of_a_prediction_comes_back_too(store: Store) -> None:
    plain = plan(SCENARIO, 2, 1.5)
    told = replace(plain, prediction=plain.prediction | {"utilisation": UTILISATION, "later": [1, {"more": None}]})
    keep(store, SCENARIO)
    with store.writing() as repos:
        repos.plans.put([told])
    with store.reading() as repos:
        assert repos.plans.get(told.id) == told


def test_a_plan_comes_back_to_the_last_digit_and_in_order(store: Store) -> None:
    one = plan(SCENARIO, 4, 0.1 + 0.2, pp=2)
    keep(store, SCENARIO)
    with store.writing() as repos:
        repos.plans.put([one])
    with store.reading() as repos:
        found = repos.plans.get(one.id)
    assert found == one
    assert list(found.plan) == list(one.plan)
    assert list(found.prediction) == list(one.prediction)
    assert list(found.prediction["time"]) == list(one.prediction["time"])


def test_plans_come_in_the_order_that_was_asked_for(store: Store) -> None:
    plans = [plan(SCENARIO, tp) for tp in (8, 1, 4, 2)]
    keep(store, SCENARIO)
    with store.writing() as repos:
        repos.plans.put(plans)
    wanted = [plans[2].id, "f" * 32, plans[0].id, plans[1].id]
    with store.reading() as repos:
        assert repos.plans.get_many(wanted) == [plans[2], plans[0], plans[1]]


def test_a_stored_plan_is_never_changed(store: Store) -> None:
    one = plan(SCENARIO)
    keep(store, SCENARIO)
    with store.writing() as repos:
        repos.plans.put([one])
        repos.plans.put([replace(one, prediction=prediction(9.0), created_at=later(1))])
    with store.reading() as repos:
        assert repos.plans.get(one.id) == one


def test_a_prediction_with_fields_that_no_column_has_is_not_cut(store: Store) -> None:
    one = plan(SCENARIO)
    keep(store, SCENARIO)
    memory = {**one.prediction["memory"], "a_later_version_s_bytes": 7}
    richer = replace(one, prediction={**one.prediction, "memory": memory, "a_later_version_s_figure": [1.5, "x"]})
    with store.writing() as repos:
        repos.plans.put([richer])
    with store.reading() as repos:
        assert repos.plans.get(one.id) == richer


def test_many_writers_of_the_same_plans_neither_block_nor_double_them(store: Store) -> None:
    plans = [plan(SCENARIO, tp) for tp in range(1, 41)]

    def write(turn: int) -> None:
        with store.writing() as repos:
            repos.scenarios.put(SCENARIO, NOON)
            repos.calibrations.put(CALIBRATION, NOON)
            repos.plans.put(plans if turn % 2 else plans[::-1])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))
    with store.reading() as repos:
        assert repos.plans.get_many([one.id for one in plans]) == plans


@pytest.mark.parametrize("text", ["nul\0", "half \ud83d"])
def test_text_that_no_database_holds_is_refused(store: Store, text: str) -> None:
    with pytest.raises(InvalidInput), store.writing() as repos:
        repos.calibrations.put(replace(CALIBRATION, name=text), NOON)
    with store.reading() as repos:
        assert repos.calibrations.list() == []


@pytest.mark.parametrize(
    "text", ["", "snowman ☃ 🧪", "'; DROP TABLE plans; --", "tab\tand\nline", "x" * 100_000, "%s ?"]
)
def test_other_text_comes_back_as_it_was(store: Store, text: str) -> None:
    given = replace(CALIBRATION, name=text, spec={text: [text, "nul\0 and half \ud83d"]})
    with store.writing() as repos:
        repos.calibrations.put(given, NOON)
    with store.reading() as repos:
        assert repos.calibrations.get(given.id) == given


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_the_column_is_refused(store: Store, number: int) -> None:
    with pytest.raises(InvalidInput), store.writing() as repos:
        repos.scenarios.put(replace(SCENARIO, min_free_bytes=number), NOON)


def test_the_largest_number_comes_back(store: Store) -> None:
    given = replace(SCENARIO, min_free_bytes=2**63 - 1)
    keep(store, given)
    with store.reading() as repos:
        assert repos.scenarios.get(given.id) == given


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_refused(store: Store, number: float) -> None:
    with pytest.raises(InvalidInput), store.writing() as repos:
        repos.calibrations.put(replace(CALIBRATION, spec={"level": number}), NOON)
    cluster = replace(SCENARIO.cluster, price_per_device_hour=number)
    with pytest.raises(InvalidInput), store.writing() as repos:
        repos.scenarios.put(replace(SCENARIO, cluster=cluster), NOON)


def test_entries_are_listed_newest_first_a_page_at_a_time(store: Store) -> None:
    with store.writing() as repos:
        for second, name in enumerate("abcde"):
            # Two of the same moment, so that the id has to decide.
            repos.scenarios.put(scenario(model=name), later(second // 2))
    names, after = [], None
    with store.reading() as repos:
        while True:
            page = repos.models.list(after, 2)
            names += [(model.name, model.id) for model in page.items]
            after = page.next
            if after is None:
                break
        assert repos.models.named("b")[0].name == "b"
        assert len(repos.clusters.list(None, 10).items) == 1
    assert names[0][0] == "e"
    assert sorted(name for name, _ in names) == list("abcde")
    assert names[1:3] == sorted(names[1:3], key=lambda pair: pair[1], reverse=True)


def test_calibrations_are_listed_newest_first(store: Store) -> None:
    with store.writing() as repos:
        repos.calibrations.put(CALIBRATION, NOON)
        repos.calibrations.put(other_calibration(), later(1))
    with store.reading() as repos:
        assert [one.name for one in repos.calibrations.list()] == ["ours", "shipped"]


@pytest.mark.parametrize("place", [("yesterday", "a"), (5, "a"), ("2026-03-01T12:00:00", "a")])
def test_a_place_that_no_page_gave_is_refused(store: Store, place: tuple[object, str]) -> None:
    with pytest.raises(InvalidInput, match="cursor"), store.reading() as repos:
        repos.models.list(place, 2)
