"""The runner ``slurm`` on a real Slurm: several trials at once, found again, cancelled, and a controller that dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from db.store import Store
from planner.profiling.slurm_runner import SlurmRunner, SlurmSettings
from planner.profiling.template import Template
from planner.studying.worker import Worker
from tests.processes import alive, eventually
from tests.slurm.server import Slurm, slurm
from tests.studying.lab import WAIT_S, Lab, check_study, lab_in, ready, trials_of

__all__ = ["slurm"]
pytestmark = pytest.mark.slow
OPTIONS = ("--partition=real", "--mem=50")
TABLE = f"[slurm]\nat_once = 2\ngpus = false\noptions = [{', '.join(repr(option) for option in OPTIONS)}]\n"


@pytest.fixture(autouse=True)
def _commands_mean_this_slurm(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.home / "slurm.conf"))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    # As people name folders: the script has to quote.
    folder = tmp_path / "it's a lab"
    folder.mkdir()
    return lab_in(folder)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store.open(sqlite_url) as opened:
        yield opened


def worker_of(lab: Lab, store: Store) -> Worker:
    runner = SlurmRunner(SlurmSettings(at_once=2, gpus=False, options=OPTIONS), Template(argv=tuple(lab.argv())))
    return Worker(store=store, runners={"slurm": runner}, folder=lab.trials)


def queue(slurm: Slurm) -> list[str]:
    return slurm.run("squeue", "--noheader", "--format=%j %T").stdout.splitlines()


def test_two_at_once_and_every_kind_of_end(lab: Lab, store: Store, slurm: Slurm) -> None:
    lab.rules([(("micro_batch_size=2",), "until"), (("recompute=selective",), "out_of_memory"), ((), "crash")])
    study = ready(store, lab, runner="slurm", trials=5)
    thread = threading.Thread(target=worker_of(lab, store).run, args=(study.id,))
    thread.start()
    assert eventually(lambda: len(lab.starts()) >= 2, WAIT_S), slurm.logs()
    assert len([one for one in trials_of(store, study) if one.state == "running"]) <= 2
    lab.go.touch()
    thread.join(WAIT_S)
    trials = check_study(store, study, lab)
    assert len(lab.starts()) == len(trials)
    for trial in trials:
        assert trial.outcome in ("ok", "out_of_memory", "failed", "stopped"), trial
        assert trial.outcome != "failed" or trial.reason == "exit code 1"
    assert "ok" in {trial.outcome for trial in trials}
    assert eventually(lambda: queue(slurm) == [], WAIT_S)


def test_a_job_outlives_its_worker_and_its_controller(lab: Lab, store: Store, sqlite_url: str, slurm: Slurm) -> None:
    lab.rules([((), "until")])
    study = ready(store, lab, runner="slurm", trials=1)
    with ExitStack() as stack:
        first = stack.enter_context(lab.worker_process(sqlite_url, study, 3.0, slurm=TABLE))
        assert eventually(lambda: len(lab.starts()) == 1 or first.poll() is not None, WAIT_S), lab.said()
        assert first.poll() is None, lab.said()
        first.kill()
        first.wait()
        with store.writing() as repos:
            # As if it had died before it could note what it submitted.
            (trial,) = repos.studies.trials(study.id)
            repos.studies.release(trial, trial.created_at, details={})
        second = stack.enter_context(lab.worker_process(sqlite_url, study, 60.0, slurm=TABLE))
        assert eventually(lambda: trials_of(store, study)[0].handle is not None, WAIT_S), lab.said()
        controller = int((slurm.home / "slurmctld.pid").read_text())
        os.kill(controller, signal.SIGKILL)
        assert eventually(lambda: not alive(controller), WAIT_S)
        lab.go.touch()
        slurm.start_controller()
        assert second.wait(WAIT_S) == 0, lab.said()
    (trial,) = check_study(store, study, lab)
    assert (trial.outcome, trial.attempt) == ("ok", 2)
    assert len(lab.starts()) == 1


def test_a_worker_that_is_stopped_cancels_and_the_next_runs_it_anew(lab: Lab, store: Store, slurm: Slurm) -> None:
    lab.rules([((), "until")])
    study = ready(store, lab, runner="slurm", trials=1)
    worker = worker_of(lab, store)
    thread = threading.Thread(target=worker.run, args=(study.id,))
    thread.start()
    assert eventually(lambda: len(lab.starts()) == 1, WAIT_S), slurm.logs()
    worker.stopping.set()
    thread.join(WAIT_S)
    assert queue(slurm) == []
    assert lab.left() == []
    lab.go.touch()
    worker_of(lab, store).run(study.id)
    (trial,) = check_study(store, study, lab)
    # The exit code of the cancelled job is nobody's result.
    assert (trial.outcome, trial.attempt) == ("ok", 2)


def test_a_partition_that_is_not_there_uses_up_no_plan(lab: Lab, store: Store, slurm: Slurm) -> None:
    study = ready(store, lab, runner="slurm", trials=2)
    settings = SlurmSettings(at_once=2, gpus=False, options=("--partition=nowhere",))
    runner = SlurmRunner(settings, Template(argv=tuple(lab.argv())))
    Worker(store=store, runners={"slurm": runner}, folder=lab.trials).run(study.id)
    with store.reading() as repos:
        found = repos.studies.get(study.id)
    assert found is not None
    assert (found.state, list(trials_of(store, study))) == ("failed", [])
    assert "its trials can't be started: sbatch: " in found.ended_because
    assert "partition" in found.ended_because
