"""Held out: no run is predicted by what its own group, or its own study, taught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.calibration.fit.priors import load_priors, priors_from
from costmodel.errors import InvalidInput
from costmodel.fidelity.folds import SHOTS, deal, held_out, studies_left_out
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.unseen import unseen
from costmodel.runs.columns import Run
from tests.costmodel.fit.runs import as_if_measured, prior_calibration

GROUPS = [f"s/{number}" for number in range(20) for _ in range(4)]


def few(level: float = 1.0) -> tuple[Run, ...]:
    """Two dozen runs of two studies, as the priors have them times a level."""
    return as_if_measured(prior_calibration(), noise=0.01, study_level=level)[::5]


def test_runs_of_a_group_share_their_fold() -> None:
    fold = deal(GROUPS, 4)
    assert all(len(set(fold[np.array(GROUPS) == group].tolist())) == 1 for group in GROUPS)
    assert sorted(set(fold.tolist())) == [0, 1, 2, 3]


def test_folds_are_about_equally_large() -> None:
    counts = np.bincount(deal(GROUPS, 4))
    assert counts.max() - counts.min() <= 4


@pytest.mark.parametrize("folds", [1, 21])
def test_a_number_of_folds_that_makes_no_sense_is_refused(folds: int) -> None:
    with pytest.raises(InvalidInput, match="2 to 20 are possible"):
        deal(GROUPS, folds)


def test_fewer_groups_than_folds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="of 3 groups only"):
        deal(["a", "b", "c"], 5)


def test_a_group_that_is_odd_is_predicted_as_if_it_were_not() -> None:
    """One group takes three times as long: in sample it would be met half way, held out nobody knows."""
    runs = few()
    odd = runs[0].group
    slow = tuple(
        replace(run, measured_step_time_s=(run.measured_step_time_s or 1.0) * 3.0) if run.group == odd else run
        for run in runs
    )
    found = held_out(slow, priors_from(prior_calibration()), folds=2, workers=1)
    of_odd = np.array([run.group == odd for run in slow])
    measured = np.array([run.measured_step_time_s for run in slow])
    assert np.median(found.step_time_s[of_odd] / measured[of_odd]) < 0.45
    assert np.median(np.abs(found.step_time_s[~of_odd] / measured[~of_odd] - 1.0)) < 0.15


def test_a_few_runs_of_an_unseen_study_help_it() -> None:
    """All runs are 20 % slower than the priors have them, which neither study tells the other as its own."""
    runs = few(1.2)
    found = unseen(Observed.of(runs), studies_left_out(runs, load_priors(), folds=2, workers=1))
    assert found.studies == 2
    assert {entry.study for entry in found.classes} <= {"lf", "uss"}
    assert found.time_before is not None
    assert found.time_after is not None
    assert found.time_after < found.time_before
    assert (found.mem_before, found.mem_after) == (None, None)
    assert all(entry.runs >= 8 - SHOTS for entry in found.classes)
