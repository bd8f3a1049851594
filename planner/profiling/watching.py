"""Watches one trial from its start to its end, and says what was measured."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from planner.profiling.dialects import hear
from planner.profiling.measured import Gathered, Measured
from planner.profiling.runner import Runner, RunnerAway, State, TrialJob

_LOOK_S = 0.1
_SLOWEST_LOOK_S = 2.0
_FIRST_STEP_FACTOR = 4.0
"""Before the first step come imports, allocation, compilation: it may take so many times as long as a step."""
ABANDONED = "its worker gave no sign for so long that its guard ended it"
_PATIENCE_S = 300.0
_AT_ONCE = 1 << 20
_LONGEST_REST = 1 << 16
_LINE_END = re.compile(rb"[\r\n]")


class Tail:
    """The lines that a file has got since it was looked at last. Half a line waits for its other half."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def lines(self) -> list[str]:
        """New whole lines."""
        found: list[str] = []
        while True:
            try:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    block = file.read(_AT_ONCE)
            except OSError:
                return found
            if not block:
                return found
            self._offset += len(block)
            # Progress bars end their lines by going back to the beginning.
            *whole, rest = _LINE_END.split(self._rest + block)
            self._rest = rest[-_LONGEST_REST:]
            found += [line.decode("utf-8", "replace") for line in whole if line]

    def last(self) -> list[str]:
        """What is left when nothing comes any more."""
        found = self.lines()
        if self._rest:
            found.append(self._rest.decode("utf-8", "replace"))
            self._rest = b""
        return found


def watch(
    runner: Runner,
    trial: TrialJob,
    handle: str,
    *,
    hopeless: Callable[[tuple[float, ...]], bool],
    told: Callable[[tuple[float, ...]], None] = lambda _: None,
    stopped: Callable[[], str | None] = lambda: None,
) -> Measured:
    """Wait for the end of a trial.

    Args:
        hopeless: whether steps of these seconds say that it can't win; it is ended then.
        told: is told the seconds of the steps whenever there are more.
        stopped: why it is not wanted any more; None while it is.

    Raises:
        RunnerAway: nobody could say for minutes how it stands.
    """
    plan = trial.job.plan
    gathered = Gathered(
        warm_up=trial.warm_up,
        tokens_per_step=plan.global_batch_size * plan.seq_len,
        devices=plan.devices_used,
        sequences_per_step=plan.global_batch_size,
    )
    tails = [Tail(trial.metrics), Tail(trial.log)]
    seen, last_step, pause = 0, time.monotonic(), _LOOK_S
    state: State = "running"
    heard_of = time.monotonic()
    while True:
        try:
            state, heard_of = runner.state(handle, trial), time.monotonic()
        except RunnerAway:
            if time.monotonic() - heard_of > _PATIENCE_S:
                raise
            # It may wait in a queue: whether it hangs is nothing that can be said.
            last_step = time.monotonic()
        for tail in tails:
            for line in tail.lines():
                hear(line, gathered)
        if state == "waiting":
            last_step = time.monotonic()
        if len(gathered.steps) > seen:
            seen, last_step, pause = len(gathered.steps), time.monotonic(), _LOOK_S
            told(gathered.step_times_s)
        if state in ("done", "gone", "abandoned"):
            break
        why = stopped()
        if why is not None:
            runner.stop(handle, trial)
            return gathered.measured("stopped", why)
        # One that has run all its steps ends by itself, and says more then.
        if len(gathered.step_times_s) < trial.steps and hopeless(gathered.step_times_s):
            runner.stop(handle, trial)
            return gathered.measured("stopped", f"it can't win after {len(gathered.step_times_s)} steps")
        allowed = trial.timeout_s * (1.0 if seen else _FIRST_STEP_FACTOR)
        if time.monotonic() - last_step > allowed:
            runner.stop(handle, trial)
            return gathered.measured("failed", f"no step in {allowed:g} s: it hangs")
        time.sleep(pause)
        pause = min(pause * 1.2, _SLOWEST_LOOK_S)
    for tail in tails:
        for line in tail.last():
            hear(line, gathered)
    runner.stop(handle, trial)
    return gathered.measured("stopped", ABANDONED) if state == "abandoned" else _ended(trial, gathered)


def _ended(trial: TrialJob, gathered: Gathered) -> Measured:
    """What a trial measured that has ended by itself, or is gone."""
    try:
        code = int(trial.exit_code.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return gathered.measured("failed", "it is gone without an exit code: killed, or its node is lost")
    if code != 0 and not gathered.finished:
        return gathered.measured("failed", f"exit code {code}")
    if not gathered.step_times_s:
        return gathered.measured("failed", "it ended without a step after its warm-up, or told none")
    return gathered.measured("ok")
