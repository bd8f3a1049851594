"""A trial from its start to its end, with programs that end in every way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from planner.profiling import watching
from planner.profiling.command_runner import CommandRunner
from planner.profiling.measured import Measured
from planner.profiling.runner import CantStart, RunnerAway, State, TrialJob
from planner.profiling.template import Template
from planner.profiling.watching import Tail, watch
from tests.profiling.jobs import trial

_STEP = 'print(\'{"step": %d, "step_time_s": %s}\', flush=True)'


def run(folder: Path, *lines: str, best: float = float("inf"), stop: str | None = None, **more: object) -> Measured:
    """What comes of a program of these lines."""
    runner = CommandRunner(Template(argv=(sys.executable, "-c", "\n".join(("import sys, time", *lines)))))
    one = trial(folder, **more)
    handle = runner.start(one)
    found = watch(
        runner,
        one,
        handle,
        hopeless=lambda steps: bool(steps) and min(steps) > best,
        stopped=lambda: stop if "step" in one.log.read_text() else None,
    )
    assert runner.state(handle, one) in ("done", "gone")
    return found


def steps(*seconds: float) -> Sequence[str]:
    return [_STEP % (number, second) for number, second in enumerate(seconds)]


def test_one_that_ends(tmp_path: Path) -> None:
    found = run(tmp_path, *steps(9.0, 0.5, 0.7))
    assert (found.status, found.step_times_s, found.reason) == ("ok", (0.5, 0.7), "")


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        (["sys.exit(7)"], "failed", "exit code 7"),
        (["import os; os.kill(os.getpid(), 11)"], "failed", "exit code 139"),
        ([], "failed", "it ended without a step after its warm-up, or told none"),
        (["print('torch.OutOfMemoryError: CUDA out of memory'); sys.exit(1)"], "out_of_memory", "CUDA out of memory"),
        (['print(\'{"failed": "crash", "detail": "rank 3 is gone"}\')', "sys.exit(1)"], "failed", "rank 3 is gone"),
    ],
)
def test_one_that_fails_says_why(lines: Sequence[str], status: str, reason: str, tmp_path: Path) -> None:
    found = run(tmp_path, *lines)
    assert found.status == status
    assert reason in found.reason


def test_one_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(CantStart, match="no-such-program: no such program is on this machine"):
        CommandRunner(Template(argv=("no-such-program",))).start(trial(tmp_path))
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    script.chmod(0o755)
    runner, one = CommandRunner(Template(argv=(str(script),))), trial(tmp_path)
    found = watch(runner, one, runner.start(one), hopeless=lambda _: False)
    assert (found.status, found.reason) == ("failed", "exit code 127")
    assert f"{script}: No such file or directory" in found.log_tail


def test_one_that_hangs_before_and_after_its_first_step(tmp_path: Path) -> None:
    found = run(tmp_path / "before", "time.sleep(3600)", timeout_s=0.1)
    assert (found.status, found.reason) == ("failed", "no step in 0.4 s: it hangs")
    found = run(tmp_path / "after", *steps(1.0), "time.sleep(3600)", timeout_s=5.0)
    assert found.status == "failed"
    assert "it hangs" in found.reason


def test_one_that_cannot_win_and_one_that_is_not_wanted(tmp_path: Path) -> None:
    found = run(tmp_path / "slow", *steps(9.0, 2.0), "time.sleep(3600)", best=1.0)
    assert (found.status, found.step_times_s, found.reason) == ("stopped", (2.0,), "it can't win after 1 steps")
    found = run(tmp_path / "unwanted", *steps(9.0), "time.sleep(3600)", stop="its study is over")
    assert (found.status, found.reason) == ("stopped", "its study is over")
    # With its last step it is as good as over, and its peak comes after that.
    found = run(tmp_path / "last", *steps(9.0, 2.0), "time.sleep(0.5)", best=1.0, steps=1)
    assert (found.status, found.step_times_s) == ("ok", (2.0,))


class _Away:
    """A runner that nobody can ask for a while."""

    name, at_once, outlives_worker = "away", 1, True

    def __init__(self, times: int, one: TrialJob) -> None:
        self.times, self.one, self.stopped = times, one, 0

    def state(self, handle: str, trial: TrialJob) -> State:
        self.times -= 1
        if self.times >= 0:
            raise RunnerAway("squeue: no answer")
        self.one.exit_code.write_text("0")
        self.one.metrics.write_text('{"step": 0, "step_time_s": 1}\n{"step": 1, "step_time_s": 0.5}')
        return "done"

    def stop(self, handle: str, trial: TrialJob) -> None:
        self.stopped += 1


def test_a_runner_that_is_away_is_waited_for_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial(tmp_path)
    one.folder.mkdir()
    away = _Away(3, one)
    found = watch(away, one, "1", hopeless=lambda _: False)  # type: ignore[arg-type]
    assert (found.status, found.step_times_s) == ("ok", (0.5,))
    monkeypatch.setattr(watching, "_PATIENCE_S", 0.0)
    away = _Away(1000, one)
    with pytest.raises(RunnerAway):
        watch(away, one, "1", hopeless=lambda _: False)  # type: ignore[arg-type]
    assert away.stopped == 0


def test_a_tail_gives_every_line_once_and_half_of_one_when_nothing_comes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        assert tail.lines() == ["one"]
        file.write(b"o\r\n\xff\n 10%\r 20%\rthree")
        assert tail.lines() == ["two", "\ufffd", " 10%", " 20%"]
        file.write(b"x" * (3 << 20))
        assert tail.lines() == []
    (rest,) = tail.last()
    assert len(rest) == 1 << 16
    assert tail.last() == []
