"""What is held against measurements, run by run: the step time, or the peak memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from api.dashboard.fidelity.runs import View
from api.dashboard.words import fine
from costmodel.fidelity.observed import Bools, Floats

Of = Literal["time", "memory"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantity:
    """A row per run. NaN is "not known".

    Attributes:
        fields: what the measured, the predicted value and its interval are called in JSON.
        judged: runs with both values, which may be judged on it.
        bounded: of these, those with an interval; ``inside`` are those whose measured value lies in it.
    """

    of: Of
    name: str
    unit: str
    fields: tuple[str, str, str]
    measured: Floats
    predicted: Floats
    low: Floats
    high: Floats
    judged: Bools
    bounded: Bools
    inside: Bools

    @property
    def rows(self) -> list[int]:
        """Places of the judged runs."""
        return [int(row) for row in np.flatnonzero(self.judged)]

    @property
    def ratio(self) -> Floats:
        """Predicted over measured."""
        return self.predicted / self.measured

    def text(self, value: float) -> str:
        """A value as it is read, without its unit."""
        return fine(value) if self.of == "time" else f"{value:.1f}"


@lru_cache(maxsize=32)
def quantity_of(view: View, of: Of) -> Quantity:
    """The columns of a view."""
    observed, predicted, errors = view.judged.observed, view.judged.predicted, view.judged.errors
    if of == "time":
        return Quantity(
            of=of,
            name="step time",
            unit="s",
            fields=("measured_step_time_s", "step_time_s", "step_time_interval_s"),
            measured=observed.step_time_s,
            predicted=predicted.step_time_s,
            low=predicted.step_time_low_s,
            high=predicted.step_time_high_s,
            judged=errors.timed,
            bounded=errors.bounded,
            inside=errors.inside,
        )
    return Quantity(
        of=of,
        name="peak memory",
        unit="GiB",
        fields=("measured_peak_mem_gb", "peak_mem_gb", "peak_mem_interval_gb"),
        measured=observed.peak_mem_gb,
        predicted=predicted.peak_mem_gb,
        low=predicted.peak_mem_low_gb,
        high=predicted.peak_mem_high_gb,
        judged=errors.weighed,
        bounded=errors.memory_bounded,
        inside=errors.memory_inside,
    )
