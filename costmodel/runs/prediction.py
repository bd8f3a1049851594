"""What a predictor says of one run: a row of PREDICTIONS.csv."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPrediction:
    """None is "no prediction", and ``reason`` says why.

    Attributes:
        feasible: whether the fullest stage fits into the usable memory, and what is offloaded into a node's where that
            is known; the framework's rules are not judged.
        step_time_low_s, step_time_high_s: the interval that is meant to hold nine of ten measured step times;
            docs/fidelity.md says how many of the published runs it does hold.
        peak_mem_gb: GiB, of what the run's ``mem_kind`` names.
        peak_mem_low_gb, peak_mem_high_gb: the interval of it, likewise; PREDICTIONS.csv has no columns for these, nor
            for the next.
        doublings_beyond: how far the run lies outside of those that the calibration was fitted to; 0 inside.
        provenance: analytic, calibrated or measured; empty without a prediction.
        reason: what was assumed, fell back or stood in the way.
    """

    id: str
    feasible: bool | None = None
    step_time_s: float | None = None
    step_time_low_s: float | None = None
    step_time_high_s: float | None = None
    peak_mem_gb: float | None = None
    peak_mem_low_gb: float | None = None
    peak_mem_high_gb: float | None = None
    doublings_beyond: float = 0.0
    provenance: str = ""
    reason: str = ""
