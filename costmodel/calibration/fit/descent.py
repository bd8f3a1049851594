"""Robust least squares below upper bounds: Levenberg-Marquardt on the normal equations.

scipy's trust region takes a singular value decomposition of the whole Jacobian at every step, which for 2,500 residuals
of 500 unknowns takes three times as long as the derivatives. Here every unknown has a prior, so the normal equations
are never singular, and a Cholesky factor of them does: hundredths of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from costmodel.arrays import Bools, Num

_FIRST_DAMPING = 1e-2
_LEAST_DAMPING, _MOST_DAMPING = 1e-6, 1e6
_EASIER, _HARDER = 5.0, 5.0
_GOOD = 0.25  # of the descent that the quadratic model promised
# A residual far out has next to no curvature, or a negative one: the model keeps this share of its slope's weight.
_LEAST_CURVATURE = 0.05


@dataclass(frozen=True, kw_only=True)
class LeastSquares:
    """What is minimised: half the sum of ``loss(residuals(z) ** 2)`` over ``z <= upper``.

    Attributes:
        residuals, jacobian: of z.
        loss: squares -> loss, its first and its second derivative, as rows; as scipy's ``least_squares`` takes it.
        upper: bounds from above; infinite for none.
        scales: usual steps of the unknowns.
    """

    residuals: Callable[[Num], Num]
    jacobian: Callable[[Num], Num]
    loss: Callable[[Num], Num]
    upper: Num
    scales: Num

    def cost(self, residuals: Num) -> float:
        """Half the sum of the losses."""
        return 0.5 * float(self.loss(residuals**2)[0].sum())


def descend(problem: LeastSquares, start: Num, *, steps: int, tolerance: float) -> Num:
    """Where the cost is least, as far as ``steps`` derivatives lead.

    Args:
        problem: what is minimised.
        start: where to begin, inside of the bounds.
        steps: most evaluations of the Jacobian.
        tolerance: relative descent of the cost below which a step is the last.
    """
    z, damping = start, _FIRST_DAMPING
    residuals = problem.residuals(z)
    cost = problem.cost(residuals)
    for _ in range(steps):
        gradient, curvature = _model(problem, problem.jacobian(z), residuals)
        before = cost
        free = ~((z >= problem.upper) & (gradient < 0.0))
        while damping <= _MOST_DAMPING:
            step = np.minimum(z + _step(gradient, curvature, free, damping / problem.scales**2), problem.upper) - z
            there = problem.residuals(z + step)
            lower = problem.cost(there)
            promised = -float(gradient @ step + 0.5 * step @ curvature @ step)
            if lower < cost:
                if cost - lower > _GOOD * promised:
                    damping = max(damping / _EASIER, _LEAST_DAMPING)
                z, residuals, cost = z + step, there, lower
                break
            damping = max(damping * _HARDER, _FIRST_DAMPING)
        if before - cost <= tolerance * cost:
            break
    return z


def _model(problem: LeastSquares, jacobian: Num, residuals: Num) -> tuple[Num, Num]:
    """Gradient and curvature of the cost."""
    _, slope, bend = problem.loss(residuals**2)
    return jacobian.T @ (slope * residuals), _curvature(jacobian, residuals, slope, bend, _LEAST_CURVATURE)


def _curvature(jacobian: Num, residuals: Num, slope: Num, bend: Num, least: float) -> Num:
    """Second derivatives of the cost; no residual has less than the ``least`` share of its slope's weight."""
    weights = np.maximum(slope + 2.0 * bend * residuals**2, least * slope)
    weighted = jacobian * np.sqrt(weights)[:, None]
    result: Num = weighted.T @ weighted
    return result


def _step(gradient: Num, curvature: Num, free: Bools, damping: Num) -> Num:
    """The least of the damped model; what the bounds hold stays."""
    step = np.zeros_like(gradient)
    damped = curvature[np.ix_(free, free)] + np.diag(damping[free])
    step[free] = -cho_solve(cho_factor(damped), gradient[free])
    return step


def curvature(problem: LeastSquares, z: Num) -> Num:
    """Second derivatives of the cost, as far as the residuals are linear."""
    residuals = problem.residuals(z)
    _, slope, bend = problem.loss(residuals**2)
    return _curvature(problem.jacobian(z), residuals, slope, bend, 0.0)
