"""What the server says of studies: plans that are tried on real machines."""

from __future__ import annotations

from datetime import datetime

from planner.client.answers import PlanFields, Told

OVER = frozenset({"done", "stopped", "failed"})


class Trial(Told):
    """A plan that is run, or was, predicted beside measured. Seconds per step, and bytes of the fullest device.

    ``outcome`` is ``ok``, ``stopped``, ``out_of_memory`` or ``failed``; None while it runs.
    """

    number: int
    state: str
    outcome: str | None
    reason: str
    origin: str
    plan_id: str
    plan: PlanFields
    worker: str | None = None
    predicted_step_time_s: float
    predicted_step_time_interval_s: tuple[float, float]
    predicted_peak_bytes: int
    measurement_id: str | None
    step_time_s: float | None
    measured_over_predicted: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    created_at: datetime
    ended_at: datetime | None


class ListedStudy(Told):
    """A study without its trials."""

    id: str
    name: str
    scenario_id: str
    state: str
    ended_because: str
    runner: str
    most_trials: int
    deadline: datetime | None
    steps: int | None
    warm_up: int | None
    seed: int | None
    created_at: datetime
    ended_at: datetime | None

    @property
    def is_over(self) -> bool:
        """Whether nothing new is begun any more; what was begun may still run."""
        return self.state in OVER


class FollowedStudy(ListedStudy):
    """A study as its events tell it; ``best`` is the number of the fastest trial that ran to its end."""

    candidates: int
    best: int | None


class Study(FollowedStudy):
    """A study with its trials."""

    trials: tuple[Trial, ...]


class StudyEvent(Told):
    """Something that changed: a ``trial``, or the ``study``; the last one is ``done``, ``stopped`` or ``failed``."""

    kind: str
    trial: Trial | None = None
    study: FollowedStudy | None = None
