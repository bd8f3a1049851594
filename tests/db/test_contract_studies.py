"""Studies and their trials, on both databases: each candidate once, within the budget, by one owner at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest

from costmodel.errors import InvalidInput
from db.records import Study, StudyCandidate, Trial
from db.repositories import Repositories
from db.store import Store
from tests.db.samples import LEASE, NOON, keep, later, measurement, new_id, plan, scenario

SCENARIO = scenario()
PLANS = [plan(SCENARIO, tp, 1.0) for tp in (1, 2, 4, 8)]


def study(store: Store, most_trials: int = 3, **how: object) -> Study:
    """An open one with four candidates."""
    keep(store, SCENARIO)
    made = {
        "id": new_id(),
        "name": "one",
        "scenario_id": SCENARIO.id,
        "search_id": None,
        "created_by": None,
        "created_at": NOON,
        "state": "preparing",
        "runner": "local",
        "most_trials": most_trials,
    }
    record = Study(**(made | how))  # type: ignore[arg-type]
    with store.writing() as repos:
        repos.studies.add(record)
        repos.plans.put(PLANS)
    with store.writing() as repos:
        mine = repos.studies.claim_preparation(record.id, "one", NOON, later(600))
        assert mine is not None
        assert repos.studies.claim_preparation(record.id, "other", NOON, later(600)) is None
        places = [StudyCandidate(study_id=mine.id, place=i, plan_id=p.id, origin="search") for i, p in enumerate(PLANS)]
        assert repos.studies.prepared(mine, places)
        assert not repos.studies.prepared(mine, places)
        found = repos.studies.get(record.id)
    assert found is not None
    return found


def begin(repos: Repositories, of: Study, place: int, owner: str = "one", now: datetime = NOON) -> Trial | None:
    return repos.studies.begin(of.id, place, owner, {"gain": 0.1}, now, now + LEASE)


def begun(store: Store, of: Study, place: int = 0, owner: str = "one") -> Trial:
    with store.writing() as repos:
        trial = begin(repos, of, place, owner)
    assert trial is not None
    return trial


def test_a_name_is_given_once(store: Store) -> None:
    study(store)
    with pytest.raises(InvalidInput, match="a name that no other study has"):
        study(store)


def test_a_preparation_that_was_lost_is_anybodys_and_its_candidates_count_for_nothing(store: Store) -> None:
    keep(store, SCENARIO)
    with store.writing() as repos:
        repos.plans.put(PLANS)
        new = Study(
            id=new_id(), name="n", scenario_id=SCENARIO.id, search_id=None, created_by=None, created_at=NOON,
            state="preparing", runner="local", most_trials=1,
        )  # fmt: skip
        repos.studies.add(new)
        first = repos.studies.claim_preparation(new.id, "one", NOON, later(10))
        assert repos.studies.claim_preparation(new.id, "two", later(5), later(20)) is None
        second = repos.studies.claim_preparation(new.id, "two", later(11), later(20))
        assert first is not None
        assert second is not None
        place = [StudyCandidate(study_id=new.id, place=0, plan_id=PLANS[0].id, origin="search")]
        assert not repos.studies.prepared(first, place)
        assert list(repos.studies.candidates(new.id)) == []
        assert repos.studies.prepared(second, place)
        assert list(repos.studies.candidates(new.id)) == place


def test_each_candidate_once_and_never_more_than_the_budget(store: Store) -> None:
    of = study(store, most_trials=3)
    with store.writing() as repos:
        numbers = [trial and trial.number for trial in (begin(repos, of, place) for place in (2, 2, 0, 1, 3))]
    assert numbers == [0, None, 1, 2, None]
    with store.reading() as repos:
        assert [trial.place for trial in repos.studies.trials(of.id)] == [2, 0, 1]
        assert repos.studies.trial(of.id, 1) == repos.studies.trials(of.id)[1]
        assert repos.studies.trial(of.id, 3) is None


def test_threads_that_begin_at_once(store: Store) -> None:
    of = study(store, most_trials=3)
    barrier, got = threading.Barrier(4), []

    def race(owner: str) -> None:
        barrier.wait()
        for place in range(4):
            with store.writing() as repos:
                got.append(begin(repos, of, place, owner))

    threads = [threading.Thread(target=race, args=(f"{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [trial for trial in got if trial is not None]
    assert sorted(trial.number for trial in won) == [0, 1, 2]
    assert len({trial.place for trial in won}) == 3


_RACE = """
import sys
from db.store import Store
from tests.db.samples import LEASE, NOON
url, study, owner = sys.argv[1:]
with Store.open(url) as store:
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for place in range(4):
        with store.writing() as repos:
            trial = repos.studies.begin(study, place, owner, {}, NOON, NOON + LEASE)
        if trial is not None:
            sys.stdout.write(f"{trial.number} {trial.place}\\n")
