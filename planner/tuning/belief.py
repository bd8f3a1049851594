"""What is believed of plans that may be run: predictions, corrected by what was measured so far.

Time. The log error of a plan is a level that all share, an effect for each value of each axis, and noise
(``costmodel.plan_errors``): normal with a scale common to the case, so together a multivariate Student's t. Given
measurements it stays one (Ding 2016, "On the conditional distribution of the multivariate t distribution"): with
residuals r and their covariance K, degrees of freedom grow by n and the scale by (nu + r' K^-1 r) / (nu + n).

Memory. The log error of a peak is an error that all plans share plus one of its own, both normal. A measured peak says
what the sum is; a plan that ran out of memory that it is above the limit, one that did not that it is below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np

from costmodel.arrays import Num
from costmodel.plan_errors import PlanErrors, plan_errors

Status = Literal["ok", "stopped", "out_of_memory", "failed"]

_DRAWS = 2000
"""Enough that a probability is known to a hundredth."""
_SEED = 0
# So wide that the first measurement settles the level: the machine may be anything.
_LEVEL_LOG_SD = 1.0
# Of a whole error of memory half is shared by the plans of a case: held out, cells are off as a whole as much as plans
# within them (docs/fidelity.md).
_SHARED = sqrt(0.5)
_GRID = np.linspace(-4.0, 4.0, 161)
_SD_OF_90_PERCENT = 1.645


@dataclass(frozen=True, kw_only=True)
class Tried:
    """How a plan did.

    Attributes:
        place: of the plan among the candidates.
        step_time_s: measured; None where it didn't run long enough for one. Of one that was stopped what it took until
            then.
        peak_bytes: the largest of all devices; None where unknown.
    """

    place: int
    status: Status
    step_time_s: float | None = None
    peak_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Plans that may be run. Everything has one entry for each.

    Attributes:
        predicted_s: step time.
        peak_bytes: on the fullest device.
        plans: their axes.
        limit_bytes: what a device can hold before it is out of memory.
        memory_error: half width of the 90 % interval of ``peak_bytes``, relative.
    """

    predicted_s: Num
    peak_bytes: Num
    plans: Sequence[Mapping[str, Any]]
    limit_bytes: float
    memory_error: float

    def __len__(self) -> int:
        return len(self.plans)


class Belief:
    """Times and chances of the candidates, as drawn ``_DRAWS`` times; the same for the same candidates and trials."""

    def __init__(self, candidates: Candidates, tried: Sequence[Tried] = (), errors: PlanErrors | None = None) -> None:
        self.candidates = candidates
        self.tried = tuple(tried)
        self.untried = np.setdiff1d(np.arange(len(candidates)), [trial.place for trial in tried])
        self._errors = errors or plan_errors()
        rng = np.random.default_rng(_SEED)
        self.times_s = np.exp(self._log_times(rng))
        self.chance_to_fit = self._chances()
        self._fits = rng.random((_DRAWS, 1)) < self.chance_to_fit[None, :]

    @property
    def best_s(self) -> float:
        """The fastest that was measured; infinite before there is any."""
        return min((t.step_time_s for t in self.tried if t.status == "ok" and t.step_time_s), default=np.inf)

    def gains(self) -> Num:
        """Mean share by which each candidate would lower the best time, times its chance to fit; 0 for those tried.

        Before anything ran, against the slowest candidate.
        """
        best = self.best_s
        reference = np.full(_DRAWS, best) if np.isfinite(best) else self.times_s.max(axis=1)
        share = np.maximum(0.0, 1.0 - self.times_s / reference[:, None]).mean(axis=0) * self.chance_to_fit
        gains = np.zeros(len(self.candidates))
        gains[self.untried] = share[self.untried]
        return gains

    def chance_to_be_beaten(self, by: float) -> float:
        """How likely any candidate that was not tried fits and is faster than the best by this share."""
        if not np.isfinite(self.best_s) or not len(self.untried):
            return float(len(self.untried) > 0)
        faster = self.times_s[:, self.untried] < self.best_s * (1.0 - by)
        return float((faster & self._fits[:, self.untried]).any(axis=1).mean())

    # -- time --

    def _log_times(self, rng: np.random.Generator) -> Num:
        """Draws of log seconds, shape (draws, candidates)."""
        c, errors = self.candidates, self._errors
        known = [trial for trial in self.tried if trial.status == "ok" and trial.step_time_s]
        prior, cov, degrees = np.log(c.predicted_s), self._covariance(), errors.degrees_of_freedom
        if known:
            at = np.array([trial.place for trial in known])
            residual = np.log([trial.step_time_s or np.nan for trial in known]) - prior[at]
            weights = np.linalg.solve(cov[np.ix_(at, at)], cov[at])
            squares = float(residual @ np.linalg.solve(cov[np.ix_(at, at)], residual))
            prior = prior + residual @ weights
            cov = (cov - cov[:, at] @ weights) * (degrees + squares) / (degrees + len(known))
            degrees += len(known)
        values, vectors = np.linalg.eigh((cov + cov.T) / 2.0)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = rng.standard_normal((_DRAWS, len(c))) @ root.T
        scale = np.sqrt(degrees / rng.chisquare(degrees, (_DRAWS, 1)))
        return np.asarray(prior + normal * scale)

    def _covariance(self) -> Num:
        """Of log errors, shape (candidates, candidates): level, one effect for each axis that two share, and noise."""
        errors, plans = self._errors, self.candidates.plans
        cov = np.full((len(plans), len(plans)), _LEVEL_LOG_SD**2)
        for axis in errors.axes:
            values = {value: code for code, value in enumerate(dict.fromkeys(plan.get(axis) for plan in plans))}
            codes = np.array([values[plan.get(axis)] for plan in plans])
            cov += errors.axis_log_sd**2 * (codes[:, None] == codes)
        return np.asarray(cov + errors.noise_log_sd**2 * np.eye(len(plans)))

    # -- memory --

    def _chances(self) -> Num:
        """How likely each candidate fits."""
        c = self.candidates
        sd = np.log1p(c.memory_error) / _SD_OF_90_PERCENT
        shared, own = sd * _SHARED, sd * sqrt(1.0 - _SHARED**2)
        room = np.log(c.limit_bytes / c.peak_bytes)
        errors = _GRID * shared
        log_weight = -0.5 * _GRID**2
        for trial in self.tried:
            below = _normal_below((room[trial.place] - errors) / own)
            if trial.peak_bytes:
                off = (np.log(trial.peak_bytes / c.peak_bytes[trial.place]) - errors) / own
                log_weight -= 0.5 * off**2
            elif trial.status == "out_of_memory":
                log_weight += np.log(np.maximum(1.0 - below, 1e-12))
            elif trial.status in ("ok", "stopped"):
                log_weight += np.log(np.maximum(below, 1e-12))
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        return np.asarray(_normal_below((room[:, None] - errors) / own) @ weight)


def _normal_below(z: Num) -> Num:
    """The standard normal distribution (Abramowitz and Stegun 7.1.26; within 1.5e-7)."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(z) / np.sqrt(2.0))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = 1.0 - series * np.exp(-0.5 * z * z)
    return np.asarray(np.where(z >= 0.0, 0.5 * (1.0 + erf), 0.5 * (1.0 - erf)))
