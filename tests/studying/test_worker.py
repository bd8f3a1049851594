"""Workers on a study, on both databases: each trial once, with what it measured or why not."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from db.store import Store
from planner.profiling.command_runner import CommandRunner
from planner.profiling.template import Template
from planner.studying.progress import Progress
from planner.studying.telling import study_in_words
from planner.studying.worker import TrialsHaveNoRoom, Worker
from tests.processes import eventually
from tests.studying.lab import WAIT_S, check_study, lab_in, opened, ready, trials_of


@pytest.mark.slow
def test_a_whole_study_with_every_kind_of_end(store: Store, tmp_path: Path) -> None:
    lab = lab_in(
        tmp_path,
        [
            (("recompute=selective",), "out_of_memory"),
            (("recompute=full",), "crash"),
            (("micro_batch_size=1", "zero_stage=3"), "hang"),
            (("micro_batch_size=1",), "ok:0.7"),
        ],
    )
    study = opened(store, trials=11, step_timeout_s=1.0)
    said: list[str] = []
    # A hang is known by the clock; a step of the others takes none of it.
    lab.worker(store, heard=lambda _, words: said.append(words)).run(study.id)
    trials = check_study(store, study, lab)
    with store.reading() as repos:
        found = repos.studies.get(study.id)
        assert found is not None
        progress, tried = Progress.of(repos, found), Progress.of(repos, found, tried_only=True)
    told = study_in_words(progress)
    assert study_in_words(tried) == told
    assert set(tried.plans) == {trial.place for trial in trials}
    assert len(lab.starts()) == len(trials)
    expected = {"none": "ok", "selective": "out_of_memory", "full": "failed"}
    for trial, words in zip(trials, told["trials"], strict=True):
        plan = words["plan"]
        hangs = plan["recompute"] == "none" and plan["micro_batch_size"] == 1 and plan["zero_stage"] == 3
        assert trial.outcome == ("failed" if hangs else expected[plan["recompute"]]), trial
        measured = progress.measurements[trial.number]
        assert measured.note == trial.reason
        assert '"step": 0' in (measured.log_tail or "")
        if trial.outcome == "out_of_memory":
            assert "CUDA out of memory. Tried to allocate 2.00 GiB" in trial.reason
            assert measured.step_time_s is None
        elif trial.outcome == "failed":
            assert trial.reason == ("no step in 1 s: it hangs" if hangs else "exit code 1")
        else:
            assert measured.step_time_s == (0.7 if plan["micro_batch_size"] == 1 else 0.65)
            assert measured.peak_allocated_bytes == 2 << 30
            assert measured.environment == {"trainer": "fake"}
            assert measured.tokens_per_s_per_device == pytest.approx(16 * 2048 / 8 / measured.step_time_s)
    best = told["trials"][told["best"]]
    assert best["step_time_s"] == 0.65
    assert best["plan"]["micro_batch_size"] == 2
    assert said[-1] == f"done: {found.ended_because}"


@pytest.mark.slow
def test_two_workers_in_one_process(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    with Store.open(sqlite_url) as store:
        study = opened(store, trials=6)
        workers = [lab.worker(store) for _ in range(2)]
        threads = [threading.Thread(target=worker.run, args=(study.id,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        trials = check_study(store, study, lab)
    assert len(lab.starts()) == len(trials)
    assert {trial.outcome for trial in trials} <= {"ok", "stopped"}


@pytest.mark.slow
def test_two_workers_in_processes(store: Store, store_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    study = ready(store, lab, trials=6)
    with ExitStack() as stack:
        processes = [stack.enter_context(lab.worker_process(store_url, study)) for _ in range(2)]
        for process in processes:
            assert process.wait(WAIT_S) == 0, lab.said()
    trials = check_study(store, study, lab)
    assert len(lab.starts()) == len(trials)


def test_a_worker_that_is_stopped_gives_its_trial_back(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path, [((), "until")])
    with Store.open(sqlite_url) as store:
        study = opened(store, trials=1)
        # As often as somebody likes: it isn't the plan's fault.
        for time in range(1, 6):
            worker = lab.worker(store)
            thread = threading.Thread(target=worker.run, args=(study.id,))
            thread.start()
            assert eventually(lambda: len(lab.starts()) == time, WAIT_S)  # noqa: B023
            worker.stopping.set()
            thread.join(WAIT_S)
            assert lab.left() == []
            (trial,) = trials_of(store, study)
            assert (trial.state, trial.owner, trial.attempt) == ("running", None, time)
        lab.go.touch()
        lab.worker(store).run(study.id)
        (trial,) = check_study(store, study, lab)
        assert (trial.outcome, trial.attempt) == ("ok", 6)


def test_a_study_ends_in_time_with_the_trial_that_runs(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path, [((), "hang")])
    with Store.open(sqlite_url) as store:
        study = opened(store, trials=3, max_minutes=60.0)
        worker = lab.worker(store, lease_s=2.0)
        thread = threading.Thread(target=worker.run, args=(study.id,))
        thread.start()
        assert eventually(lambda: len(lab.starts()) == 1, WAIT_S)
        # An hour later, as everybody sees it.
        with store.writing() as repos:
            repos.studies.reopen(study.id, 3, datetime.now(UTC))
        thread.join(WAIT_S)
        (trial,) = check_study(store, study, lab)
        assert (trial.outcome, trial.reason) == ("stopped", "its study is over")
        with store.reading() as repos:
            found = repos.studies.get(study.id)
            assert found is not None
            assert found.ended_because == "its time is over"
            assert list(repos.measurements.of_study(study.id)) == []


def test_a_folder_without_room_ends_the_worker_and_no_plan_is_to_blame(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    # A file is in the way, which stops root as well.
    lab.trials.touch()
    with Store.open(sqlite_url) as store:
        study = opened(store, trials=2)
        with pytest.raises(TrialsHaveNoRoom, match="Not a directory"):
            lab.worker(store).run(study.id)
        (trial,) = trials_of(store, study)
        assert (trial.state, trial.owner) == ("running", None)
        lab.trials.unlink()
        lab.worker(store).run(study.id)
        trials = check_study(store, study, lab)
        assert {trial.outcome for trial in trials} == {"ok"}


def test_a_runner_that_can_run_no_plan_fails_the_study(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        study = opened(store)
        runner = CommandRunner(Template(argv=("train", "{no_such_axis}")))
        Worker(store=store, runners={"command": runner}, folder=tmp_path / "trials").run(study.id)
        with store.reading() as repos:
            found = repos.studies.get(study.id)
        assert found is not None
        assert found.state == "failed"
        assert "it can run none of" in found.ended_because
        assert "{no_such_axis}" in found.ended_because


def test_a_study_whose_first_trial_cannot_start_goes_on_once_that_is_mended(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    wrong = CommandRunner(Template(argv=("no-such-program", "{key}")))
    with Store.open(sqlite_url) as store:
        study = ready(store, lab, trials=1)
        Worker(store=store, runners={"command": wrong}, folder=lab.trials).run(study.id)
        with store.reading() as repos:
            found = repos.studies.get(study.id)
        assert found is not None
        assert (found.state, list(trials_of(store, study))) == ("failed", [])
        assert "no-such-program: no such program is on this machine" in found.ended_because
        with store.writing() as repos:
            assert repos.studies.reopen(study.id, 1, None)
        lab.worker(store).run(study.id)
        (trial,) = check_study(store, study, lab)
        assert (trial.outcome, trial.number, trial.attempt) == ("ok", 0, 1)


def test_a_study_whose_preparation_kills_workers_is_given_up(sqlite_url: str, tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    with Store.open(sqlite_url) as store:
        study, now = opened(store), datetime.now(UTC)
        with store.writing() as repos:
            for time in range(3):
                then = now - timedelta(seconds=100 - 10 * time)
                assert repos.studies.claim_preparation(study.id, f"dead {time}", then, then + timedelta(seconds=5))
        lab.worker(store).run(study.id)
        with store.reading() as repos:
            found = repos.studies.get(study.id)
    assert found is not None
    assert (found.state, found.ended_because) == ("failed", "3 workers that looked for its candidates died")
