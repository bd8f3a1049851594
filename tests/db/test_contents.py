"""``check`` over rows: whoever changes one of them is found out, as far as anything says what it should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from costmodel.errors import InvalidInput
from db.engine import engine_of
from db.schema import check
from db.store import Store
from planner.question import Question
from planner.resolving import request_of
from planner.search.answer import answer_to
from planner.service import remember
from tests.db.samples import NOON
from tests.db.transfers import changed, lines_of, take

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "cluster": "dgx-h100",
    "devices": 16,
    "global_batch_size": 64,
    "seq_len": 2048,
    "top": 2,
}
OBJECTIVES: tuple[dict[str, Any], ...] = (
    {},
    {"objective": "cost", "price_per_device_hour": 2.0},
    {"objective": "fewest_devices"},
)


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """One for each objective."""
    requests = [request_of(Question(**(ASKED | more))) for more in OBJECTIVES]
    return [(request, answer_to(request)) for request in requests]


@pytest.fixture
def answered(store: Store, answers: list[Any]) -> Store:
    """A store with real answers."""
    for request, answer in answers:
        remember(store, request, answer, now=NOON)
    return store


def execute(store: Store, statement: str, **values: Any) -> None:
    engine = engine_of(store.database, for_upgrade=True)
    with engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount > 0
    engine.dispose()


def change(store: Store, table: str, column: str, **values: Any) -> None:
    """Other values in the document of every row."""
    key = "plan_id" if table in ("plan_documents", "predictions") else "id"
    engine = engine_of(store.database, for_upgrade=True)
    with engine.begin() as connection:
        for id, found in connection.execute(text(f"SELECT {key}, {column} FROM {table}")).all():
            document = json.loads(found) if isinstance(found, str) else found
            new = json.dumps({**document, **values})
            connection.execute(text(f"UPDATE {table} SET {column} = :new WHERE {key} = :id"), {"new": new, "id": id})
    engine.dispose()


def test_what_the_planner_wrote_is_sound(answered: Store) -> None:
    assert check(answered.database, contents=True) == []


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE plans SET tp = 512", "tp is 512, its content says"),
        ("UPDATE plans SET step_time_s = 0.001", "its step takes 0.001 s"),
        ("UPDATE plans SET peak_bytes = 7", "bytes, not 7"),
        ("UPDATE plans SET tokens_per_s_per_device = 7", "its tokens per second do not fit"),
        ("UPDATE predictions SET step_time_high_s = 0.001", "lies outside its interval"),
        ("UPDATE predictions SET time = '{}'", "its terms sum to 0 s"),
        ("UPDATE predictions SET memory_stages = '[]'", "its terms can't be read"),
        ("DELETE FROM predictions", "its prediction is gone"),
        ("DELETE FROM plan_documents", "its content is gone"),
        ("UPDATE plan_documents SET plan = '[]'", "its content is no plan"),
        ("UPDATE searches SET best = 0.001", "its best is 0.001, its first plan has"),
        ("UPDATE searches SET best = NULL", "a plan without one"),
        ("DELETE FROM search_plans", "a best value without a plan"),
        ("UPDATE scenarios SET spec = '[]'", "scenarios"),
        ("UPDATE scenarios SET devices = 8", "devices is 8, its content says 16"),
        ("UPDATE models SET params_total = 8", "params_total is 8, its content says"),
        ("UPDATE models SET spec = '{}'", "its content can't be read by this planner"),
        ("UPDATE clusters SET accelerator = 'x'", "accelerator is 'x', its content says"),
        ("UPDATE calibrations SET name = 'x'", "name is 'x', its content says"),
        ("UPDATE calibrations SET spec = '7'", "its content can't be read by this planner"),
    ],
)
def test_a_row_that_somebody_changed_is_noticed(answered: Store, statement: str, told: str) -> None:
    execute(answered, statement)
    problems = check(answered.database, contents=True)
    assert any(told in line for line in problems), problems


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("models", "spec", {"vocab_size": 1000}),
        ("clusters", "spec", {"devices_per_node": 4}),
        ("calibrations", "spec", {"parameters": []}),
        ("scenarios", "spec", {"fused_attention": False}),
        ("plan_documents", "plan", {"sequence_parallel": True, "optimizer": "sgd"}),
    ],
)
def test_content_that_somebody_changed_has_another_fingerprint(
    answered: Store, table: str, column: str, values: dict[str, Any]
) -> None:
    change(answered, table, column, **values)
    name = "plans" if table == "plan_documents" else table
    problems = check(answered.database, contents=True)
    assert any(line.startswith(name) and "another fingerprint" in line for line in problems), problems


@pytest.mark.parametrize("objective", [more.get("objective", "step_time") for more in OBJECTIVES])
def test_the_best_value_of_every_objective_is_checked(answered: Store, objective: str) -> None:
    execute(answered, "UPDATE searches SET best = best * 1.01 WHERE objective = :objective", objective=objective)
    (told,) = check(answered.database, contents=True)
    assert "its best is" in told


def test_a_document_that_is_none_is_told(sqlite_url: str, answers: list[Any]) -> None:
    with Store.open(sqlite_url) as store:
        remember(store, *answers[0], now=NOON)
        execute(store, "UPDATE predictions SET time = 'not JSON'")
        (told,) = check(store.database, contents=True)
    assert "a row can't be read" in told


def test_not_all_of_many_are_told(sqlite_url: str, answers: list[Any]) -> None:
    with Store.open(sqlite_url) as store:
        for request, answer in answers:
            remember(store, request, answer, now=NOON)
        execute(store, "UPDATE plans SET tp = 512, pp = 512, cp = 512, ep = 512, dp = 512, vpp = 512")
        problems = check(store.database, contents=True)
    assert len(problems) == 21
    assert "more findings" in problems[-1]


@pytest.mark.parametrize(
    ("table", "values", "told"),
    [
        ("plans", {"tp": 512}, "plans: tp is 512, its content says"),
        ("plans", {"id": "f" * 32}, "does not fit"),
        ("models", {"num_layers": 7}, "models: num_layers is 7, its content says 32"),
        ("scenarios", {"seq_len": 7}, "scenarios: seq_len is 7, its content says 2048"),
        ("calibrations", {"name": "mine"}, "calibrations: name is 'mine'"),
    ],
)
def test_changed_rows_are_not_imported(
    tmp_path: Path, answered: Store, table: str, values: dict[str, Any], told: str
) -> None:
    exported = lines_of(answered)
    lines = changed(0, table, **values)(exported)
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as store:
        with pytest.raises(InvalidInput) as refused:
            take(store, lines)
        assert told in str(refused.value)
        assert len(lines_of(store)) == 2
        take(store, exported)
        assert lines_of(store) == exported
        assert check(store.database, contents=True) == []


def test_a_file_of_a_planner_with_other_rules_for_ids_is_imported(tmp_path: Path, answered: Store) -> None:
    (found,) = {json.loads(line)["row"]["id"] for line in lines_of(answered) if line.startswith('{"table":"models"')}
    other = "0" * 32
    lines = [line.replace(found, other) for line in lines_of(answered)]
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as store:
        take(store, lines)
        assert lines_of(store) == lines
        (told,) = check(store.database, contents=True)
    assert told == f"models {other}: its content has another fingerprint by the rules of this planner"


def test_a_changed_plan_is_named_by_its_line(tmp_path: Path, answered: Store) -> None:
    exported = lines_of(answered)
    lines = [line.replace('"recompute_modules":[]', '"recompute_modules":["mlp"]') for line in exported]
    assert lines != exported
    with (
        Store.open(f"sqlite:///{tmp_path / 'other.db'}") as store,
        pytest.raises(InvalidInput, match="another fingerprint") as refused,
    ):
        take(store, lines)
    place = int(str(refused.value).partition("line ")[2].partition(":")[0])
    assert json.loads(exported[place - 1])["row"]["id"] == refused.value.value
