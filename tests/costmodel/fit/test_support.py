"""A few runs move a calibration as far as they agree."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.calibration.fit.support import supported_share


def test_runs_of_one_mind_are_followed() -> None:
    assert supported_share(np.full(8, 0.2), np.full(8, 0.15)) == 1.0


def test_runs_that_disagree_by_more_than_they_move_are_not() -> None:
    """Their mean is what a move would follow."""
    residuals = np.array([0.5, -0.2, -0.1])
    assert supported_share(residuals, np.full(3, residuals.mean())) == 0.0


def test_what_disagrees_a_little_is_followed_in_part_and_more_of_it_further() -> None:
    one_set = np.array([0.05, 0.1, 0.15])
    few, many = (supported_share(np.tile(one_set, n), np.full(3 * n, 0.1)) for n in (1, 10))
    assert 0.2 < few < 0.7
    assert few < many < 1.0


def test_one_run_is_followed_when_it_lies_beyond_what_repeats_differ_by() -> None:
    near, far = (supported_share(np.array([r]), np.array([r / 2])) for r in (0.04, 0.4))
    assert near < 0.75
    assert far == 1.0


def test_a_wild_run_stands_in_nobody_s_way() -> None:
    residuals = np.full(20, 0.1)
    residuals[7] = 2.3
    assert supported_share(residuals, np.full(20, 0.1)) > 0.8


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_move_away_from_the_runs_is_not_made(sign: float) -> None:
    assert supported_share(np.full(5, 0.1 * sign), np.full(5, -0.1 * sign)) == 0.0


def test_no_move_is_no_disagreement() -> None:
    assert supported_share(np.array([0.3, -0.3]), np.zeros(2)) == 1.0
