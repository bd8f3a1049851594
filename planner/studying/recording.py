"""What is stored of a trial."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from costmodel.spec.plan import Plan
from db import records
from planner.profiling.measured import Measured

_ROOM = b"\0" * 65_536


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The plan that a trial ran."""

    plan_id: str
    plan: Plan

    def tokens_per_s_per_device(self, step_time_s: float | None) -> float | None:
        if not step_time_s:
            return None
        return self.plan.global_batch_size * self.plan.seq_len / (step_time_s * self.plan.devices_used)


def measurement_of(
    study: records.Study, trial: records.Trial, ran: Ran, measured: Measured, now: datetime
) -> records.Measurement | None:
    """What is kept of a trial; one that was stopped before it had measured anything leaves nothing."""
    status = measured.status
    if status == "stopped":
        if measured.step_time_s is None:
            return None
        status = "ok"
    step_time_s = measured.step_time_s if status == "ok" else None
    return records.Measurement(
        id=uuid4().hex,
        plan_id=ran.plan_id,
        study_id=study.id,
        trial_number=trial.number,
        status=status,
        step_time_s=step_time_s,
        tokens_per_s_per_device=ran.tokens_per_s_per_device(step_time_s),
        peak_allocated_bytes=measured.peak_allocated_bytes,
        peak_reserved_bytes=measured.peak_reserved_bytes,
        steps=len(measured.step_times_s) or None,
        job_id=trial.handle,
        environment=dict(measured.environment),
        note=measured.reason,
        log_tail=measured.log_tail,
        created_by=study.created_by,
        measured_at=now,
        created_at=now,
    )


def check_room(folder: Path) -> None:
    """Accept a folder that can still be written: what failed didn't fail because of that.

    Raises:
        OSError: it can't.
    """
    path = folder / "room"
    try:
        path.write_bytes(_ROOM)
    finally:
        path.unlink(missing_ok=True)
