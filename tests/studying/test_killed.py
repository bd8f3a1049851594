"""Workers that die or freeze in the middle of a trial: nothing is lost, counted twice or left behind."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from db.store import Store
from planner.studying.keeping import LOST
from tests.processes import alive, eventually
from tests.studying.lab import WAIT_S, check_study, lab_in, ready, trials_of

pytestmark = pytest.mark.slow
LEASE_S = 4.0


def test_a_worker_killed_in_a_trial_is_replaced(store: Store, store_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path, [((), "later:daemon")])
    study = ready(store, lab, trials=3)
    with ExitStack() as stack:
        first = stack.enter_context(lab.worker_process(store_url, study, LEASE_S))
        # Two lines of one key: the trainer and what it left in a session of its own.
        assert eventually(lambda: len(lab.left()) == 2 or first.poll() is not None, WAIT_S), lab.said()
        assert first.poll() is None, lab.said()
        finished = [one for one in trials_of(store, study) if one.state == "done"]
        first.kill()
        first.wait()
        assert eventually(lambda: lab.left() == [], WAIT_S)
        lab.rules([])
        second = stack.enter_context(lab.worker_process(store_url, study, LEASE_S))
        assert second.wait(WAIT_S) == 0, lab.said()
    trials = check_study(store, study, lab)
    assert trials[: len(finished)] == finished
    again = trials[len(finished)]
    assert again.attempt == 2
    assert again.outcome == "ok"
    # One start for each attempt, whoever made it; the daemon has a line of its own.
    assert len({key for key, _ in lab.starts()}) == sum(trial.attempt for trial in trials)


def test_what_a_worker_measured_after_it_froze_counts_for_nothing(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path, [((), "until")])
    with Store.open(sqlite_url) as store, ExitStack() as stack:
        study = ready(store, lab, trials=1)
        frozen = stack.enter_context(lab.worker_process(sqlite_url, study, LEASE_S))
        assert eventually(lambda: len(lab.starts()) == 1, WAIT_S), lab.said()
        # Noted, so that the other can find what runs.
        assert eventually(lambda: trials_of(store, study)[0].handle is not None, WAIT_S)
        os.kill(frozen.pid, signal.SIGSTOP)
        lab.rules([((), "ok:0.7")])
        other = stack.enter_context(lab.worker_process(sqlite_url, study, LEASE_S))
        assert other.wait(WAIT_S) == 0, lab.said()
        (trial,) = check_study(store, study, lab)
        os.kill(frozen.pid, signal.SIGCONT)
        assert frozen.wait(WAIT_S) == 0, lab.said()
        assert check_study(store, study, lab) == [trial]
    assert (trial.outcome, trial.attempt) == ("ok", 2)
    assert LOST in lab.said() or "another worker has it" in lab.said()


def test_three_workers_that_a_plan_kills_are_enough(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path, [((), "until")])
    with Store.open(sqlite_url) as store, ExitStack() as stack:
        study = ready(store, lab, trials=1)
        for time in range(1, 4):
            worker = stack.enter_context(lab.worker_process(sqlite_url, study, 1.5))
            assert eventually(lambda: len(lab.starts()) == time, WAIT_S), lab.said()  # noqa: B023
            worker.kill()
            worker.wait()
            assert eventually(lambda: lab.left() == [], WAIT_S)
        last = stack.enter_context(lab.worker_process(sqlite_url, study, 1.5))
        assert last.wait(WAIT_S) == 0, lab.said()
        (trial,) = check_study(store, study, lab)
    assert (trial.outcome, trial.reason) == ("failed", "3 workers that ran it died")
    assert not any(alive(pid) for _, pid in lab.starts())
