"""A small study with trials of a program that stands in for a trainer, and workers in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from db import records
from db.store import Store
from planner.profiling.command_runner import CommandRunner
from planner.profiling.template import Template
from planner.question import Question
from planner.resolving import request_of
from planner.search.request import SearchRequest
from planner.studying.opening import open_study
from planner.studying.preparing import prepare
from planner.studying.settings import StudySettings
from planner.studying.worker import Worker
from tests.processes import alive

HERE = Path(__file__).resolve().parent
TRAINER = HERE / "trainer.py"
WAIT_S = 120.0
"""For what comes at once on a machine that does nothing else."""
AXES = ("micro_batch_size", "recompute", "zero_stage")
SCENARIO = {
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "devices": 8,
    "global_batch_size": 16,
    "seq_len": 2048,
    "framework": "torchtitan",
}
PINS = ("tp=1", "pp=1", "cp=1", "vpp=1")
"""Some ten candidates are left."""

Rules = Sequence[tuple[Sequence[str], str]]


@cache
def request() -> SearchRequest:
    return request_of(Question(**SCENARIO, pins=PINS))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Lab:
    """A folder with what trials do, and one for what they leave."""

    folder: Path
    trials: Path

    @property
    def go(self) -> Path:
        """Trials under the rule ``until`` wait for this file."""
        return self.folder / "go"

    def rules(self, rules: Rules) -> None:
        """What comes of which plans from now on: ok:SECONDS, out_of_memory, crash, hang, daemon, until.

        With ``later:`` before it, of all but the first that starts.
        """
        told = [(needed, f"{what}:{self.go}" if what.endswith("until") else what) for needed, what in rules]
        staged = self.folder / "rules.new"
        staged.write_text(json.dumps(told), encoding="utf-8")
        staged.replace(self.folder / "rules.json")

    def argv(self) -> list[str]:
        axes = [f"{name}={{{name}}}" for name in AXES]
        files = [str(TRAINER), str(self.folder / "starts"), str(self.folder / "rules.json")]
        return [sys.executable, *files, "{key}", "{total_steps}", *axes]

    def launch_file(self, slurm: str = "") -> Path:
        path = self.folder / "launch.toml"
        path.write_text(f"[command]\nargv = {json.dumps(self.argv())}\n{slurm}", encoding="utf-8")
        return path

    def runner(self) -> CommandRunner:
        return CommandRunner(Template(argv=tuple(self.argv())))

    def starts(self) -> list[tuple[str, int]]:
        """The key and the process of everything that was started."""
        path = self.folder / "starts"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [(key, int(pid)) for key, pid in (line.split() for line in lines)]

    def left(self) -> list[int]:
        """Processes of trials that are still there."""
        return [pid for _, pid in self.starts() if alive(pid)]

    def worker(self, store: Store, **more: object) -> Worker:
        return Worker(store=store, runners={"command": self.runner()}, folder=self.trials, **more)  # type: ignore[arg-type]

    @contextmanager
    def worker_process(
        self, url: str, study: records.Study, lease_s: float = 60.0, slurm: str = ""
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A worker in a process of its own; killed at the end if it is still there."""
        words = [
            sys.executable,
            HERE / "worker_process.py",
            url,
            self.launch_file(slurm),
            self.trials,
            study.id,
            lease_s,
        ]
        with (self.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, env=dict(os.environ))
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def said(self) -> str:
        """What workers in processes of their own wrote."""
        return (self.folder / "workers.log").read_text(encoding="utf-8")


def lab_in(folder: Path, rules: Rules = ()) -> Lab:
    lab = Lab(folder, folder / "trials")
    lab.rules(rules)
    return lab


def opened(store: Store, name: str = "study", **settings: object) -> records.Study:
    how = {"runner": "command", "trials": 4, "steps": 2, "warm_up": 1} | settings
    return open_study(store, request(), StudySettings(**how), name=name, now=datetime.now(UTC))  # type: ignore[arg-type]


def ready(store: Store, lab: Lab, **settings: object) -> records.Study:
    """A study whose candidates are there, so that no process has to look for them."""
    study, now = opened(store, **settings), datetime.now(UTC)
    with store.writing() as repos:
        mine = repos.studies.claim_preparation(study.id, "test", now, now + timedelta(seconds=600))
    assert mine is not None
    assert prepare(store, mine, lab.runner(), now)
    return study


def trials_of(store: Store, study: records.Study) -> Sequence[records.Trial]:
    with store.reading() as repos:
        return repos.studies.trials(study.id)


def check_study(store: Store, study: records.Study, lab: Lab) -> list[records.Trial]:
    """What has to hold of a study that is over, whatever happened meanwhile; its trials."""
    with store.reading() as repos:
        found = repos.studies.get(study.id)
        trials, measurements = repos.studies.trials(study.id), repos.measurements.of_study(study.id)
    assert found is not None
    assert found.state == "done", found
    assert found.ended_because
    assert 0 < len(trials) <= found.most_trials
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert len({trial.place for trial in trials}) == len(trials)
    assert {trial.state for trial in trials} == {"done"}
    assert len({one.trial_number for one in measurements}) == len(measurements)
    assert {trial.number for trial in trials if trial.outcome == "ok"} <= {one.trial_number for one in measurements}
    assert lab.left() == []
    return list(trials)
