"""Export and import: from one database to the other and back, nothing lost, nothing half-done."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from db.exporting import export, export_to_file
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


def test_to_postgresql_and_back(tmp_path: Path, postgres_url: str) -> None:
    with (
        Store.open(f"sqlite:///{tmp_path / 'a.db'}") as first,
        Store.open(postgres_url) as second,
        Store.open(f"sqlite:///{tmp_path / 'b.db'}") as third,
    ):
        fill(first)
        with first.writing() as repos:
            # What runs changes on the way; everything else must come back letter by letter.
            repos.searches.release("gone", later(3))
        there = lines_of(first)
        done = take(second, there)
        assert sum(done.written.values()) == len(there) - 2
        assert done.skipped == {}
        back = lines_of(second)
        take(third, back)
        assert lines_of(third) == back == there


def test_secrets_stay_where_they_are(store: Store) -> None:
    fill(store)
    text = "\n".join(lines_of(store))
    assert "5ec7e7" not in text
    assert "private" not in text
    assert "api_keys" not in text


def test_what_is_there_already_is_skipped_and_counted(store: Store) -> None:
    fill(store)
    lines = lines_of(store)
    done = take(store, lines)
    assert done.written == {}
    assert sum(done.skipped.values()) == len(lines) - 2
    assert lines_of(store) == lines


def test_a_search_that_ran_elsewhere_waits_here(store: Store, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        fill(other)
        lines = lines_of(other)
    take(store, lines)
    with store.reading() as repos:
        waiting = repos.searches.list(state="queued", limit=10).items
        assert [search.seed for search in waiting] == [2, 1]
        assert {(search.owner, search.lease_until, search.started_at) for search in waiting} == {(None, None, None)}
        assert [event.kind for event in repos.events.after(waiting[1].id)] == ["queued", "running", "queued"]
        assert repos.searches.list(state="running", limit=10).items == []
    with store.writing() as repos:
        claim = repos.searches.claim("here", NOW, NOW + LEASE, 3)
    assert claim is not None
    assert (claim.seed, claim.attempt) == (1, 2)


def test_a_search_that_is_here_keeps_its_own_events(store: Store) -> None:
    fill(store)
    lines = lines_of(store)
    with store.writing() as repos:
        running = repos.searches.list(state="running", limit=1).items[0]
        repos.searches.finish(running.id, "gone", 1, result(SCENARIO), later(9))
    with store.reading() as repos:
        before = repos.events.after(running.id)
    take(store, lines)
    with store.reading() as repos:
        assert repos.events.after(running.id) == before
        found = repos.searches.get(running.id)
    assert found is not None
    assert found.state == "done"


def test_a_question_that_lives_here_is_not_asked_twice(store: Store, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        fill(other)
        lines = lines_of(other)
    keep(store, SCENARIO)
    with store.writing() as repos:
        here, _ = repos.searches.add(new_search(SCENARIO, seed=1), later(5))
    done = take(store, lines)
    assert done.skipped["searches"] == 1
    assert done.skipped["search_events"] == 2
    with store.reading() as repos:
        alive = repos.searches.list(state="queued", limit=10).items
    assert sorted((search.seed, search.id == here.id) for search in alive) == [(1, True), (2, False)]


def _without_the_end(lines: list[str]) -> list[str]:
    return lines[:-1]


def _cut_off(lines: list[str]) -> list[str]:
    return [*lines[:5], lines[5][:20]]


def _a_row_less(lines: list[str]) -> list[str]:
    return [*lines[:-2], lines[-1]]


def _twice(lines: list[str]) -> list[str]:
    return [*lines, lines[-2]]


def _changed(number: int, table: str, **values: Any) -> Callable[[list[str]], list[str]]:
    """Another value in the ``number``-th row of a table."""

    def change(lines: list[str]) -> list[str]:
        places = [index for index, line in enumerate(lines) if line.startswith(f'{{"table":"{table}"')]
        found = json.loads(lines[places[number]])
        found["row"].update(values)
        return [*lines[: places[number]], json.dumps(found), *lines[places[number] + 1 :]]

    return change


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda lines: [], "line 1: a file that planner db export wrote"),
        (lambda lines: ["{}"], "line 1: a file that planner db export wrote"),
        (lambda lines: ["not even JSON"], "line 1: a file that planner db export wrote"),
        (lambda lines: [lines[0].replace('"version": 1', '"version": 2'), *lines[1:]], "newer planner"),
        (lambda lines: [lines[0].replace("0002", "9999"), *lines[1:]], "newer planner"),
        (_without_the_end, "cut off"),
        (_cut_off, "line 6: it must be JSON"),
        (_a_row_less, "cut off"),
        (_twice, "nothing is expected after"),
        (lambda lines: [lines[0], "[1]", *lines[1:]], "line 2: a table and a row"),
        (lambda lines: [lines[0], '{"table": "api_keys", "row": {}}', *lines[1:]], "line 2: one of"),
        (lambda lines: [lines[0], "", *lines[1:]], "line 2: it must be JSON"),
        (_changed(0, "models", colour="red"), "models has no such column"),
        (_changed(0, "models", num_layers="32"), "models.num_layers must be int"),
        (_changed(0, "models", num_layers=True), "models.num_layers must be int"),
        (_changed(0, "models", num_layers=2**40), "fit into 32 bits"),
        (_changed(0, "models", name=None), "models.name must not be null"),
        (_changed(0, "models", name="nul\0"), "NUL"),
        (_changed(0, "models", created_at="yesterday"), "models.created_at must be a moment"),
        (_changed(0, "plans", mfu=float("nan")), "NaN is not JSON"),
        (_changed(0, "plans", scenario_id="f" * 32), "does not fit to the others"),
        (_changed(0, "searches", state="dreaming"), "does not fit to the others"),
    ],
)
def test_a_broken_file_is_told_by_its_line_and_leaves_nothing(
    store: Store, tmp_path: Path, spoil: Callable[[list[str]], list[str]], told: str
) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        fill(other)
        lines = spoil(lines_of(other))
    with pytest.raises(InvalidInput) as refused:
        take(store, lines)
    assert told in str(refused.value)
    assert "line " in str(refused.value)
    assert len(lines_of(store)) == 2


def test_another_study_of_the_same_name_stops_the_import(store: Store, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        fill(other)
        lines = lines_of(other)
    fill(store)
    with pytest.raises(InvalidInput, match="another study here has that name"):
        take(store, lines)


def test_a_file_of_an_older_revision_may_lack_what_came_later(store: Store) -> None:
    fill(store)
    lines = [lines_of(store)[0].replace("0002", "0001")]
    for line in lines_of(store)[1:]:
        found = json.loads(line)
        if found.get("table") == "measurements":
            found["row"].pop("log_tail")
            found["row"]["id"] = new_id()
            found["row"]["study_id"] = None
        lines.append(json.dumps(found))
    assert take(store, lines).written == {"measurements": 2}
    with store.reading() as repos:
        logs = sorted(found.log_tail for found in repos.measurements.list(limit=9).items)
    assert logs == ["", "", "step 50\n", "step 50\n"]


def test_the_file_is_there_as_a_whole_and_its_owners_alone(sqlite_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "export.jsonl"
    path.write_text("what was here before", encoding="utf-8")
    with Store.open(sqlite_url) as store:
        fill(store)
        rows = export_to_file(store, path)
        assert path.read_text(encoding="utf-8").splitlines() == lines_of(store)
        assert rows > 1000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == [path]


def test_a_link_stays_and_the_file_that_it_names_is_written(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "export.jsonl", tmp_path / "link"
    link.symlink_to(Path("there") / "export.jsonl")
    with Store.open(sqlite_url) as store:
        for _ in range(2):  # It names nothing yet, then a file.
            export_to_file(store, link)
            assert link.is_symlink()
            assert target.read_text(encoding="utf-8").splitlines() == lines_of(store)


def test_a_pipe_is_written_into(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with Store.open(sqlite_url) as store, ThreadPoolExecutor(1) as pool:
        fill(store)
        reader = pool.submit(path.read_text, encoding="utf-8")
        export_to_file(store, path)
        assert reader.result(timeout=30).splitlines() == lines_of(store)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_stays_one(sqlite_url: str, tmp_path: Path) -> None:
    # Through a link, so that a mistake here would replace the link and not the device.
    path = tmp_path / "null"
    path.symlink_to(os.devnull)
    before = os.stat(os.devnull)
    with Store.open(sqlite_url) as store:
        assert export_to_file(store, path) == 0
    assert path.is_symlink()
    assert os.stat(os.devnull).st_ino == before.st_ino


def test_a_folder_is_no_file(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store, pytest.raises(InvalidInput, match="not a folder"):
        export_to_file(store, tmp_path)


def test_a_folder_that_is_not_there_is_told(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store, pytest.raises(InvalidInput, match="it can't be written"):
        export_to_file(store, tmp_path / "none" / "export.jsonl")


def test_an_export_is_one_state_while_others_write(store: Store) -> None:
    fill(store)
    before = lines_of(store)

    class Meanwhile(io.StringIO):
        """Writes to the store while it is written to."""

        def write(self, text: str) -> int:
            if '"table":"models"' in text:
                with store.writing() as repos:
                    repos.plans.put([replace(plan(SCENARIO, 4000), created_at=NOON)])
            return super().write(text)

    out = Meanwhile()
    export(store, out)
    assert out.getvalue().splitlines() == before
