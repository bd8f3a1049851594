"""Which of some plans may be the fastest when run: errors of predictions that plans of one case share, and do not.

The log error of a plan is a level that all plans of the case share, which orders nothing, plus one effect for each
value of each axis (plans with the same tp share that of tp), plus noise of its own. Effects and noise are normal, and a
scale common to the case makes them Student's t: some cases are predicted far worse than most. So half the variance of
the difference of two plans is ``noise^2 + k axis^2``, with k the axes in which they differ (a variogram; Cressie 1993,
section 2.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from costmodel.arrays import Num
from costmodel.catalog.documents import read_mapping
from costmodel.spec.base import Frozen, IsoDate, PositiveFloat
from costmodel.spec.validation import build

DRAWS = 4000
"""Enough that a probability is known to within a hundredth."""

_SEED = 0


class PlanErrors(Frozen):
    """How much errors differ between plans of one case.

    Attributes:
        noise_log_sd: of one plan alone, the error of what was measured included; ``axis_log_sd``: of one axis's value.
        degrees_of_freedom: of Student's t over cases.
        indistinct: plans whose times differ by this share are as fast: runs of the same plan differ by so much.
        axes: those whose values have an effect.
    """

    noise_log_sd: PositiveFloat
    axis_log_sd: PositiveFloat
    degrees_of_freedom: PositiveFloat
    indistinct: PositiveFloat
    axes: tuple[str, ...]
    source: str
    retrieved: IsoDate

    def slowness(self, times: Sequence[float], plans: Sequence[Mapping[str, Any]]) -> Num:
        """How slow each plan is beside the fastest of all, in each of ``DRAWS`` ways that their errors may fall.

        Args:
            times: predicted, one per plan; any unit.
            plans: the values of ``axes`` of each plan; those that a plan lacks have no effect.

        Returns:
            Shape (draws, plans), 1 for the fastest of a draw; the same for the same arguments.
        """
        drawn = np.log(np.asarray(times, dtype=np.float64)) + self._errors(plans)
        return np.asarray(np.exp(drawn - drawn.min(axis=1, keepdims=True)))

    def _errors(self, plans: Sequence[Mapping[str, Any]]) -> Num:
        rng = np.random.default_rng(_SEED)
        errors = self.noise_log_sd * rng.standard_normal((DRAWS, len(plans)))
        for axis in self.axes:
            values = {value: place for place, value in enumerate(dict.fromkeys(plan.get(axis) for plan in plans))}
            of_plan = [values[plan.get(axis)] for plan in plans]
            errors = errors + self.axis_log_sd * rng.standard_normal((DRAWS, len(values)))[:, of_plan]
        scale = np.sqrt(self.degrees_of_freedom / rng.chisquare(self.degrees_of_freedom, (DRAWS, 1)))
        return np.asarray(errors * scale)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A plan of a short list, and what the list is worth up to it.

    Attributes:
        place: of the plan among all.
        probability: that one of the fastest is in the list so far.
        loss: mean share by which the best of the list so far is slower than the fastest of all.
    """

    place: int
    probability: float
    loss: float


def trials(slowness: Num, probability: float, indistinct: float) -> list[Trial]:
    """A short list that holds one of the fastest with at least that probability, what covers most first.

    Greedy: the plan that is among the fastest in most of the draws that are not covered yet comes next; the list is at
    most ``1 + ln n`` times as long as the shortest (Chvatal 1979). Plans that err together are fast in the same draws,
    so one of them is enough for a while.

    Args:
        slowness: as from ``PlanErrors``.
        indistinct: plans that are slower than the fastest by no more than this share are as fast.
    """
    fast = slowness <= 1.0 + indistinct
    chosen: list[Trial] = []
    left = np.ones(len(fast), dtype=np.bool_)
    least = np.full(len(fast), np.inf)
    while not chosen or chosen[-1].probability < probability:
        place = int(fast[left].sum(axis=0).argmax())
        left &= ~fast[:, place]
        least = np.minimum(least, slowness[:, place])
        chosen.append(Trial(place=place, probability=float(1.0 - left.mean()), loss=float(least.mean() - 1.0)))
    return chosen


@lru_cache(maxsize=1)
def plan_errors() -> PlanErrors:
    """Those that ship with the planner."""
    file = resources.files("costmodel.catalog") / "plan_errors.yaml"
    return build(PlanErrors, read_mapping(file, "plan_errors"), "plan_errors")
