"""What was measured in a trial, and how it is gathered from lines as they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

Status = Literal["ok", "stopped", "out_of_memory", "failed"]

LONGEST_TAIL = 8_000
"""Characters of a log's end that are kept."""
_LONGEST_REASON = 500
# What is beyond was misread, and no database would hold it.
_LONGEST_STEP_S = 1e7
_LARGEST_BYTES = 2.0**62


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How a trial went.

    Attributes:
        status: it ran to its end, was stopped since it could not win, was out of memory, or failed otherwise.
        step_times_s: of the steps after the warm-up, in their order.
        peak_allocated_bytes, peak_reserved_bytes: the largest of all devices; None where nobody said.
        environment: versions and settings that the program told.
        reason: why it ended before its end; empty where it did not.
        log_tail: the end of what it wrote.
    """

    status: Status
    step_times_s: tuple[float, ...] = ()
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    environment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reason: str = ""
    log_tail: str = ""

    @property
    def step_time_s(self) -> float | None:
        """The median step, which one slow step doesn't move; None before there is any."""
        return median(self.step_times_s) if self.step_times_s else None


class Gathered:
    """What a running program has told so far; lines are told one by one, in any dialect that ``dialects`` knows.

    Args:
        warm_up: steps, from the first on, that don't count.
        tokens_per_step: of the whole batch, for dialects that tell tokens per second only.
        devices: for those that tell them per device.
        sequences_per_step: for those that tell sequences per second.
    """

    def __init__(self, *, warm_up: int, tokens_per_step: int, devices: int, sequences_per_step: int) -> None:
        self.warm_up, self.tokens_per_step = warm_up, tokens_per_step
        self.devices, self.sequences_per_step = devices, sequences_per_step
        self.steps: dict[int, float] = {}
        self.peaks: dict[str, int] = {}
        self.environment: dict[str, Any] = {}
        self.failure: tuple[Status, str] | None = None
        self.finished = False
        self._tail = ""

    @property
    def step_times_s(self) -> tuple[float, ...]:
        """Of the steps that count."""
        ordered = [self.steps[step] for step in sorted(self.steps)]
        return tuple(ordered[self.warm_up :])

    def add_step(self, step: int, seconds: float) -> None:
        """A finished step."""
        if 0.0 < seconds < _LONGEST_STEP_S:
            self.steps[step] = seconds

    def add_peak(self, kind: str, amount: float) -> None:
        """A peak of one device, in bytes; the largest counts."""
        if 0.0 < amount < _LARGEST_BYTES:
            self.peaks[kind] = max(self.peaks.get(kind, 0), round(amount))

    def fail(self, status: Status, reason: str) -> None:
        """Why it ends; the first reason counts, since what breaks afterwards breaks because of it."""
        if self.failure is None:
            self.failure = (status, reason.strip()[-_LONGEST_REASON:])

    def keep(self, line: str) -> None:
        """Remember a line of the log."""
        self._tail = (self._tail + line + "\n")[-LONGEST_TAIL:]

    def measured(self, status: Status, reason: str = "") -> Measured:
        """How the trial went, as far as the program itself doesn't say that it failed."""
        if self.failure is not None and status != "stopped":
            status, reason = self.failure
        return Measured(
            status=status,
            step_times_s=self.step_times_s,
            peak_allocated_bytes=self.peaks.get("allocated"),
            peak_reserved_bytes=self.peaks.get("reserved"),
            environment=_storable(self.environment),
            reason=_storable(reason),
            log_tail=_storable(self._tail),
        )


def _storable(value: Any) -> Any:
    """What a program wrote, without what a database holds in no text: NUL characters, lone surrogates."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_storable(name): _storable(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_storable(entry) for entry in value]
    return value
