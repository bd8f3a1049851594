"""What this store's own jobs measured, beside what was predicted of their plans: the newest ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from api.dashboard.charts.chart import HALF, Axis, Chart, Diagonal, Series
from api.dashboard.words import fine, gib
from db.records import Measurement, Plan
from db.repositories import Repositories
from planner.profiling.probe.facts import CPU_BACKEND, CPU_FAMILY
from planner.stored.compared import step_time_of

LOOKED_AT = 100
"""The newest so many are looked at: each brings its plan with it."""
_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """A measurement as it is listed. Texts; empty where nothing is known."""

    plan_id: str
    status: str
    predicted: str
    interval: str
    measured: str
    ratio: str
    peak: str
    measured_at: datetime


@dataclass(frozen=True, kw_only=True)
class Own:
    """The newest measurements.

    Attributes:
        more: whether there are older ones.
        on_cpus: how many ran on CPUs in an accelerator's place, which says nothing of it: they are no part of the rest.
        timed: how many of the others have a time; ``ratio`` and ``inside`` are over these, and empty without any.
    """

    looked_at: int
    more: bool
    on_cpus: int
    timed: int
    ratio: str
    inside: str
    rows: list[OwnRow]
    chart: Chart | None


@dataclass(frozen=True, kw_only=True)
class _Timed:
    measurement: Measurement
    plan: Plan
    step_time_s: float

    @property
    def predicted_s(self) -> float:
        return float(self.plan.prediction["step_time_s"])

    @property
    def interval(self) -> tuple[float, float]:
        low, high = self.plan.prediction["step_time_interval_s"]
        return float(low), float(high)

    @property
    def is_inside(self) -> bool:
        return self.interval[0] <= self.step_time_s <= self.interval[1]


def own_of(repos: Repositories) -> Own:
    """The newest measurements with their plans."""
    found = repos.measurements.list(limit=LOOKED_AT)
    items: list[Measurement] = list(found.items)
    plans = {plan.id: plan for plan in repos.plans.get_many(list({item.plan_id for item in items}))}
    on_cpus = _on_cpus(repos, items, plans)
    timed = [
        _Timed(measurement=item, plan=plans[item.plan_id], step_time_s=step)
        for item in items
        if item.id not in on_cpus and (step := step_time_of(item, plans[item.plan_id].prediction)) is not None
    ]
    inside = sum(one.is_inside for one in timed)
    return Own(
        looked_at=len(items),
        more=found.next is not None,
        on_cpus=len(on_cpus),
        timed=len(timed),
        ratio=f"{median(one.step_time_s / one.predicted_s for one in timed):.3f}" if timed else "",
        inside=f"{inside} of {len(timed)}" if timed else "",
        rows=[_row(item, plans[item.plan_id], on_cpus=item.id in on_cpus) for item in items[:_LISTED]],
        chart=_chart(timed) if timed else None,
    )


def _on_cpus(repos: Repositories, items: list[Measurement], plans: Mapping[str, Plan]) -> set[str]:
    """Ids of those that the probe ran on CPUs though their cluster has accelerators."""
    found = [item for item in items if item.environment.get("backend") == CPU_BACKEND]
    scenarios = repos.scenarios.get_many({plans[item.plan_id].scenario_id for item in found})

    def family(item: Measurement) -> str:
        spec = scenarios[plans[item.plan_id].scenario_id].cluster.spec
        return str(spec["accelerator"]["family"])

    return {item.id for item in found if family(item) != CPU_FAMILY}


def _row(item: Measurement, plan: Plan, *, on_cpus: bool) -> OwnRow:
    step = step_time_of(item, plan.prediction)
    predicted = float(plan.prediction["step_time_s"])
    low, high = plan.prediction["step_time_interval_s"]
    return OwnRow(
        plan_id=item.plan_id,
        status=item.status.replace("_", " ") + (", on CPUs" if on_cpus else ""),
        predicted=fine(predicted),
        interval=f"{fine(low)}–{fine(high)}",
        measured="" if step is None else fine(step),
        ratio="" if step is None else f"{step / predicted:.3f}",
        peak=gib(item.peak_allocated_bytes),
        measured_at=item.measured_at,
    )


def _chart(timed: list[_Timed]) -> Chart:
    parts = (("inside the interval", 0, True), ("outside", 3, False))
    return Chart(
        id="own",
        title="This store's measurements, predicted against measured",
        told=f"Predicted over measured step times of {len(timed)} measurements on log axes, each with its interval.",
        x=Axis(title="measured step time", unit="s", log=True),
        y=Axis(title="predicted step time", unit="s", log=True),
        series=tuple(
            _series(name, hue, chosen)
            for name, hue, inside in parts
            if (chosen := [one for one in timed if one.is_inside == inside])
        ),
        diagonal=Diagonal(name="predicted as measured"),
        width=HALF,
        height=380,
    )


def _series(name: str, hue: int, timed: list[_Timed]) -> Series:
    return Series(
        name=name,
        x=tuple(one.step_time_s for one in timed),
        y=tuple(one.predicted_s for one in timed),
        said=tuple(f"{fine(one.step_time_s)} s measured, {fine(one.predicted_s)} s predicted" for one in timed),
        links=tuple(f"/plans/{one.plan.id}" for one in timed),
        low=tuple(one.interval[0] for one in timed),
        high=tuple(one.interval[1] for one in timed),
        hue=hue,
    )
