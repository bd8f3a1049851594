"""The table of a study's trials: the axes in which their plans differ are its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.words import fine, gib
from api.schemas.answers import Study
from api.schemas.answers.studies import Trial
from costmodel.stages import shortened
from planner.wording import sharding

Json = dict[str, Any]

# The usual axes in this order; what else differs is told beside them.
_AXES = {
    **{name: name for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")},
    "micro_batch_size": "mbs",
    "zero_stage": "ZeRO",
    "layers_per_stage": "layers",
    "schedule": "schedule",
    "recompute": "recompute",
}
# What follows from the others, or is shown with them.
_FOLLOWS = frozenset({"num_microbatches", "dp_shard", "dp_replicate", "layers_per_chunk", "devices_used"})
_OUTCOMES = {
    None: ("running", "running"),
    "ok": ("done", "ok"),
    "stopped": ("stopped", "stopped early"),
    "out_of_memory": ("failed", "out of memory"),
    "failed": ("failed", "failed"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A trial as it is shown. Texts; empty where nothing is known.

    Attributes:
        axes: one for each of ``axes_of``.
        options: what else is not as in most of the other plans.
        state, outcome: how it is coloured, and in words.
    """

    number: int
    plan_id: str
    origin: str
    axes: tuple[str, ...]
    options: str
    predicted: str
    interval: str
    measured: str
    ratio: str
    peak_predicted: str
    peak_measured: str
    state: str
    outcome: str
    reason: str
    best: bool


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A reason why trials came to nothing, or were stopped, and which: ``3, 5 and 8``."""

    outcome: str
    reason: str
    trials: str


def axes_of(study: Study) -> list[tuple[str, str]]:
    """Axes in which the plans of the trials differ, with the name of their column."""
    plans = [_fields(trial) for trial in study.trials]
    return [(name, short) for name, short in _AXES.items() if len({_text(plan, name) for plan in plans}) > 1]


def rows_of(study: Study) -> list[Row]:
    """A row for each trial, in their order."""
    names, options = [name for name, _ in axes_of(study)], _options(study)
    return [
        _row(trial, names, told, best=trial.number == study.best)
        for trial, told in zip(study.trials, options, strict=True)
    ]


def failures_of(study: Study) -> list[Failure]:
    """Each reason once, the most frequent first."""
    found: dict[tuple[str, str], list[int]] = {}
    for trial in study.trials:
        if trial.outcome not in (None, "ok"):
            found.setdefault((_OUTCOMES[trial.outcome][1], trial.reason), []).append(trial.number)
    ordered = sorted(found.items(), key=lambda one: -len(one[1]))
    return [Failure(outcome=what, reason=why, trials=_listed(numbers)) for (what, why), numbers in ordered]


def _options(study: Study) -> list[str]:
    """Of each trial, the fields that are no axes of the table and differ from those of most trials."""
    plans = [_fields(trial) for trial in study.trials]
    names = sorted({name for plan in plans for name in plan} - set(_AXES) - _FOLLOWS)
    usual = {name: Counter(_text(plan, name) for plan in plans).most_common(1)[0][0] for name in names}
    return [
        ", ".join(
            f"{name.replace('_', ' ')}: {_text(plan, name) or 'none'}"
            for name in names
            if _text(plan, name) != usual[name]
        )
        for plan in plans
    ]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _row(trial: Trial, names: list[str], options: str, *, best: bool) -> Row:
    low, high = trial.predicted_step_time_interval_s
    state, outcome = _OUTCOMES[trial.outcome]
    plan = _fields(trial)
    return Row(
        number=trial.number,
        plan_id=trial.plan_id,
        origin=trial.origin,
        axes=tuple(_text(plan, name) for name in names),
        options=options,
        predicted=fine(trial.predicted_step_time_s),
        interval=f"{fine(low)}–{fine(high)}",
        measured="" if trial.step_time_s is None else fine(trial.step_time_s),
        ratio="" if trial.measured_over_predicted is None else f"{trial.measured_over_predicted:.3f}",
        peak_predicted=gib(trial.predicted_peak_bytes),
        peak_measured=gib(trial.peak_allocated_bytes),
        state=state,
        outcome=outcome,
        reason=trial.reason,
        best=best,
    )


def _fields(trial: Trial) -> Json:
    return trial.plan.model_dump()


def _text(plan: Json, name: str) -> str:
    if name == "zero_stage":
        return sharding(plan)
    value = plan.get(name)
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        if not any(value):
            return ""
        flat = all(isinstance(part, int) for part in value)
        return shortened(value) if flat else ", ".join(str(part) for part in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
