"""What a stored answer names as answered before: the same for ever, whatever is answered later."""

from __future__ import annotations

from typing import Any

from db.store import Store
from planner.stored.answers import stored_answer
from tests.db.samples import keep, later, new_search, result, scenario

SCENARIO = scenario()


def test_a_stored_answer_stays_as_it_was_given(store: Store) -> None:
    keep(store, SCENARIO)

    def stored(version: int, second: float) -> str:
        new = new_search(SCENARIO, key=f"{version:032x}", cost_model_version=f"v{version}")
        with store.writing() as repos:
            return repos.searches.store_answer(new, result(SCENARIO), later(second)).id

    def answer(id: str) -> dict[str, Any]:
        with store.reading() as repos:
            found = repos.searches.get(id)
            assert found is not None
            return stored_answer(repos, found)

    def named(id: str) -> list[str]:
        return [other["cost_model"] for other in answer(id)["earlier"]]

    stored(0, -1)
    first = stored(1, 0)
    given = answer(first)
    newer = [stored(version, version) for version in range(2, 8)]
    again = stored(1, 9)
    assert answer(first) == given
    assert named(first) == ["v0"]
    assert named(newer[1]) == ["v2", "v1", "v0"]
    assert named(newer[-1]) == ["v6", "v5", "v4", "v3", "v2"]
    assert named(again) == ["v7", "v6", "v5", "v4", "v3"]
