"""The Pareto front: the plans that no other beats in step time, devices and free memory at once.

The cost of a step grows with its time and with its devices, so a plan that is beaten in neither is beaten in cost by
none that it beats: a front over time, devices, free memory *and* cost is the same set. Free memory counts in steps of
a tenth of what is usable, since two plans that differ by less are as safe.

Found by the epsilon-constraint method (Haimes et al. 1971): the fastest plan of at most D devices that leaves at least
L free is on the front, up to ties. Any other plan of the front within those limits uses fewer devices than it, or
leaves more free, or it would be beaten; so the two regions with one limit beyond that plan's own are searched next.
Every search is exact, so the front is, as far as time allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from costmodel.arrays import num
from costmodel.fingerprint import plan_id_in
from planner.answering.clock import Clock
from planner.search.answer import answer_of, status_of
from planner.search.constraints import Condition, Range
from planner.search.objective import Objective
from planner.search.priced import ROUNDING
from planner.search.request import SearchRequest
from planner.search.solve import Search

Json = dict[str, Any]

HEADROOM_LEVELS = 10
"""Free memory is told apart in so many parts of what is usable."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A plan of the front.

    Attributes:
        level: free memory in whole tenths of what is usable.
        entry: the plan as an answer has it.
    """

    step_time_s: float
    devices: int
    level: int
    entry: Json

    def beats(self, other: Point) -> bool:
        """Whether it is at least as good in all three, and better in one."""
        slack = other.step_time_s * ROUNDING
        as_good = (
            self.step_time_s <= other.step_time_s + slack
            and self.devices <= other.devices
            and self.level >= other.level
        )
        better = self.step_time_s < other.step_time_s - slack or self.devices < other.devices
        return as_good and (better or self.level > other.level)


def front_of(request: SearchRequest, answer: Json, clock: Clock) -> Json:
    """``{pareto, pareto_proven}``: the front, fastest first, and whether time was left to search all of it.

    Args:
        answer: the request's own. Its best plan saves a search where it is the fastest.
    """
    regions = _Regions(request=request, usable=request.scenario.usable_bytes)
    waiting = [(request.scenario.devices, 0)]
    seen: set[tuple[int, int]] = set()
    found: list[tuple[tuple[int, int], Point | None]] = []
    proven, first = True, _own_best(request, answer, regions)
    while waiting:
        # Limits on devices first: what a deadline cuts is the plans that leave more memory free.
        waiting.sort(key=lambda region: (-region[1], region[0]))
        region = waiting.pop()
        if region in seen:
            continue
        seen.add(region)
        point, known = _known(found, region)
        if not known and first is not None:
            point, known, first = first, True, None
        if not known:
            if clock.late:
                return _told(request, found, proven=False)
            point, complete = regions.fastest(*region, clock)
            proven &= complete
        found.append((region, point))
        if point is not None:
            devices, level = region
            waiting += [(point.devices - 1, level)] if point.devices > request.least_devices else []
            waiting += [(devices, point.level + 1)] if point.level + 1 < HEADROOM_LEVELS else []
    return _told(request, found, proven=proven)


def _known(found: Iterable[tuple[tuple[int, int], Point | None]], region: tuple[int, int]) -> tuple[Point | None, bool]:
    """The fastest plan of a region, where a search of a larger one has found it: one that lies in the smaller."""
    devices, level = region
    for (others, least), point in found:
        if (
            others >= devices
            and least <= level
            and (point is None or (point.devices <= devices and point.level >= level))
        ):
            return point, True
    return None, False


def _own_best(request: SearchRequest, answer: Json, regions: _Regions) -> Point | None:
    fastest = request.objective == "step_time" and answer["status"] == "optimal"
    return regions.point(answer["plans"][0]) if fastest and answer["plans"] else None


def undominated(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats, each once, by time, devices and free memory."""
    kept = [point for point in points if not any(other.beats(point) for other in points)]
    by_id = {point.entry["id"]: point for point in kept}
    return sorted(by_id.values(), key=lambda point: (point.step_time_s, point.devices, -point.level))


def _told(request: SearchRequest, found: Iterable[tuple[tuple[int, int], Point | None]], *, proven: bool) -> Json:
    front = undominated([point for _, point in found if point is not None])
    cost = None if request.price is None else Objective(kind="cost", price=request.price)
    return {
        "pareto": [
            {
                "step_time_s": point.step_time_s,
                "devices_used": point.devices,
                "free_bytes": request.scenario.usable_bytes - point.entry["prediction"]["memory"]["peak_bytes"],
                "cost_per_step": None
                if cost is None
                else float(cost.value(num(point.step_time_s), num(point.devices))),
                **{name: point.entry[name] for name in ("id", "plan", "options", "prediction")},
            }
            for point in front
        ],
        "pareto_proven": proven,
    }


@dataclass(frozen=True, kw_only=True)
class _Regions:
    """Searches the request's space under two more limits.

    Attributes:
        usable: bytes of a device that plans of the request may allocate.
    """

    request: SearchRequest
    usable: int

    def fastest(self, devices: int, level: int, clock: Clock) -> tuple[Point | None, bool]:
        """The fastest plan of at most ``devices`` that leaves ``level`` tenths free, and whether that is proven."""
        scenario, constraints = self.request.scenario, self.request.constraints
        free = scenario.cluster.accelerator.memory_bytes - self.usable * (HEADROOM_LEVELS - level) // HEADROOM_LEVELS
        # A pin, since with fewer devices at hand other ones would be idle.
        few = Condition(axis="devices_used", ranges=(Range(low=1, high=devices),), text=f"devices_used=..{devices}")
        search = Search(
            replace(
                self.request,
                scenario=scenario.model_copy(update={"min_free_bytes": free}),
                constraints=replace(constraints, pins=(*constraints.pins, few)),
                objective="step_time",
                # Where the fewest devices are wanted, no least share of them is asked for.
                min_devices=self.request.least_devices,
                top=1,
                max_seconds=clock.seconds(),
                explain=False,
            ),
            stopped=clock.stopped,
        )
        outcome = search.run()
        proven = status_of(outcome) in ("optimal", "infeasible")
        if not outcome.best:
            return None, proven
        return self.point(answer_of(search.request, search.facts, outcome)["plans"][0]), proven

    def point(self, entry: Json) -> Point:
        """A plan of an answer as one of this request: under its id, against all of the usable memory."""
        scenario, prediction = self.request.scenario, entry["prediction"]
        memory = prediction["memory"] | {"usable_bytes": self.usable}
        return Point(
            step_time_s=prediction["step_time_s"],
            devices=entry["plan"]["devices_used"],
            level=HEADROOM_LEVELS * (self.usable - memory["peak_bytes"]) // self.usable,
            entry=entry
            | {
                "id": plan_id_in(scenario, entry["plan"]),
                "prediction": prediction | {"memory": memory},
            },
        )
