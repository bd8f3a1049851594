"""Files that must not be imported: the line is named, and nothing of it is kept."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from db.importing import import_lines
from db.importing import lines_of as importable
from db.revisions import HEAD
from db.store import Store
from tests.db.samples import UTILISATION, question, result
from tests.db.transfers import NOW, SCENARIO, changed, fill, lines_of, take


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The export of a store with a row or more in every table."""
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('exported') / 'x.db'}") as store:
        fill(store)
        return lines_of(store)


def _without_the_end(lines: list[str]) -> list[str]:
    return lines[:-1]


def _cut_off(lines: list[str]) -> list[str]:
    return [*lines[:5], lines[5][:20]]


def _a_row_less(lines: list[str]) -> list[str]:
    return [*lines[:-2], lines[-1]]


def _twice(lines: list[str]) -> list[str]:
    return [*lines, lines[-2]]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda lines: [], "line 1: a file that planner db export wrote"),
        (lambda lines: ["{}"], "line 1: a file that planner db export wrote"),
        (lambda lines: ["not even JSON"], "line 1: a file that planner db export wrote"),
        (lambda lines: [lines[0].replace('"version": 1', '"version": 2'), *lines[1:]], "newer planner"),
        (lambda lines: [lines[0].replace(HEAD, "9999"), *lines[1:]], "newer planner"),
        (_without_the_end, "cut off"),
        (_cut_off, "line 6: it must be JSON"),
        (_a_row_less, "cut off"),
        (_twice, "nothing is expected after"),
        (lambda lines: [lines[0], "[1]", *lines[1:]], "line 2: a table and a row"),
        (lambda lines: [lines[0], '{"table": "api_keys", "row": {}}', *lines[1:]], "line 2: one of"),
        (lambda lines: [lines[0], "", *lines[1:]], "line 2: it must be JSON"),
        (changed(0, "models", colour="red"), "models has no such column"),
        (changed(0, "models", num_layers="32"), "models.num_layers must be int"),
        (changed(0, "models", num_layers=True), "models.num_layers must be int"),
        (changed(0, "models", num_layers=2**40), "fit into 32 bits"),
        (changed(0, "models", name=None), "models.name must not be null"),
        (changed(0, "models", name="nul\0"), "NUL"),
        (changed(0, "models", created_at="yesterday"), "models.created_at must be a moment"),
        (changed(0, "plans", mfu=float("nan")), "NaN is not JSON"),
        (changed(0, "plans", scenario_id="f" * 32), "does not fit to the others"),
        (changed(0, "models", id="../../etc"), "models.id must be 32 hex digits"),
        (changed(0, "models", id="A" * 32), "models.id must be 32 hex digits"),
        (changed(0, "models", created_at="0001-01-01T00:00:00+23:00"), "models.created_at must be a moment"),
        (changed(0, "models", created_at="9999-12-31T23:59:59-23:00"), "models.created_at must be a moment"),
        (changed(0, "clusters", price_per_device_hour=10**400), "clusters.price_per_device_hour must be float"),
        (lambda lines: ["[" * 200_000], "line 1: a file that planner db export wrote"),
        (lambda lines: [lines[0], "[" * 200_000, *lines[1:]], "line 2: it must be JSON"),
    ],
)
def test_a_broken_file_is_told_by_its_line_and_leaves_nothing(
    store: Store, exported: list[str], spoil: Callable[[list[str]], list[str]], told: str
) -> None:
    lines = spoil(exported)
    with pytest.raises(InvalidInput) as refused:
        take(store, lines)
    assert told in str(refused.value)
    assert "line " in str(refused.value)
    assert len(lines_of(store)) == 2


QUESTION, DETAILS = question(SCENARIO), result(SCENARIO).details


