"""Nothing of a trial is left, whatever it starts and however its worker ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from planner.profiling.local import Guarded
from planner.profiling.processes import descendants, marked, started_at
from tests.processes import alive, eventually
from tests.profiling.jobs import trial

_WAIT_S = 120.0
# A child, and one that leaves parent, session and environment; all of them deaf to a kind word.
_TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
away = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"]
pids = [os.getpid(), subprocess.Popen(away).pid, subprocess.Popen(["setsid", *away], env={}).pid]
with open("pids.new", "w") as file:
    file.write(" ".join(map(str, pids)))
os.rename("pids.new", "pids")
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
time.sleep(3600)
"""
_WORKER = """
import sys, time
from pathlib import Path
from planner.profiling.local import Guarded
from tests.profiling.jobs import trial
Guarded(grace_s=float(sys.argv[2])).start(trial(Path(sys.argv[1])), sys.argv[3:], {})
time.sleep(3600)
"""


def pids(folder: Path) -> list[int]:
    assert eventually((folder / "pids").exists, _WAIT_S)
    return [int(pid) for pid in (folder / "pids").read_text().split()]


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.chdir(tmp_path)


@contextmanager
def worker(folder: Path, grace_s: float) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", _WORKER, folder, str(grace_s), sys.executable, "-c", _TREE])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_command_that_ends_leaves_its_code_and_nothing_else(tmp_path: Path) -> None:
    guarded, one = Guarded(), trial(tmp_path)
    handle = guarded.start(one, [sys.executable, "-c", _TREE, "3"], {})
    found = pids(tmp_path)
    assert eventually(lambda: guarded.state(handle, one) == "done", _WAIT_S)
    assert one.exit_code.read_text() == "3"
    assert not any(alive(pid) for pid in found)
    guarded.stop(handle, one)
    guarded.stop(handle, one)


def test_stopping_ends_all_of_it(tmp_path: Path) -> None:
    guarded, one = Guarded(), trial(tmp_path)
    handle = guarded.start(one, [sys.executable, "-c", _TREE], {})
    found = pids(tmp_path)
    assert guarded.state(handle, one) == "running"
    assert set(found) <= descendants(os.getpid())
    assert len(marked(one.key)) >= 2
    guarded.stop(handle, one)
    assert not any(alive(pid) for pid in found)
    assert guarded.state(handle, one) == "gone"
    assert not one.exit_code.exists()


def test_a_killed_worker_takes_all_of_it_along(tmp_path: Path) -> None:
    with worker(tmp_path, 600.0) as process:
        found = pids(tmp_path)
        process.kill()
        assert eventually(lambda: not any(alive(pid) for pid in found), _WAIT_S)
        one = trial(tmp_path)
        assert eventually(lambda: marked(one.key) == set(), _WAIT_S)
        assert not one.exit_code.exists()
        assert not (one.folder / "abandoned").exists()


def test_a_worker_that_froze_for_longer_than_the_grace_has_lost_its_trial(tmp_path: Path) -> None:
    with worker(tmp_path, 2.0) as process:
        found = pids(tmp_path)
        os.kill(process.pid, signal.SIGSTOP)
        assert eventually(lambda: not any(alive(pid) for pid in found), _WAIT_S)
        one = trial(tmp_path)
        assert eventually((one.folder / "abandoned").exists, _WAIT_S)
        assert not one.exit_code.exists()


def test_a_guard_that_is_killed_leaves_what_stopping_finds(tmp_path: Path) -> None:
    guarded, one = Guarded(), trial(tmp_path)
    words = [sys.executable, "-c", "import time; open('pids', 'w').write('1'); time.sleep(3600)"]
    handle = guarded.start(one, words, {})
    pids(tmp_path)
    _, guard, start = handle.split(":")
    assert started_at(int(guard)) == start
    left = marked(one.key) - {int(guard)}
    assert len(left) == 1
    os.kill(int(guard), signal.SIGKILL)
    assert eventually(lambda: guarded.state(handle, one) == "gone", _WAIT_S)
    guarded.stop(handle, one)
    assert not any(alive(pid) for pid in left)


def test_what_runs_on_another_machine_is_not_here(tmp_path: Path) -> None:
    guarded, one = Guarded(), trial(tmp_path)
    handle = f"elsewhere:{os.getpid()}:{started_at(os.getpid())}"
    assert guarded.state(handle, one) == "gone"
    guarded.stop(handle, one)
