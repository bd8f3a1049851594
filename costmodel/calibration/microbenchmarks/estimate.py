"""The values that priors and kernels and collectives measured alone agree on best: robust maximum a posteriori.

Unknowns are logs of parameters, one per device (and precision). What is minimised:

    sum_i w_i * rho((log y_i - log f_i(x)) / scale)      the rows
    + sum_j rho((x_j - m_j) / s_j)                       how far one place may lie from what is known of such devices

with ``w_i`` a power of the rows of a sweep, since those repeat each other, and ``rho`` linear beyond a few scales: wild
rows decide little, and neither do priors against rows that agree, so that a fabric at a third of its rate is found. A
scale is what a sweep shows, as far as its rows are many, else what is known of the formula's error: a sweep that the
formula doesn't describe counts little. What rows hardly tell stays as it was: it is taken out, and the rest is fitted
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from costmodel.arrays import Bools, Ints, Num
from costmodel.calibration.fit.priors import Prior, Priors
from costmodel.calibration.keys import specificity
from costmodel.calibration.microbenchmarks.evidence import NO_FRAMEWORK, Evidence, Place
from costmodel.calibration.microbenchmarks.settings import MicrobenchmarkSettings, OwnValue
from costmodel.calibration.parameters import PARAMETER_NAMES, SHARES_OF_ONE

_SWEEP_POWER = 0.4
_CUT = 4.0  # squared errors, in scales, beyond which they count linearly
_LEAST_OF_KNOWN = 0.5
_MANY = 10.0  # rows that weigh as much as what is known of a formula's error
# Standard error over what was known before; what isn't told better than this isn't told, unless it lies so many of its
# errors away: priors and rows that disagree leave a wide error.
_TOLD, _FAR = 0.8, 3.0
_MOVES = 1e-9
_NEAREST_TO_ONE = 1e-4
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One parameter of one device.

    Attributes:
        prior: the row that held before.
        standard_error: in the parameter's unit, as the value is.
        told: whether the rows tell it better than what was known; else the value is that of before.
        kinds: what it was told by; ``rows``, ``sweeps``: how many of them depend on it.
    """

    name: str
    accelerator: str
    family: str
    precision: str | None
    prior: Prior
    value: float
    standard_error: float
    told: bool
    kinds: tuple[str, ...]
    rows: int
    sweeps: int


@dataclass(frozen=True, kw_only=True)
class Estimated:
    """What evidence says.

    Attributes:
        errors: kind of evidence -> median of |predicted over measured - 1|, before and after.
    """

    estimates: tuple[Estimate, ...]
    errors: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class _Unknown:
    own: OwnValue
    accelerator: str
    family: str
    precision: str | None
    prior: Prior

    @property
    def centre(self) -> float:
        return log(self.prior.value)

    @property
    def spread(self) -> float:
        return hypot(self.prior.spread or 0.0, self.own.spread)


def estimate(evidence: Sequence[Evidence], priors: Priors, settings: MicrobenchmarkSettings) -> Estimated:
    """What the evidence says of every parameter that it depends on."""
    problem = _Problem(evidence, priors, settings)
    free = np.ones(len(problem.unknowns), dtype=bool)
    # Once: scales that follow residuals that follow scales would end where nothing is learned.
    first, _ = problem.solved([of.scales for of in evidence], free)
    scales = [scales_of(of, left) for of, left in zip(evidence, problem.residuals(first), strict=True)]
    for _ in range(_ROUNDS):
        values, errors = problem.solved(scales, free)
        sure, far = errors < _TOLD * problem.spreads, np.abs(values - problem.centres) > _FAR * errors
        told = free & (sure | far)
        if (told == free).all():
            break
        free = told
    before, after = problem.residuals(problem.centres), problem.residuals(np.where(free, values, problem.centres))
    return Estimated(
        estimates=problem.estimates(values, errors, free),
        errors={of.kind: (_error(b), _error(a)) for of, b, a in zip(evidence, before, after, strict=True)},
    )


