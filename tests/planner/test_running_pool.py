"""The pool of worker processes, with real ones: results, errors, stops, deaths and orphans."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.answering.whole_answer import whole_answer
from planner.running.errors import JobFailed, JobStopped, WorkersUnavailable
from planner.running.job import SearchJob
from planner.running.pool import Pool
from tests.processes import alive, children, eventually
from tests.running_jobs import Break, Die, Echo, Exit, Invalid, Unsendable, Wait, long_request
from tests.scenarios import scenario_of
from tests.searches import request_of

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1, cancel_grace_s=1.0, overrun_grace_s=1.0) as shared:
        yield shared


# -- results and errors ----------------------------------------------------------------------------------------------


def test_a_search_in_a_worker_is_the_search_here(pool: Pool) -> None:
    request = request_of(scenario_of("llama-3.1-8b", "dgx-h100", 16, 32, 4096))
    told: list[str] = []
    expected = whole_answer(request)
    answer = pool.run(SearchJob(request=request), max_seconds=60.0, progress=lambda step, _: told.append(step))
    for one in (answer, expected):
        one["search"].pop("elapsed_s")
    assert json.dumps(answer) == json.dumps(expected)
    assert told == ["candidates", "relaxed", "incumbents", "listed"]


def test_a_worker_stays_warm_between_jobs(pool: Pool) -> None:
    first, second = (pool.run(Echo(value=value), max_seconds=5.0) for value in ("a", "b"))
    assert (first["value"], second["value"]) == ("a", "b")
    assert first["pid"] == second["pid"] == pool.pids[0] != os.getpid()


def test_bad_input_found_by_a_worker_names_the_field(pool: Pool) -> None:
    with pytest.raises(JobFailed, match="did you mean llama") as caught:
        pool.run(Invalid(), max_seconds=5.0)
    problem = caught.value.problem
    assert (problem["type"], problem["field"], problem["value"]) == ("unknown-name", "model", "lama")
    assert problem["nearest"] == ["llama"]


@pytest.mark.parametrize(("job", "said"), [(Break(), "ZeroDivisionError: a bug"), (Unsendable(), "cannot pickle")])
def test_a_bug_fails_the_job_and_not_the_worker(pool: Pool, job: Any, said: str) -> None:
    with pytest.raises(JobFailed, match=said) as caught:
        pool.run(job, max_seconds=5.0)
    assert caught.value.problem["type"] == "unexpected-error"
    assert "Traceback" in caught.value.trace
    assert "Traceback" not in caught.value.problem["detail"]
    assert pool.run(Echo(value=1), max_seconds=5.0)["value"] == 1


# -- workers that die ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("job", "said"), [(Die(), "signal 9.*memory"), (Exit(), "exit code 3")])
def test_a_worker_that_dies_fails_its_job_and_is_replaced(pool: Pool, job: Any, said: str) -> None:
    before = pool.pids
    with pytest.raises(JobFailed, match=said) as caught:
        pool.run(job, max_seconds=5.0)
    assert caught.value.problem["type"] == "worker-lost"
    assert pool.run(Echo(value=1), max_seconds=5.0)["pid"] not in before


def test_a_worker_that_died_while_idle_is_replaced_unnoticed(pool: Pool) -> None:
    pool.run(Echo(value=1), max_seconds=5.0)
    gone = pool.pids[0]
    os.kill(gone, signal.SIGKILL)
    assert eventually(lambda: not alive(gone), 3.0)
    assert pool.run(Echo(value=2), max_seconds=5.0)["pid"] != gone


def test_workers_leave_it_to_the_parent_what_a_signal_means(pool: Pool) -> None:
    pool.run(Echo(value=1), max_seconds=5.0)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pool.pids[0], number)
    assert pool.run(Echo(value=2), max_seconds=5.0)["pid"] == pool.pids[0]
    assert os.getpgid(pool.pids[0]) != os.getpgid(0)


# -- stops and deadlines ---------------------------------------------------------------------------------------------


def stopped_after(pool: Pool, job: Any, seconds: float) -> float:
    """Run a job, stop it some time after its first progress, and say how many seconds it went on."""
    stopped, at = threading.Event(), []

    def stop() -> None:
        at.append(time.monotonic())
        stopped.set()

    def progress(step: str, figures: dict[str, Any]) -> None:
        if step in ("begun", "listed"):
            threading.Timer(seconds, stop).start()

    with pytest.raises(JobStopped):
        pool.run(job, max_seconds=60.0, progress=progress, stopped=stopped)
    return time.monotonic() - at[0]


def test_a_long_search_stops_long_before_its_end() -> None:
    """In a fifth of a second, unless the machine is busy, and by itself."""
    with Pool(1, cancel_grace_s=30.0) as pool:
        assert stopped_after(pool, SearchJob(request=long_request()), 0.8) < 3.0
        pid = pool.pids[0]
        assert pool.run(Echo(value=1), max_seconds=5.0)["pid"] == pid


def test_a_job_that_does_not_listen_is_ended_by_force(pool: Pool) -> None:
    pool.run(Echo(value=0), max_seconds=5.0)
    before = pool.pids
    assert 0.9 < stopped_after(pool, Wait(deaf=True), 0.0) < 10.0
    assert eventually(lambda: not alive(before[0]), 3.0)
    assert pool.run(Echo(value=1), max_seconds=5.0)["pid"] not in before


def test_a_job_that_overruns_its_deadline_fails_with_that_reason(pool: Pool) -> None:
    with pytest.raises(JobFailed, match="1 s after its deadline") as caught:
        pool.run(Wait(), max_seconds=0.5)
    assert caught.value.problem["type"] == "search-overran"
    assert pool.run(Echo(value=1), max_seconds=5.0)["value"] == 1


# -- the end ---------------------------------------------------------------------------------------------------------


def test_closing_ends_all_workers_at_once_also_in_the_middle_of_a_job() -> None:
    pool, ends, begun = Pool(2), [], threading.Event()

    def use() -> None:
        try:
            pool.run(Wait(), max_seconds=60.0, progress=lambda *_: begun.set())
        except WorkersUnavailable as error:
            ends.append(str(error))

    user = threading.Thread(target=use)
    user.start()
    assert begun.wait(30.0)
    started = time.monotonic()
    pool.close()
    user.join(5.0)
    assert time.monotonic() - started < 2.0
    assert not any(alive(pid) for pid in pool.pids)
    assert ends == ["the pool of workers is closed"]
    with pytest.raises(WorkersUnavailable):
        pool.run(Echo(value=1), max_seconds=5.0)


PARENT = """
import socket, sys, threading
from planner.running.job import SearchJob
from planner.running.pool import Pool
from tests.running_jobs import long_request

listening = socket.create_server(("127.0.0.1", 0))
pool = Pool(2)
def tell(step, figures):
    if step == "incumbents":
        print(listening.getsockname()[1], flush=True)
threading.Thread(target=lambda: pool.run(SearchJob(request=long_request()), max_seconds=60.0)).start()
pool.run(SearchJob(request=long_request()), max_seconds=60.0, progress=tell)
"""


def test_a_killed_parent_leaves_no_process_and_no_socket(tmp_path: Path) -> None:
    """Started as a script, without a guard around its main part: workers must not run it again."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        workers = children(parent.pid)
        assert len(workers) == 2
        for worker in workers:
            inherited = [os.readlink(path) for path in Path(f"/proc/{worker}/fd").iterdir()]
            assert sum(target.startswith("socket:") for target in inherited) == 1
        parent.kill()
        parent.wait()
        assert eventually(lambda: not any(map(alive, workers)), 3.0)
    socket.create_server(("127.0.0.1", port)).close()
