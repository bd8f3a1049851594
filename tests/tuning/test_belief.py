"""What is believed of candidates: before anything ran, and after."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from costmodel.plan_errors import plan_errors
from planner.tuning import belief as module
from planner.tuning.belief import Belief, Candidates, Tried
from planner.tuning.proposals import cannot_win, proposal_of, why_enough


def candidates(seconds: list[float], tps: list[int] | None = None, **other: Any) -> Candidates:
    tps = tps or [2**place for place in range(len(seconds))]
    given: dict[str, Any] = {
        "predicted_s": np.array(seconds),
        "peak_bytes": np.full(len(seconds), 40.0),
        "plans": [{"tp": tp} for tp in tps],
        "limit_bytes": 80.0,
        "memory_error": 0.1,
    }
    return Candidates(**(given | other))


def ok(place: int, seconds: float) -> Tried:
    return Tried(place=place, status="ok", step_time_s=seconds)


def test_the_fastest_that_surely_fits_comes_first() -> None:
    found = proposal_of(Belief(candidates([1.2, 1.0, 1.5])))
    assert found is not None
    assert found.place == 1
    assert found.chance_to_fit > 0.999


def test_one_that_hardly_fits_comes_after_one_that_is_little_slower() -> None:
    tight = candidates([1.0, 1.03, 2.0], peak_bytes=np.array([80.0, 50.0, 40.0]))
    found = proposal_of(Belief(tight))
    assert found is not None
    assert found.place == 1
    assert Belief(tight).chance_to_fit[0] == pytest.approx(0.5, abs=0.01)


def test_a_slow_machine_is_slow_for_all() -> None:
    """Twice the prediction says nothing of the order: all are believed to take twice as long."""
    known = Belief(candidates([1.0, 1.1, 1.2]), [ok(0, 2.0)])
    assert np.median(known.times_s, axis=0) == pytest.approx([2.0, 2.2, 2.4], rel=0.03)
    assert np.std(np.log(known.times_s[:, 0])) < 1e-6, "it was measured"


def test_plans_that_share_an_axis_err_together() -> None:
    """Two of tp 8 were slower than predicted beside one of tp 1: so will be the third."""
    asked = candidates([1.0, 1.0, 1.0, 1.0, 1.0], tps=[1, 8, 8, 8, 1])
    known = Belief(asked, [ok(0, 1.0), ok(1, 1.3), ok(2, 1.3)])
    middle = np.median(known.times_s, axis=0)
    assert middle[3] > 1.2
    assert middle[4] < middle[3]


def test_times_are_those_of_the_conditional_normal() -> None:
    """Against the formula for two plans, whose errors' covariance is that of the shipped file."""
    errors = plan_errors()
    level, axis, noise = module._LEVEL_LOG_SD**2, errors.axis_log_sd**2, errors.noise_log_sd**2
    own, shared = level + len(errors.axes) * axis + noise, level + (len(errors.axes) - 1) * axis
    known = Belief(candidates([1.0, 1.0]), [ok(0, 1.5)])
    assert np.median(np.log(known.times_s[:, 1])) == pytest.approx(np.log(1.5) * shared / own, abs=0.005)
    squares = np.log(1.5) ** 2 / own
    degrees = errors.degrees_of_freedom
    scale = (own - shared**2 / own) * (degrees + squares) / (degrees + 1)
    # The middle half of Student's t with 5 degrees of freedom lies within 0.727 scales.
    quarter = np.quantile(np.log(known.times_s[:, 1]), 0.75) - np.median(np.log(known.times_s[:, 1]))
    assert quarter == pytest.approx(0.727 * np.sqrt(scale), rel=0.08)


def test_running_out_of_memory_makes_plans_of_the_same_size_unlikely() -> None:
    asked = candidates([1.0, 1.0, 1.0], peak_bytes=np.array([76.0, 76.0, 60.0]))
    before = Belief(asked).chance_to_fit
    after = Belief(asked, [Tried(place=0, status="out_of_memory")]).chance_to_fit
    assert after[1] < before[1] - 0.2
    assert after[2] > 0.99
    fitted = Belief(asked, [ok(0, 1.0)]).chance_to_fit
    assert fitted[1] > before[1]


def test_a_measured_peak_says_how_far_memory_is_off() -> None:
    asked = candidates([1.0, 1.0], peak_bytes=np.array([40.0, 76.0]))
    told = Tried(place=0, status="ok", step_time_s=1.0, peak_bytes=34.0)
    assert Belief(asked, [told]).chance_to_fit[1] > Belief(asked).chance_to_fit[1] + 0.1


def test_the_normal_distribution_is_that_of_the_standard_library() -> None:
    z = np.linspace(-5.0, 5.0, 101)
    assert module._normal_below(z) == pytest.approx([NormalDist().cdf(float(value)) for value in z], abs=2e-7)


def test_it_is_enough_once_nothing_can_be_faster() -> None:
    far = candidates([1.0, 3.0, 4.0])
    assert why_enough(Belief(far)) is None
    assert why_enough(Belief(far, [ok(0, 1.0)])) is not None
    near = candidates([1.0, 1.01, 1.02])
    assert why_enough(Belief(near, [ok(0, 1.0)])) is None


def test_what_somebody_runs_is_not_proposed() -> None:
    asked = Belief(candidates([1.0, 1.1]), [])
    found = proposal_of(asked, running=[0])
    assert found is not None
    assert found.place == 1
    assert proposal_of(asked, running=[0, 1]) is None


def test_a_trial_is_given_up_only_when_it_is_surely_slower() -> None:
    assert not cannot_win([2.0, 2.0], 1.0), "two steps say nothing yet"
    assert cannot_win([2.0, 2.01, 1.99], 1.0)
    assert not cannot_win([1.01, 1.01, 1.01], 1.0), "as fast, within what runs of one plan differ by"
    assert not cannot_win([1.5, 0.8, 1.2], 1.0), "it scatters too much to say"
    assert not cannot_win([2.0, 2.0, 2.0], float("inf"))
