"""The priors: complete, from no training run, and what a calibration leaves to be found."""

from __future__ import annotations

import pytest

from costmodel.calibration.calibration import load_calibration
from costmodel.calibration.fit.priors import load_priors, priors_from
from costmodel.calibration.parameters import PARAMETER_NAMES, SHARES_OF_ONE


def test_every_parameter_has_a_general_prior() -> None:
    general = {row.name for row in load_priors().parameters if not (row.accelerator or row.family or row.framework)}
    assert general == set(PARAMETER_NAMES)


def test_shares_stay_within_what_hardware_can_do() -> None:
    assert all(row.value <= 1.0 for row in load_priors().parameters if row.name in SHARES_OF_ONE)


def test_what_may_be_told_apart_may_move() -> None:
    """A class that lies around a row which nothing moves would have nothing to lie around."""
    priors = load_priors()
    for entry in priors.classes:
        assert any(row.spread for row in priors.parameters if row.name == entry.name), entry.name


def test_classes_come_from_the_general_to_the_special() -> None:
    for entry in load_priors().classes:
        sizes = [len(level.by) for level in entry.classes]
        assert sizes == sorted(sizes), entry.name


def test_a_calibration_is_a_prior_as_sure_as_its_errors() -> None:
    calibration = load_calibration()
    for before, prior in zip(calibration.parameters, priors_from(calibration).parameters, strict=True):
        assert (prior.name, prior.value) == (before.name, before.value)
        if prior.spread is not None and before.standard_error is not None:
            assert prior.spread == pytest.approx(max(before.standard_error / before.value, 0.01))
        if before.value == 0:
            assert prior.spread is None