@pytest.mark.parametrize(
    ("table", "values", "told"),
    [
        ("predictions", {"details": 5}, "predictions.details: a mapping"),
        ("predictions", {"details": {"utilisation": {}}}, "predictions.details.utilisation.mfu: "),
        (
            "predictions",
            {"details": {"utilisation": UTILISATION | {"mfu": "x"}}},
            "predictions.details.utilisation.mfu",
        ),
        ("searches", {"state": "dreaming"}, "searches.state: one of queued"),
        ("searches", {"objective": "fun"}, "searches.objective: one of step_time"),
        ("searches", {"question": "x"}, "searches.question: an object is expected"),
        ("searches", {"question": {}}, "searches.question.scenario: it is required"),
        ("searches", {"question": QUESTION | {"scenario": {}}}, "searches.question.scenario.id: it is required"),
        ("searches", {"question": QUESTION | {"pins": "tp=8"}}, "searches.question.pins: a list is expected"),
        ("searches", {"question": QUESTION | {"min_used": None}}, "searches.question.min_used: "),
        ("searches", {"details": 5}, "searches.details: a mapping"),
        ("searches", {"details": None}, "searches.details: it is needed when state is done"),
        ("searches", {"details": DETAILS | {"warnings": [1]}}, "searches.details.warnings[0]: text is expected"),
        ("searches", {"details": DETAILS | {"search": 1}}, "searches.details.search: "),
        ("searches", {"details": DETAILS | {"explanation": {}}}, "searches.details.explanation.steps: it is required"),
        ("searches", {"question": QUESTION | {"explain": "no"}}, "searches.question.explain: "),
        ("searches", {"status": "weird"}, "searches.status: one of optimal"),
        ("searches", {"status": None}, "searches.status: it is needed when state is done"),
        ("searches", {"finished_at": None}, "searches.finished_at: it is needed when state is done"),
        ("searches", {"state": "failed"}, "searches.problem: it is needed when state is failed"),
        ("searches", {"top": 0}, "searches.top: at least 1 is expected"),
        ("search_events", {"data": []}, "search_events.data: an object is expected"),
        ("search_events", {"kind": "candidates"}, "search_events.data.legal: a number is expected"),
        ("plans", {"recompute": "some"}, "plans.recompute: one of none"),
        ("plans", {"step_time_s": 0}, "plans.step_time_s: it must be above 0"),
        ("plan_documents", {"plan": []}, "plan_documents.plan: a mapping"),
        ("plan_documents", {"plan": {}}, "plan_documents.plan.tp: it is required"),
        ("predictions", {"time": 7}, "predictions.time: "),
        ("predictions", {"time": {"mlp": "long"}}, "predictions.time.mlp: "),
        ("predictions", {"memory_stages": {"a": 1}}, "predictions.memory_stages: a list is expected"),
        ("predictions", {"memory_stages": []}, "predictions.memory_stages: "),
        ("predictions", {"memory_stages": [{"a": 1.5}]}, "predictions.memory_stages[0].a: a whole number"),
        ("predictions", {"provenance": "a dream"}, "predictions.provenance: "),
        ("search_plans", {"rank": -3}, "search_plans.rank: at least 1 is expected"),
        ("measurements", {"status": "lost"}, "measurements.status: one of ok"),
        ("measurements", {"environment": []}, "measurements.environment: an object is expected"),
        ("measurements", {"environment": {"a": ["nul\0"]}}, "measurements.environment.a: it must not contain NUL"),
        ("measurements", {"environment": {"\ud800": 1}}, "lone surrogates"),
        ("models", {"spec": []}, "models.spec: an object is expected"),
        ("clusters", {"spec": {}}, "clusters.spec.name: it is required"),
        ("calibrations", {"spec": 1}, "calibrations.spec: an object is expected"),
        ("scenarios", {"spec": []}, "scenarios.spec: an object is expected"),
        ("scenarios", {"devices": 0}, "scenarios.devices: at least 1 is expected"),
    ],
)
def test_what_readers_could_not_read_is_refused(
    sqlite_url: str, exported: list[str], table: str, values: dict[str, Any], told: str
) -> None:
    # The first search of the file is not always the one that is done.
    number = 0
    if table == "searches":
        states = [json.loads(line)["row"]["state"] for line in exported if line.startswith('{"table":"searches"')]
        number = states.index("done")
    lines = changed(number, table, **values)(exported)
    with Store.open(sqlite_url) as store:
        with pytest.raises(InvalidInput) as refused:
            take(store, lines)
        assert told in str(refused.value)
        line = next(place for place, text in enumerate(lines, start=1) if text not in exported)
        assert f"line {line}: " in str(refused.value)
        assert len(lines_of(store)) == 2


def test_a_document_that_goes_on_for_ever_is_refused(sqlite_url: str, exported: list[str]) -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"a": deep}
    with Store.open(sqlite_url) as store, pytest.raises(InvalidInput, match="levels"):
        take(store, changed(0, "measurements", environment=deep)(exported))


def test_infinity_by_another_name_is_refused(sqlite_url: str, exported: list[str]) -> None:
    lines = [line.replace('"attention":0.1', '"attention":1e999') for line in exported]
    assert lines != exported
    with Store.open(sqlite_url) as store, pytest.raises(InvalidInput, match="must be finite"):
        take(store, lines)


def test_a_line_that_does_not_end_is_refused(sqlite_url: str) -> None:
    class Zeros(io.StringIO):
        """As much as anybody reads."""

        def readline(self, size: int | None = -1) -> str:
            assert size is not None
            assert size > 0
            return "0" * size

    with Store.open(sqlite_url) as store, pytest.raises(InvalidInput, match="line 1: a line has at most"):
        import_lines(store, importable(Zeros()), NOW)


def test_a_slow_source_keeps_no_one_from_writing(store: Store, exported: list[str]) -> None:
    def slowly() -> Any:
        for number, line in enumerate(exported):
            if number in (1, len(exported) - 1):
                with store.writing() as repos:
                    repos.connection.exec_driver_sql(f"UPDATE models SET name = 'n{number}'")
            yield line

    assert sum(import_lines(store, slowly(), NOW).written.values()) == len(exported) - 2
