"""A fit finds what made the runs, trusts what it can't tell, and lets a study's own level and wild runs go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.calibration.calibration import Calibration, ParameterRow
from costmodel.calibration.fit.fit import Fitted, fit
from costmodel.calibration.fit.moved import moved_rows
from costmodel.calibration.fit.priors import load_priors, priors_from
from costmodel.errors import InvalidInput
from costmodel.runs.columns import Run
from costmodel.runs.predictions import predict_runs
from tests.costmodel.fit.runs import as_if_measured, prior_calibration, some_runs


def fitted(runs: tuple[Run, ...], **options: bool) -> Fitted:
    return fit(runs, load_priors(), name="found", retrieved="2026-11-30", what="runs of a test", **options)


def row(name: str, value: float, **key: str) -> ParameterRow:
    return ParameterRow(name=name, value=value, **key, provenance="calibrated", source="a test")


def errors(calibration: Calibration, runs: tuple[Run, ...]) -> np.ndarray:
    pairs = zip(runs, predict_runs(runs, calibration), strict=True)
    return np.array([(p.step_time_s or 0.0) / (run.measured_step_time_s or 1.0) - 1.0 for run, p in pairs])


TRUTH = prior_calibration(
    row("gemm_efficiency", 0.70, family="hopper"),
    row("compute_multiplier", 1.35, framework="llm-foundry"),
    row("fixed_step_s", 0.12, framework="nanotron"),
)


@pytest.fixture(scope="module")
def found() -> Fitted:
    return fitted(as_if_measured(TRUTH))


def test_most_of_what_made_the_runs_is_found(found: Fitted) -> None:
    runs = as_if_measured(TRUTH)
    before, after = errors(prior_calibration(), runs), errors(found.calibration, runs)
    assert np.median(np.abs(before)) > 0.08
    assert np.median(np.abs(after)) < 0.05


def test_what_runs_do_not_speak_of_stays_as_it_was(found: Fitted) -> None:
    for prior in load_priors().parameters:
        if prior.family in ("blackwell", "tpu", "gaudi") and prior.name != "time_relative_error":
            (now,) = (
                now
                for now in found.calibration.parameters
                if (now.name, now.family, now.precision, now.framework)
                == (prior.name, prior.family, prior.precision, prior.framework)
            )
            assert (now.value, now.source) == (prior.value, prior.source)


def test_a_moved_row_says_from_where_by_how_much_and_on_what_it_rests(found: Fitted) -> None:
    moved, steady = moved_rows(found)
    assert moved
    assert steady > 0
    assert [entry.surety for entry in moved] == sorted((entry.surety for entry in moved), reverse=True)
    for now in found.calibration.parameters:
        if now.source.startswith("fit to"):
            assert now.provenance == "calibrated"
            assert now.standard_error is not None
            assert now.standard_error > 0


def test_a_study_that_is_slow_as_a_whole_moves_parameters_less_than_one_that_is_ones_own() -> None:
    """Of two studies the second takes 30 % longer throughout."""
    runs = as_if_measured(prior_calibration(), noise=0.01)
    slow = tuple(
        replace(run, measured_step_time_s=run.measured_step_time_s * 1.3)
        if run.group.startswith("uss/") and run.measured_step_time_s
        else run
        for run in runs
    )
    theirs, own = fitted(slow), fitted(slow, study_effects=False)
    assert theirs.solutions["time"].study_effects["uss"] > 0.05
    assert own.solutions["time"].study_effects == {}
    of_slow = [run.group.startswith("uss/") for run in slow]
    assert abs(np.median(errors(own.calibration, slow)[of_slow])) < 0.05
    assert (
        np.median(errors(theirs.calibration, slow)[of_slow]) < np.median(errors(own.calibration, slow)[of_slow]) - 0.02
    )


def test_wild_runs_are_let_go() -> None:
    """Every tenth run takes ten times as long."""
    runs = as_if_measured(prior_calibration(), noise=0.01)
    wild = tuple(
        replace(run, measured_step_time_s=(run.measured_step_time_s or 1.0) * (10.0 if index % 10 == 0 else 1.0))
        for index, run in enumerate(runs)
    )
    sane = [index % 10 != 0 for index in range(len(wild))]
    assert np.median(np.abs(errors(fitted(wild).calibration, wild)[sane])) < 0.05


def test_a_few_own_runs_find_their_level_and_nothing_else_far() -> None:
    base = priors_from(prior_calibration())
    runs = as_if_measured(prior_calibration(), study_level=1.2, noise=0.01)
    few, others = runs[:3], runs[3:20]
    near = fit(few, base, name="near", retrieved="2026-11-30", study_effects=False)
    assert np.median(errors(near.calibration, others)) > np.median(errors(prior_calibration(), others))
    assert abs(np.median(errors(near.calibration, others))) < 0.1


def test_runs_that_were_not_measured_are_refused() -> None:
    runs = tuple(
        replace(run, measured_step_time_s=None, measured_tokens_per_s_per_device=None, measured_peak_mem_gb=None)
        for run in some_runs()
    )
    with pytest.raises(InvalidInput, match="no row has a measured time or memory"):
        fitted(runs)


def test_the_interval_of_a_class_is_what_its_runs_show_and_wider_with_fewer_groups(found: Fitted) -> None:
    shown = {
        (now.family, now.precision, now.framework): now.value
        for now in found.calibration.parameters
        if now.name == "time_relative_error"
    }
    general = shown[(None, None, None)]
    assert 0.02 < shown[("hopper", None, "llm-foundry")] < general
