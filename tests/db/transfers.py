"""Stores with a row or more in every table, their exports, and exports that somebody changed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from db.exporting import export
from db.importing import Imported, import_lines
from db.records import ApiKey, StoredResponse, Study
from db.store import Store
from tests.db.samples import LEASE, NOON, keep, later, measurement, new_id, new_search, plan, result, scenario

SCENARIO = scenario()
NOW = later(3600)


def lines_of(store: Store) -> list[str]:
    out = io.StringIO()
    rows = export(store, out)
    lines = out.getvalue().splitlines()
    assert len(lines) == rows + 2
    return lines


def take(store: Store, lines: list[str]) -> Imported:
    return import_lines(store, lines, NOW)


def fill(store: Store) -> None:
    """A row or more in every table; one search waits, one runs."""
    keep(store, SCENARIO, scenario(model="ünï ☃\n"))
    study = Study(id=new_id(), name="s", scenario_id=SCENARIO.id, search_id=None, created_by=None, created_at=NOON)
    with store.writing() as repos:
        repos.searches.store_answer(new_search(SCENARIO), result(SCENARIO), NOON)
        repos.searches.add(new_search(SCENARIO, seed=1), NOON)
        repos.searches.add(new_search(SCENARIO, seed=2), later(1))
        assert repos.searches.claim("gone", later(2), later(2) + LEASE, 3) is not None
        repos.plans.put([plan(SCENARIO, tp, 0.1 * tp) for tp in range(3, 1200)])
        repos.studies.add(study)
        repos.measurements.add(measurement(plan(SCENARIO, 1), study_id=study.id, trial_number=0))
        repos.measurements.add(measurement(plan(SCENARIO, 2), note="nothing 'special'"))
        repos.api_keys.add(
            ApiKey(
                id=new_id(),
                name="scheduler",
                scopes=("read",),
                created_at=NOON,
                expires_at=None,
                revoked_at=None,
                last_used_at=None,
            ),
            "5ec7e7" * 10 + "0000",
        )
        repos.idempotency.claim("ci", "k", "POST /v1", "a" * 64, "h", NOON, NOON, NOON)
        repos.idempotency.complete("ci", "k", "h", StoredResponse(status_code=200, headers={}, body="private"))


def changed(number: int, table: str, **values: Any) -> Callable[[list[str]], list[str]]:
    """Another value in the ``number``-th row of a table."""

    def change(lines: list[str]) -> list[str]:
        places = [index for index, line in enumerate(lines) if line.startswith(f'{{"table":"{table}"')]
        found = json.loads(lines[places[number]])
        found["row"].update(values)
        return [*lines[: places[number]], json.dumps(found), *lines[places[number] + 1 :]]

    return change
