"""How sure a prediction is: by the parameters that the plan leans on, and by what runs were like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.calibration.basis import Basis
from costmodel.calibration.calibration import Provenance
from costmodel.calibration.ranges import DEGREES, Beyond, beyond_ranges, farthest
from costmodel.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """How sure the predictions of one plan are.

    Attributes:
        time_error, memory_error: half widths of the 90 % intervals, relative; wider outside of the calibrated range.
        beyond: in what the case lies outside of what the runs were like that the calibration was fitted to.
    """

    provenance: Provenance
    time_error: float
    memory_error: float
    beyond: tuple[Beyond, ...]


def interval_of(value: float, error: float) -> tuple[float, float]:
    """The interval of a prediction whose relative error is ``error``: as far below as above, as a factor."""
    return value / (1.0 + error), value * (1.0 + error)


def certainty_of(scenario: Scenario, row: Mapping[str, int]) -> Certainty:
    """How sure a plan's step time and memory are: the parameters that decide them depend on what it uses."""
    uses = {
        "tp_exposed_share": row["tp"] > 1,
        "ep_exposed_share": row["ep"] > 1,
        "fsdp_overlap_share": row["zero_stage"] >= 2,
        "host_overlap_share": row.get("offload", 0) > 0,
        "host_memory_bandwidth": row.get("offload", 0) > 0,
    }
    resolved = scenario.resolved
    provenance = resolved.certainty(name for name, used in uses.items() if used)
    time = float(resolved.parameters.time_relative_error)
    if provenance == "analytic":
        time = max(time, resolved.general_time_error)
    beyond = beyond_of(scenario, row)
    return Certainty(
        provenance=provenance,
        time_error=_widened(time, scenario, beyond),
        memory_error=memory_error_of(scenario, beyond),
        beyond=beyond,
    )


def memory_error_of(scenario: Scenario, beyond: Sequence[Beyond]) -> float:
    """The relative error of memory: what a device reaches in time says nothing of it, so it has no other kinds."""
    return _widened(float(scenario.resolved.parameters.memory_relative_error), scenario, beyond)


def _widened(error: float, scenario: Scenario, beyond: Sequence[Beyond]) -> float:
    per_doubling = float(scenario.resolved.parameters.beyond_range_error)
    return float((1.0 + error) * (1.0 + per_doubling) ** farthest(beyond) - 1.0)


def beyond_of(scenario: Scenario, row: Mapping[str, int] | None = None) -> tuple[Beyond, ...]:
    """In what a scenario, and a plan where one is given, lie outside of the runs that the calibration was fitted to."""
    return beyond_ranges(
        scenario.calibration.ranges,
        family=scenario.cluster.accelerator.family,
        framework=scenario.framework.engine or scenario.framework.name,
        precision=scenario.workload.precision.name,
        values=range_values(scenario, row),
    )


def range_values(scenario: Scenario, row: Mapping[str, int] | None = None) -> dict[str, int]:
    """What of a scenario, and of a plan where one is given, calibrated ranges are about."""
    return {
        "devices": scenario.devices,
        "parameters": scenario.model.params.total,
        "seq_len": scenario.workload.seq_len,
        **({axis: row[axis] for axis in DEGREES} if row is not None else {}),
    }


@dataclass(frozen=True, kw_only=True)
class CalibratedOn:
    """What the decisive parameters of a scenario rest on.

    Attributes:
        own_runs: whether runs on this very accelerator went into the calibration; None where it doesn't tell.
        bases: those of the case that holds, none of them general where there is something better.
        text: the same for people.
    """

    own_runs: bool | None
    bases: tuple[Basis, ...]
    text: str


def calibrated_on(scenario: Scenario) -> CalibratedOn:
    """What a scenario's predictions rest on."""
    accelerator, bases = scenario.cluster.accelerator.name, scenario.resolved.bases
    seen = {name for entry in scenario.calibration.ranges for name in entry.ran_on}
    own = accelerator in seen if seen else None
    told = [basis.text for basis in bases]
    if own is not None:
        told.append(f"runs on {accelerator} are among those fitted to" if own else f"no run on {accelerator}")
    return CalibratedOn(own_runs=own, bases=bases, text="; ".join(told))


def falls_back(scenario: Scenario) -> bool:
    """Whether a decisive parameter rests on less than runs of this accelerator's family in this precision."""
    resolved = scenario.resolved
    return bool(resolved.fallbacks or resolved.borrowed) or calibrated_on(scenario).own_runs is False
