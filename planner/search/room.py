"""What of a device's memory a plan may take, and from where on that is at risk: the one rule that answers follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodel.scenario import Scenario

Verdict = Literal["fits", "at_risk", "too_big", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Room:
    """What one device has for a plan, in bytes that are allocated.

    Attributes:
        usable_bytes: up to which runs neither failed nor thrashed.
        at_risk_above_bytes: above this, the plan may not fit although its prediction does: the upper end of the
            prediction's interval lies beyond the usable bytes, or what the process would hold (the allocator's pool,
            and what lies outside of it) beyond the device's.
    """

    usable_bytes: int
    at_risk_above_bytes: int

    @classmethod
    def of(cls, scenario: Scenario, memory_error: float) -> Room:
        """The room for plans whose predicted memory has that relative error."""
        parameters, capacity = scenario.resolved.parameters, scenario.cluster.accelerator.memory_bytes
        holding_all = parameters.allocated_of(float(capacity))
        safe = min(scenario.usable_bytes / (1.0 + memory_error), holding_all)
        return cls(usable_bytes=scenario.usable_bytes, at_risk_above_bytes=max(int(safe), 0))

    def verdict_of(self, least: float, most: float) -> Verdict:
        """The verdict on a need that lies between two bounds, equal ones for a priced plan."""
        if least > self.usable_bytes:
            return "too_big"
        if most > self.usable_bytes:
            return "unknown"
        return "at_risk" if most > self.at_risk_above_bytes else "fits"
