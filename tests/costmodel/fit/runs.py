"""Runs that the cost model itself has measured, so that the truth is known."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from costmodel.calibration.calibration import Calibration, ParameterRow
from costmodel.calibration.fit.priors import load_priors
from costmodel.fidelity.observed import Observed
from costmodel.runs.carried import default_runs
from costmodel.runs.columns import Run
from costmodel.runs.predictions import predict_runs


def prior_calibration(*changes: ParameterRow) -> Calibration:
    """The priors as a calibration, with rows on top."""
    rows = [row.as_row() for row in load_priors().parameters]
    return Calibration(name="truth", retrieved="2026-11-30", source="a test", parameters=(*rows, *changes))


@lru_cache(maxsize=1)
def some_runs() -> tuple[Run, ...]:
    """Published runs of two frameworks whose plans are stated in full."""
    runs = default_runs()
    judged = Observed.of(runs).scorable
    stated = [run for run, usable in zip(runs, judged.tolist(), strict=True) if usable]
    by_study = [[run for run in stated if run.group.startswith(study)] for study in ("lf/", "uss/")]
    return tuple(run for of_study in by_study for run in of_study[:: max(1, len(of_study) // 60)])


def as_if_measured(
    truth: Calibration, *, noise: float = 0.02, study_level: float = 1.0, seed: int = 3
) -> tuple[Run, ...]:
    """The runs with the times that ``truth`` has for them, give or take."""
    runs = some_runs()
    rng = np.random.default_rng(seed)
    return tuple(
        replace(
            run,
            measured_step_time_s=prediction.step_time_s * study_level * float(np.exp(rng.normal(0.0, noise))),
            measured_tokens_per_s_per_device=None,
            measured_peak_mem_gb=None,
        )
        for run, prediction in zip(runs, predict_runs(runs, truth), strict=True)
        if prediction.step_time_s is not None
    )