class _Problem:
    """Residuals of all evidence under the unknowns."""

    def __init__(self, evidence: Sequence[Evidence], priors: Priors, settings: MicrobenchmarkSettings) -> None:
        self.evidence = evidence
        self.unknowns: list[_Unknown] = []
        positions: dict[tuple[str, str, str | None], int] = {}
        # Per evidence: parameter -> which unknown holds for each row; -1 for none.
        self.holding: list[dict[str, Ints]] = []
        for of in evidence:
            holding: dict[str, Ints] = {}
            for own in settings.parameters:
                if own.name in of.told_by:
                    holding[own.name] = np.array([self._position(own, place, priors, positions) for place in of.places])
            self.holding.append(holding)
        self.centres = np.array([unknown.centre for unknown in self.unknowns])
        self.spreads = np.array([unknown.spread for unknown in self.unknowns])
        self.weights = [_weights(of.alike) for of in evidence]
        self.moves = self._moving()

    def _position(
        self, own: OwnValue, place: Place, priors: Priors, positions: dict[tuple[str, str, str | None], int]
    ) -> int:
        accelerator, family = place.cluster.accelerator.name, place.cluster.accelerator.family
        precision = place.calibrated_as if "precision" in own.by else None
        key = own.name, accelerator, precision
        if key not in positions:
            prior = holding_prior(priors, own.name, place)
            positions[key] = len(self.unknowns) if prior.value > 0 else -1
            if prior.value > 0:
                self.unknowns.append(
                    _Unknown(own=own, accelerator=accelerator, family=family, precision=precision, prior=prior)
                )
        return positions[key]

    def _predicted(self, of: int, x: Num) -> Num:
        evidence = self.evidence[of]
        values = {name: np.array(getattr(evidence.base, name), dtype=float) for name in PARAMETER_NAMES}
        for name, position in self.holding[of].items():
            known = position >= 0
            values[name] = np.where(known, np.exp(x[np.maximum(position, 0)]), values[name])
        return evidence.predicted(values)

    def residuals(self, x: Num) -> list[Num]:
        """Log of measured over predicted, per evidence."""
        return [of.logs - self._predicted(index, x) for index, of in enumerate(self.evidence)]

    def _moving(self) -> list[Bools]:
        """Per evidence: rows x unknowns, where the unknown moves the row."""
        found: list[Bools] = []
        for of in range(len(self.evidence)):
            before = self._predicted(of, self.centres)
            columns = []
            for unknown in range(len(self.unknowns)):
                moved = self.centres.copy()
                moved[unknown] -= 0.5 * self.spreads[unknown]
                columns.append(np.abs(self._predicted(of, moved) - before) > _MOVES)
            found.append(np.stack(columns, axis=1))
        return found

    def solved(self, scales: Sequence[Num], free: Bools) -> tuple[Num, Num]:
        """(values, errors of the log); what isn't free is as before."""
        if not free.any():
            return self.centres, self.spreads
        weights = np.concatenate(self.weights)

        def whole(x: Num) -> Num:
            values = self.centres.copy()
            values[free] = x
            return values

        def residuals(x: Num) -> Num:
            values = whole(x)
            left = zip(self.residuals(values), self.weights, scales, strict=True)
            of_rows = [of * weight / scale for of, weight, scale in left]
            return np.concatenate([*of_rows, (x - self.centres[free]) / self.spreads[free]])

        cut = _CUT * np.concatenate([weights, np.ones(int(free.sum()))]) ** 2

        def pseudo_huber(squares: Num) -> Num:
            root = np.sqrt(1.0 + squares / cut)
            return np.vstack([2.0 * cut * (root - 1.0), 1.0 / root, -0.5 / (cut * root**3)])

        shares = np.array([unknown.own.name in SHARES_OF_ONE for unknown in self.unknowns])[free]
        upper = np.where(shares, 0.0, np.inf)
        loss: Any = pseudo_huber  # scipy's annotations know its arrays' dimensions, ours don't
        found = least_squares(
            residuals,
            np.minimum(self.centres[free], upper - _NEAREST_TO_ONE),
            bounds=(-np.inf, upper),
            loss=loss,
            x_scale=self.spreads[free],
        )
        jacobian = np.asarray(found.jac)
        values, errors = whole(found.x), self.spreads.copy()
        errors[free] = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
        return values, errors

    def estimates(self, values: Num, errors: Num, told: Bools) -> tuple[Estimate, ...]:
        """Every unknown that moves any row."""
        found: list[Estimate] = []
        for index, unknown in enumerate(self.unknowns):
            moved = [moves[:, index] for moves in self.moves]
            if not any(rows.any() for rows in moved):
                continue
            sweeps = {
                sweep
                for of, rows in zip(self.evidence, moved, strict=True)
                for sweep, moves in zip(of.sweeps, rows.tolist(), strict=True)
                if moves
            }
            value = exp(values[index]) if told[index] else unknown.prior.value
            found.append(
                Estimate(
                    name=unknown.own.name,
                    accelerator=unknown.accelerator,
                    family=unknown.family,
                    precision=unknown.precision,
                    prior=unknown.prior,
                    value=value,
                    standard_error=value * float(errors[index]),
                    told=bool(told[index]),
                    kinds=tuple(of.kind for of, rows in zip(self.evidence, moved, strict=True) if rows.any()),
                    rows=sum(int(rows.sum()) for rows in moved),
                    sweeps=len(sweeps),
                )
            )
        return tuple(found)


def scales_of(evidence: Evidence, residuals: Num) -> Num:
    """Relative error of every row: what those alike show, and the fewer they are the more what is known of such rows.

    Never much less than that: of two sweeps that no one value fits, the one that happens to be met would soon decide.
    """
    _, of_row, counts = np.unique(np.array(evidence.alike), return_inverse=True, return_counts=True)
    shown = np.array([np.median(np.abs(residuals[of_row == group])) for group in range(len(counts))])
    # 1.4826: from the median to the standard deviation of a normal distribution.
    found: Num = (counts * 1.4826 * shown)[of_row]
    many = counts[of_row]
    scales: Num = np.maximum((found + _MANY * evidence.scales) / (many + _MANY), _LEAST_OF_KNOWN * evidence.scales)
    return scales


def holding_prior(priors: Priors, name: str, place: Place) -> Prior:
    """The row that holds for bare kernels and collectives of a place."""
    accelerator, precision = place.cluster.accelerator, place.precision
    precisions = precision.name, precision.calibrated_as
    found = [
        (rank, row)
        for row in priors.parameters
        if row.name == name
        and (rank := specificity(row, accelerator.name, accelerator.family, precisions, NO_FRAMEWORK)) is not None
    ]
    return max(found, key=lambda entry: entry[0])[1]


def _error(residuals: Num) -> float:
    return float(np.median(np.abs(np.expm1(-residuals))))


def _weights(alike: Sequence[str]) -> Num:
    """Per row; what residuals are multiplied with."""
    _, of_row, counts = np.unique(np.array(alike), return_inverse=True, return_counts=True)
    weights: Num = np.asarray(counts[of_row], dtype=float) ** (-_SWEEP_POWER / 2.0)
    return weights
