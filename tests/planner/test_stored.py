"""Questions and answers that are remembered: the same question is the same, an answer comes back as it was given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costmodel.catalog.model_catalog import parse_model
from costmodel.fingerprint import calibration_id
from db.repositories.searches import Searches
from db.store import Store
from planner.check.check import check_fields
from planner.check.question import CheckQuestion
from planner.explain.explanation import answered
from planner.question import Question
from planner.resolving import request_of
from planner.search.answer import answer_to
from planner.search.request import SearchRequest
from planner.service import Busy, ask, remember, remember_checked, remembered
from planner.stored.answers import stored_answer
from planner.stored.questions import OtherVersion, new_search, problem_key, stored_request
from planner.stored.records import result_of

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ASKED: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "devices": 64,
    "global_batch_size": 256,
    "seq_len": 8192,
    "top": 4,
}


def question(**changes: Any) -> SearchRequest:
    return request_of(Question(**(ASKED | changes)))


def recalibrated(request: SearchRequest) -> SearchRequest:
    """The same question under a calibration whose first parameter is a little larger."""
    first, *others = request.scenario.calibration.parameters
    rows = (first.model_copy(update={"value": first.value * 1.001}), *others)
    calibration = request.scenario.calibration.model_copy(update={"parameters": rows})
    return replace(request, scenario=request.scenario.model_copy(update={"calibration": calibration}))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 7},
        {"max_seconds": 5.0},
        {"model": "LLAMA-3-8B"},
        {"cluster": "DGX H100"},
        {"framework_version": "core_r0.16"},
    ],
    ids=str,
)
def test_what_does_not_change_the_answer_does_not_change_the_question(changes: dict[str, Any]) -> None:
    assert problem_key(question(**changes)) == problem_key(question())


@pytest.mark.parametrize(
    "changes",
    [
        {"price_per_device_hour": 3.0},  # what tokens cost is part of the answer
        {"min_devices": 32},
        {"max_step_time_s": 20.0},
        {"batch_tolerance": 0.05},
        {"pareto": True},
        {"shortlist": 0.9},
    ],
    ids=str,
)
def test_what_changes_the_answer_is_another_question_and_can_be_asked_again(
    store: Store, changes: dict[str, Any]
) -> None:
    asked = question(**changes)
    assert problem_key(asked) != problem_key(question())
    asked_about = ask(store, asked, now=NOW).search
    with store.reading() as repos:
        assert stored_request(repos, asked_about) == asked


def test_conditions_are_the_same_in_any_order_and_spelling() -> None:
    one = question(pins=["tp=8,4", "pp=1..2", "mbs=1"], forbids=["recompute=full", "vpp=2"])
    other = question(pins=["micro_batch_size=1", "pp=1..2", "TP=4,8"], forbids=["vpp=2", "recompute=full"])
    assert problem_key(one) == problem_key(other)
    assert problem_key(one) != problem_key(question(pins=["tp=8", "pp=1..2", "mbs=1"]))


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": 56},
        {"top": 5},
        {"min_used": 0.5},
        {"objective": "fewest_devices"},
        {"pins": ["tp=8"]},
        {"forbids": ["tp=8"]},
        {"allow": ["offload"]},
        {"min_free_gib": 20.0},
        {"framework": "torchtitan"},
        {"framework_version": "0.13"},
        {"objective": "cost", "price_per_device_hour": 3.0},
    ],
    ids=str,
)
def test_what_changes_the_answer_changes_the_question(changes: dict[str, Any]) -> None:
    assert problem_key(question(**changes)) != problem_key(question())


def test_the_price_is_part_of_the_question_where_it_decides() -> None:
    cheap, dear = (question(objective="cost", price_per_device_hour=price) for price in (2.0, 4.0))
    assert problem_key(cheap) != problem_key(dear)


def test_another_calibration_is_the_same_problem_and_another_search() -> None:
    one, other = new_search(question(), None), new_search(recalibrated(question()), None)
    assert one.problem_key == other.problem_key
    assert one.key != other.key
    assert one.scenario_id == other.scenario_id


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"explain": True},
        {"model": "deepseek-v3", "devices": 512, "global_batch_size": 2048, "seq_len": 4096},
        {"model": "llama-3.1-405b", "devices": 8},
        {"objective": "fewest_devices"},
        {"pins": ["pp=4", "vpp=1..2"]},
        {"allow": ["offload"], "pins": ["offload=optimizer"]},
    ],
    ids=["dense", "explained", "experts", "infeasible", "fewest", "pipeline", "offloaded"],
)
def test_an_answer_comes_back_as_it_was_given(store: Store, changes: dict[str, Any]) -> None:
    request = question(**changes)
    given = answered(request)
    kept = remember(store, request, given, now=NOW)
    assert remembered(store, request) == kept
    added = {"id", "state", "created_at", "started_at", "finished_at", "question", "earlier"}
    assert kept.keys() - given.keys() == added
    assert {key: kept[key] for key in given} == given
    assert kept["state"] == "done"


def test_an_answer_of_a_version_that_told_no_options_has_none(store: Store) -> None:
    request = question(top=1)
    told = remember(store, request, answer_to(request), now=NOW)["plans"][0]
    found = result_of(answer_to(request), NOW)
    older = replace(found, details={key: value for key, value in found.details.items() if key != "options"})
    with store.writing() as repos:
        search = repos.searches.store_answer(replace(new_search(request, None), key="0" * 32), older, NOW)
        (plan,) = stored_answer(repos, search)["plans"]
    assert plan == {key: value for key, value in told.items() if key != "options"}


def test_a_stored_question_can_be_asked_again_anywhere(store: Store) -> None:
    asked_for = {
        "pins": ["tp=1..8"],
        "forbids": ["recompute=full"],
        "min_free_gib": 12.5,
        "seed": 3,
        "explain": True,
        "allow": ["offload"],
    }
    request = recalibrated(question(**asked_for))
    asked = ask(store, request, now=NOW)
    assert not asked.stored
    with store.reading() as repos:
        again = stored_request(repos, asked.search)
    assert again == request
    assert new_search(again, None).key == asked.search.key


def test_a_search_asked_of_other_code_is_not_run(store: Store) -> None:
    asked = ask(store, question(), now=NOW)
    older = replace(asked.search, cost_model_version="0.0.9+00000000")
    with store.reading() as repos, pytest.raises(OtherVersion, match=r"0\.0\.9"):
        stored_request(repos, older)


def test_a_changed_calibration_is_visible(store: Store) -> None:
    first = question()
    old = remember(store, first, answer_to(first), now=NOW)
    second = recalibrated(first)
    assert remembered(store, second) is None
    new = remember(store, second, answer_to(second), now=NOW.replace(hour=13))
    assert new["id"] != old["id"]
    (told,) = new["earlier"]
    assert told["id"] == old["id"]
    assert told["best"] == old["best"]
    assert told["calibration_id"] == calibration_id(first.scenario.calibration) != new["search"]["calibration_id"]
    # What was answered first stays as it was given.
    assert remembered(store, first) == old
    assert {plan["id"] for plan in new["plans"]}.isdisjoint(plan["id"] for plan in old["plans"])


def test_a_proven_answer_serves_any_seed_and_deadline_and_is_not_searched_twice(store: Store) -> None:
    request = question()
    kept = remember(store, request, answer_to(request), now=NOW)
    for changes in ({"seed": 9}, {"max_seconds": 1.0}, {"max_seconds": 3000.0}):
        asked = ask(store, question(**changes), now=NOW, anew=True)
        assert asked.stored
        assert asked.search.id == kept["id"]


def test_an_answer_that_was_cut_serves_no_longer_deadline(store: Store) -> None:
    request = question(max_seconds=5.0)
    cut = answer_to(request) | {"status": "feasible", "proven_top_k": False}
    kept = remember(store, request, cut, now=NOW)
    shorter = remembered(store, question(max_seconds=2.0))
    assert shorter is not None
    assert shorter["id"] == kept["id"]
    assert remembered(store, question(max_seconds=6.0)) is None
    assert remembered(store, question(max_seconds=2.0, seed=1)) is None
    # The machine may have been busy then.
    again = ask(store, request, now=NOW, anew=True)
    assert again.search.state == "queued"
    assert ask(store, request, now=NOW, anew=True).search.id == again.search.id


def test_what_a_model_leaves_out_is_told_to_whoever_asks_about_that_model(store: Store) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "vocab_size": 32_000,
        "tie_word_embeddings": False,
    }
    plain = question(model=parse_model(config, "tiny"))
    odd = question(model=parse_model(config | {"extra_ffn_size": 5}, "tiny"))
    remember(store, plain, answer_to(plain), now=NOW)
    assert remembered(store, odd) is None
    told = remember(store, odd, answer_to(odd), now=NOW)["warnings"]
    assert any("extra_ffn_size" in warning for warning in told)
    again = remembered(store, plain)
    assert again is not None
    assert not any("extra_ffn_size" in warning for warning in again["warnings"])


def test_a_search_that_ends_while_somebody_asks_is_not_searched_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = question()
    first = ask(store, request, now=NOW).search
    looked = Searches.answered

    def ends_after_the_first_look(self: Searches, *asked: Any) -> Any:
        found = looked(self, *asked)
        monkeypatch.setattr(Searches, "answered", looked)
        with store.writing() as repos:
            claim = repos.searches.claim("one", NOW, NOW + timedelta(seconds=10), 3)
            assert claim is not None
            assert repos.searches.finish(first.id, "one", claim.attempt, result_of(answer_to(request), NOW), NOW)
        return found

    monkeypatch.setattr(Searches, "answered", ends_after_the_first_look)
    asked = ask(store, request, now=NOW)
    assert (asked.search.id, asked.search.state, asked.stored) == (first.id, "done", True)
    with store.reading() as repos:
        assert [search.id for search in repos.searches.list(limit=10).items] == [first.id]


def test_only_a_new_search_is_too_much_when_enough_wait(store: Store) -> None:
    waiting = ask(store, question(), now=NOW, most_waiting=1)
    joined = ask(store, question(), now=NOW, most_waiting=1)
    assert joined.search.id == waiting.search.id
    with pytest.raises(Busy):
        ask(store, question(top=2), now=NOW, most_waiting=1)
    with store.reading() as repos:
        assert repos.searches.waiting() == 1


def test_batches_of_the_same_plans_in_any_order_do_not_stand_in_each_others_way(store: Store) -> None:
    mesh = {"tp": 1, "pp": 1, "zero_stage": 1, "micro_batch_size": 1, "seq_len": 2048}
    checked = [
        check_fields(
            CheckQuestion(plan="", model=model, cluster=cluster, best=False, nearest=False),
            {**mesh, "dp": 8, "global_batch_size": 8 * size},
        )
        for size in range(1, 4)
        for model in ("llama-3.2-1b", "llama-3.2-3b", "qwen2.5-3b")
        for cluster in ("dgx-h100", "dgx-a100-80gb")
    ]
    assert all(judged.answer["prediction"] for judged in checked)

    def keep(turn: int) -> list[str]:
        return remember_checked(store, checked if turn % 2 else checked[::-1], now=NOW)

    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            kept = list(pool.map(keep, range(8)))
        assert all(sorted(ids) == sorted(kept[0]) for ids in kept)
