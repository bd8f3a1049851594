"""Predictions as columns beside the runs they are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.runs.prediction import RunPrediction

Floats = NDArray[np.float64]

_NO_REASON = "no reason given"


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A row per run. NaN is "no prediction".

    Attributes:
        feasible: 1, 0 or NaN.
        doublings_beyond: how far a run lies outside of those that the calibration was fitted to.
        reasons: why a prediction is absent; what it rests on where it is not.
    """

    feasible: Floats
    step_time_s: Floats
    step_time_low_s: Floats
    step_time_high_s: Floats
    peak_mem_gb: Floats
    peak_mem_low_gb: Floats
    peak_mem_high_gb: Floats
    doublings_beyond: Floats
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, predictions: Sequence[RunPrediction]) -> Predicted:
        """Predictions that come one per run, in the order of the runs."""
        return cls(
            feasible=np.array([prediction.feasible for prediction in predictions], dtype=float),
            step_time_s=_positive([prediction.step_time_s for prediction in predictions]),
            step_time_low_s=_positive([prediction.step_time_low_s for prediction in predictions]),
            step_time_high_s=_positive([prediction.step_time_high_s for prediction in predictions]),
            peak_mem_gb=_positive([prediction.peak_mem_gb for prediction in predictions]),
            peak_mem_low_gb=_positive([prediction.peak_mem_low_gb for prediction in predictions]),
            peak_mem_high_gb=_positive([prediction.peak_mem_high_gb for prediction in predictions]),
            doublings_beyond=np.array([prediction.doublings_beyond for prediction in predictions], dtype=float),
            reasons=tuple(prediction.reason or _NO_REASON for prediction in predictions),
        )

    def slowed(self, factor: Floats) -> Predicted:
        """The same predictions with every time, and its interval, taking ``factor`` times as long."""
        return replace(
            self,
            step_time_s=self.step_time_s * factor,
            step_time_low_s=self.step_time_low_s * factor,
            step_time_high_s=self.step_time_high_s * factor,
        )


def _positive(values: Sequence[float | None]) -> Floats:
    """Zero, a negative number and infinity predict nothing."""
    array = np.array(values, dtype=float)
    return np.where(np.isfinite(array) & (array > 0), array, np.nan)
