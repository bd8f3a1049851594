"""How sure a prediction is: by the parameters that the plan leans on."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.calibration.calibration import Provenance
from costmodel.scenario import Scenario


def interval_of(step_time_s: float, error: float) -> tuple[float, float]:
    """The interval of a step time whose relative error is ``error``: as far below as above, as a factor."""
    return step_time_s / (1.0 + error), step_time_s * (1.0 + error)


def certainty_of(scenario: Scenario, row: Mapping[str, int]) -> tuple[Provenance, float]:
    """How sure a plan's step time is, and its relative error: the parameters that decide it depend on what it uses."""
    uses = {
        "tp_exposed_share": row["tp"] > 1,
        "ep_exposed_share": row["ep"] > 1,
        "fsdp_overlap_share": row["zero_stage"] >= 2,
        "host_overlap_share": row.get("offload", 0) > 0,
        "host_memory_bandwidth": row.get("offload", 0) > 0,
    }
    resolved = scenario.resolved
    provenance = resolved.certainty(name for name, used in uses.items() if used)
    error = float(resolved.parameters.time_relative_error)
    return provenance, max(error, resolved.general_time_error) if provenance == "analytic" else error
