"""What is asked of the search."""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.errors import InvalidInput
from costmodel.scenario import Scenario
from costmodel.spec.workload import Objective
from planner.search.constraints import Constraints


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A scenario and how to search it.

    Attributes:
        min_used: share of the devices that a plan must use, in (0, 1].
        top: how many different plans to return.
        max_seconds: deadline; what was found by then is returned.
        price_per_device_hour: needed by the cost objective; None takes the cluster's own.
    """

    scenario: Scenario
    constraints: Constraints = field(default_factory=Constraints)
    objective: Objective = "step_time"
    min_used: float = 0.9
    top: int = 10
    max_seconds: float = 60.0
    seed: int = 0
    price_per_device_hour: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.min_used <= 1.0:
            raise InvalidInput("min-used", self.min_used, "it is a share of the devices, above 0 and at most 1")
        if self.top < 1 or self.top > 1000:
            raise InvalidInput("top", self.top, "ask for 1 to 1000 plans")
        if not self.max_seconds > 0:
            raise InvalidInput("max-seconds", self.max_seconds, "it must be above 0")
        if self.seed < 0 or self.seed > 2**31 - 1:
            raise InvalidInput("seed", self.seed, "it must lie in 0..2147483647")
        if self.objective == "cost" and self.price is None:
            raise InvalidInput(
                "price-per-device-hour",
                None,
                f"the catalog has no price for {self.scenario.cluster.name}; the cost objective needs one",
            )
        if self.price_per_device_hour is not None and not self.price_per_device_hour > 0:
            raise InvalidInput("price-per-device-hour", self.price_per_device_hour, "it must be above 0")

    @property
    def price(self) -> float | None:
        """Price of one device for one hour."""
        if self.price_per_device_hour is not None:
            return self.price_per_device_hour
        return self.scenario.cluster.price_per_device_hour

    @property
    def least_devices(self) -> int:
        """Fewest devices that a plan may use."""
        if self.objective == "fewest_devices":
            return 1
        return max(1, -int(-self.min_used * self.scenario.devices // 1))
