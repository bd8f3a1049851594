"""Which candidate is worth running next, when enough was seen, and when a trial that runs can't win any more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from planner.tuning.belief import Belief

INDISTINCT = 0.02
"""A plan has to be faster by this share to be worth another trial: runs of the same plan differ by as much."""
_PLAUSIBLE = 0.05
"""Below this chance the best can't plausibly be beaten."""
# Of plans that would be fast if they fitted, one that is likelier not to than this isn't run while others are left.
_LEAST_CHANCE = 0.25


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What to run next.

    Attributes:
        place: of the candidate.
        gain: mean share by which it is expected to lower the best time.
        chance_to_fit: of its memory.
    """

    place: int
    gain: float
    chance_to_fit: float


def proposal_of(belief: Belief, running: Collection[int] = ()) -> Proposal | None:
    """The candidate that promises most; None when all were tried or are running.

    Args:
        running: candidates that somebody runs right now.
    """
    left = [place for place in belief.untried if place not in running]
    if not left:
        return None
    gains, chances = belief.gains(), belief.chance_to_fit
    likely = [place for place in left if chances[place] >= _LEAST_CHANCE]
    by_gain = max(likely or left, key=lambda place: (gains[place], chances[place], -place))
    return Proposal(place=int(by_gain), gain=float(gains[by_gain]), chance_to_fit=float(chances[by_gain]))


def why_enough(belief: Belief) -> str | None:
    """Why no further trial is worth it, in words; None while one is."""
    chance = belief.chance_to_be_beaten(INDISTINCT)
    if chance >= _PLAUSIBLE:
        return None
    return (
        f"that any candidate not yet tried is {INDISTINCT:.0%} faster than the best has a chance of {chance:.1%}, "
        f"below {_PLAUSIBLE:.0%}"
    )


_FEWEST_STEPS = 3
_SURE = 2.0


def cannot_win(step_times_s: Sequence[float], best_s: float) -> bool:
    """Whether a trial's steps so far say that it is slower than the best by more than they scatter.

    The median of n steps scatters by about 1.25 sd / sqrt(n) (for normal steps; Kenney and Keeping 1962, section 7.12),
    with sd from the median distance to it, which one slow step doesn't move.
    """
    count = len(step_times_s)
    if count < _FEWEST_STEPS:
        return False
    middle = median(step_times_s)
    deviation = 1.4826 * median(abs(step - middle) for step in step_times_s)
    return middle - _SURE * 1.25 * deviation / sqrt(count) > best_s * (1.0 + INDISTINCT)
