"""Export and import: from one database to the other and back, nothing lost, nothing half-done."""

from __future__ import annotations

import io
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import InvalidInput
from db.exporting import export, export_to_file
from db.store import Store
from tests.db.samples import LEASE, NOON, keep, later, new_id, new_search, plan, result
from tests.db.transfers import NOW, SCENARIO, fill, lines_of, take


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


def test_another_study_of_the_same_name_stops_the_import(store: Store, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        fill(other)
        lines = lines_of(other)
    fill(store)
    with pytest.raises(InvalidInput, match="another study here has that name"):
        take(store, lines)


def test_a_file_of_an_older_revision_may_lack_what_came_later(store: Store) -> None:
    fill(store)
    lines = [lines_of(store)[0].replace("0003", "0001")]
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