"""


def test_processes_that_begin_at_once(store: Store, store_url: str) -> None:
    of = study(store, most_trials=3)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACE, store_url, of.id, owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path.cwd(),
        )
        for owner in ("one", "two")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    said = "".join(racer.communicate("go\n")[0] for racer in racers)
    won = [line.split() for line in said.splitlines()]
    assert sorted(number for number, _ in won) == ["0", "1", "2"]
    assert len({place for _, place in won}) == 3


def test_a_trial_is_taken_over_once_its_lease_is_over_by_one(store: Store) -> None:
    of = study(store)
    trial = begun(store, of)
    with store.writing() as repos:
        assert repos.studies.take_over(of.id, "two", later(29), later(60)) is None
        assert repos.studies.renew(trial, later(50))
        assert repos.studies.take_over(of.id, "two", later(31), later(60)) is None
        taken = repos.studies.take_over(of.id, "two", later(51), later(81))
        assert repos.studies.take_over(of.id, "three", later(51), later(81)) is None
    assert taken is not None
    assert (taken.number, taken.owner, taken.attempt, taken.details) == (0, "two", 2, {"gain": 0.1})
    with store.writing() as repos:
        # The former owner writes nothing, in no way.
        assert not repos.studies.renew(trial, later(90))
        assert not repos.studies.note(trial, handle="1")
        assert not repos.studies.release(trial, later(52))
        found = measurement(PLANS[0], study_id=of.id, trial_number=0)
        assert not repos.studies.finish(trial, "ok", "", found, later(52))
        assert repos.studies.trial(of.id, 0) == taken
        assert list(repos.measurements.of_study(of.id)) == []


def test_a_trial_ends_once_with_its_measurement_or_not_at_all(store: Store) -> None:
    of = study(store)
    trial = begun(store, of)
    found = measurement(PLANS[0], study_id=of.id, trial_number=0)
    bad = measurement(PLANS[0], plan_id="0" * 32, study_id=of.id, trial_number=0)
    with pytest.raises(InvalidInput), store.writing() as repos:
        repos.studies.finish(trial, "ok", "", bad, later(5))
    with store.writing() as repos:
        assert repos.studies.trial(of.id, 0) == trial
        assert repos.studies.finish(trial, "ok", "fine", found, later(5))
        assert not repos.studies.finish(trial, "failed", "", None, later(6))
        ended = repos.studies.trial(of.id, 0)
        assert ended is not None
        assert (ended.state, ended.outcome, ended.reason, ended.owner) == ("done", "ok", "fine", None)
        assert [one.id for one in repos.measurements.of_study(of.id)] == [found.id]
        assert repos.studies.take_over(of.id, "two", later(1000), later(2000)) is None


def test_what_is_released_is_anybodys_at_once(store: Store) -> None:
    of = study(store)
    trial = begun(store, of)
    with store.writing() as repos:
        assert repos.studies.note(trial, handle="7", details={"key": "k"})
        assert repos.studies.release(trial, later(1), details={"released": 1})
        assert not repos.studies.release(trial, later(1))
        taken = repos.studies.take_over(of.id, "two", later(2), later(30))
        assert taken is not None
        assert (taken.handle, taken.details, taken.attempt) == (None, {"released": 1}, 2)
        assert repos.studies.release(taken, later(3), handle="8")
        again = repos.studies.take_over(of.id, "three", later(4), later(30))
        assert again is not None
        assert (again.handle, again.details) == ("8", {"released": 1})


def test_a_study_that_is_over_begins_nothing_and_can_be_reopened(store: Store) -> None:
    of = study(store, most_trials=1)
    trial = begun(store, of)
    with store.writing() as repos:
        assert repos.studies.end(of.id, "done", "enough", later(5))
        assert not repos.studies.end(of.id, "done", "again", later(6))
        assert begin(repos, of, 1) is None
        assert not repos.studies.renew(trial, later(60))
        # Somebody has to look after a trial whose owner is gone.
        assert list(repos.studies.to_work_on(["local"], later(6))) == []
        assert [one.id for one in repos.studies.to_work_on(["local"], later(31))] == [of.id]
        assert list(repos.studies.to_work_on(["slurm"], later(31))) == []
        assert repos.studies.finish(trial, "stopped", "enough", None, later(7))
        assert list(repos.studies.to_work_on(["local"], later(31))) == []
        assert repos.studies.reopen(of.id, 2, later(100))
        found = repos.studies.named("one")
        assert found is not None
        assert (found.state, found.ended_because, found.most_trials, found.deadline) == ("open", "", 2, later(100))
        again = begin(repos, of, 1)
        assert again is not None
        assert again.number == 1


def test_a_study_that_never_had_candidates_is_prepared_anew(store: Store) -> None:
    keep(store, SCENARIO)
    with store.writing() as repos:
        new = Study(
            id=new_id(), name="n", scenario_id=SCENARIO.id, search_id=None, created_by=None, created_at=NOON,
            state="preparing", runner="local", most_trials=1,
        )  # fmt: skip
        repos.studies.add(new)
        assert repos.studies.claim_preparation(new.id, "one", NOON, later(10)) is not None
        assert repos.studies.end(new.id, "failed", "torch is missing", NOON)
        assert repos.studies.reopen(new.id, 5, None)
        again = repos.studies.claim_preparation(new.id, "two", NOON, later(10))
        assert again is not None
        assert (again.state, again.attempt, again.most_trials, again.ended_because) == ("preparing", 1, 5, "")
        # A budget may change while somebody looks for candidates, who goes on.
        assert repos.studies.reopen(new.id, 6, None)
        assert repos.studies.renew_preparation(again, later(60))
        assert repos.studies.claim_preparation(new.id, "three", later(30), later(90)) is None
        assert not repos.studies.reopen(new_id(), 5, None)


def test_a_trial_that_was_withdrawn_never_was_and_numbers_go_on(store: Store) -> None:
    of = study(store, most_trials=3)
    with store.writing() as repos:
        first, second = begin(repos, of, 0), begin(repos, of, 1)
        assert first is not None
        assert second is not None
        assert repos.studies.withdraw(first)
        assert not repos.studies.withdraw(first)
        again = begin(repos, of, 0)
        assert again is not None
        assert again.number == 2
        assert [(one.number, one.place) for one in repos.studies.trials(of.id)] == [(1, 1), (2, 0)]


def test_trials_that_nobody_runs_end_with_their_study(store: Store) -> None:
    of = study(store, most_trials=3)
    with store.writing() as repos:
        put_back, dead, runs = begin(repos, of, 0), begin(repos, of, 1), begin(repos, of, 2, now=later(20))
        assert put_back is not None
        assert dead is not None
        assert runs is not None
        assert repos.studies.release(put_back, NOON)
        assert repos.studies.close_left(["local"], later(35)) == 0
        assert repos.studies.end(of.id, "stopped", "it was cancelled", later(1))
        # A job of Slurm may well run on, and somebody has to end it; what was put back has none.
        assert repos.studies.close_left(["command"], later(35)) == 1
        assert repos.studies.close_left(["local"], later(35)) == 1
        assert [one.outcome for one in repos.studies.trials(of.id)] == ["stopped", "stopped", None]
        assert not repos.studies.finish(dead, "ok", "", None, later(36))
        assert repos.studies.finish(runs, "ok", "", None, later(36))
