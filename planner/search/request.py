"""What is asked of the search."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, inf
from typing import Literal

from costmodel.errors import InvalidInput, Missing
from costmodel.scenario import Scenario
from planner.question import Question
from planner.search.constraints import Constraints

ObjectiveKind = Literal["step_time", "cost", "fewest_devices"]

# Below it costs are no numbers any more that could be compared.
_LEAST_PRICE = 1e-6


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A scenario and how to search it.

    Attributes:
        min_used: share of the devices that a plan must use, in (0, 1].
        min_devices: fewest devices that a plan may use, in place of that share; None to go by the share.
        max_step_time_s: what a step may take at most; None for any time. With a batch tolerance it is the time of a
            step of the batch asked for, so that a larger batch may take longer by as much as it is larger.
        batch_tolerance: share by which a plan's global batch may differ from the workload's, in [0, 1).
        top: how many different plans to return.
        max_seconds: deadline; what was found by then is returned.
        price_per_device_hour: needed by the cost objective; None takes the cluster's own.
        explain: whether the answer is to hold the primer's decision procedure too.
        also: (option, code) pairs that are tried beside the usual ones.
        pareto: whether the answer is to hold the plans that no other beats in time, devices and free memory at once.
        shortlist: probability with which the fastest plan is to be among few plans for trials; None for no such list.
    """

    scenario: Scenario
    constraints: Constraints = field(default_factory=Constraints)
    objective: ObjectiveKind = "step_time"
    min_used: float = Question.min_used
    top: int = Question.top
    max_seconds: float = Question.max_seconds
    seed: int = Question.seed
    price_per_device_hour: float | None = None
    explain: bool = False
    also: tuple[tuple[str, int], ...] = ()
    min_devices: int | None = None
    max_step_time_s: float | None = None
    batch_tolerance: float = Question.batch_tolerance
    pareto: bool = False
    shortlist: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.min_used <= 1.0:
            raise InvalidInput("min-used", self.min_used, "it is a share of the devices, above 0 and at most 1")
        if self.min_devices is not None and not 1 <= self.min_devices <= self.scenario.devices:
            expected = f"the fewest devices lie in 1..{self.scenario.devices}, the most"
            raise InvalidInput("devices", f"{self.min_devices}..{self.scenario.devices}", expected)
        if self.max_step_time_s is not None and not 0.0 < self.max_step_time_s < inf:
            raise InvalidInput("max-step-time", self.max_step_time_s, "it is a number of seconds above 0")
        if not 0.0 <= self.batch_tolerance < 1.0:
            expected = "it is a share of the global batch, at least 0 and below 1"
            raise InvalidInput("batch-tolerance", self.batch_tolerance, expected)
        if self.batch_tolerance and self.pareto:
            raise InvalidInput("pareto", True, "a front compares plans of one batch; leave out --batch-tolerance")
        if self.shortlist is not None and not 0.0 < self.shortlist < 1.0:
            raise InvalidInput("shortlist", self.shortlist, "it is a probability between 0 and 1, as 0.9")
        if self.top < 1 or self.top > 1000:
            raise InvalidInput("top", self.top, "ask for 1 to 1000 plans")
        if not self.max_seconds > 0:
            raise InvalidInput("max-seconds", self.max_seconds, "it must be above 0")
        if self.seed < 0 or self.seed > 2**31 - 1:
            raise InvalidInput("seed", self.seed, "it must lie in 0..2147483647")
        if self.objective == "cost" and self.price is None:
            raise Missing(
                "price-per-device-hour",
                f"the cost objective needs it, as the catalog has no price for {self.scenario.cluster.name}",
            )
        priced = self.price_per_device_hour is not None or self.objective == "cost"
        if priced and self.price is not None and not self.price >= _LEAST_PRICE:
            raise InvalidInput("price-per-device-hour", self.price, f"it must be at least {_LEAST_PRICE:g}")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Taken once: what a search works out for its request is kept under it, and asked for thousands of times.
        return hash(tuple(getattr(self, each.name) for each in fields(self)))

    @cached_property
    def of_any_size(self) -> SearchRequest:
        """The same question as far as it is about neither devices nor batch: one object for all points of a sweep.

        What follows from model, framework and constraints alone is kept under it.
        """
        scenario = self.scenario
        workload = scenario.workload.model_copy(update={"global_batch_size": 1})
        without = scenario.model_copy(update={"devices": 1, "workload": workload})
        return _shared(SearchRequest(scenario=without, constraints=self.constraints, also=self.also))

    @property
    def price(self) -> float | None:
        """Price of one device for one hour."""
        if self.price_per_device_hour is not None:
            return self.price_per_device_hour
        return self.scenario.cluster.price_per_device_hour

    @property
    def least_devices(self) -> int:
        """Fewest devices that a plan may use."""
        if self.min_devices is not None:
            return self.min_devices
        if self.objective == "fewest_devices":
            return 1
        # By the digits that were given: 0.55 of 100 devices are 55, though the nearest float lies a little above.
        return max(1, ceil(Fraction(str(self.min_used)) * self.scenario.devices))


@lru_cache(maxsize=256)
def _shared(request: SearchRequest) -> SearchRequest:
    """The first that was equal to it."""
    return request
