"""The values that priors and runs agree on best: a robust, hierarchical maximum a posteriori fit.

Unknowns are the logs of all free rows and, per study, one effect: runs of a study share a cluster, a software release
and a way to measure, which no parameter speaks of. What is minimised:

    sum_i w_i * rho((log y_i - log f_i(x) - u_study(i)) / scale)          the runs
    + sum_r ((x_r - m_r) / s_r)^2                                         priors, or the distance from the parent
    + sum_s (u_s / study_spread)^2                                        effects of studies

with ``rho(z^2) = c ln(1 + z^2 / c)`` (Cauchy), which lets runs that nothing explains go, and ``w_i`` a power of the
number of runs of the study, since those of one sweep repeat each other. ``descent`` does the minimising.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Ints, Num
from costmodel.calibration.fit.descent import LeastSquares, curvature, descend
from costmodel.calibration.fit.errors import COVERED_DEVIATIONS
from costmodel.calibration.fit.measured import Measured
from costmodel.calibration.fit.support import supported_share
from costmodel.calibration.fit.tree import Tree
from costmodel.calibration.parameters import OF_MEMORY, PARAMETER_NAMES, SHARES_OF_ONE

_BUMP = -1e-3  # towards less, where no share is cut off at one
# Times that all runs are priced at once for derivatives: most of what prices a thousand runs is the same for few.
_AT_ONCE = 5
_TOLERANCE = 1e-4
_MEMORY_OF_A_PLACE = 0.2  # plans of one place differ in what they keep, so a few tell little of the others
_WITHIN_A_PLACE = 0.3  # of the error of a class: how far runs of one place differ among themselves


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How far runs are believed.

    Attributes:
        time_scale, memory_scale: relative error of one run whose physics is right.
        study_spread, memory_study_spread: standard deviation of the log effect of a study on its times, and on its
            memory figures, in which clusters and releases differ less.
        study_power: a run weighs ``(runs of its study) ** -study_power``.
        cut: squared errors, in scales, beyond which a run counts ever less.
        steps: most steps of the descent.
    """

    time_scale: float = 0.06
    memory_scale: float = 0.06
    study_spread: float = 0.08
    memory_study_spread: float = 0.02
    study_power: float = 0.4
    cut: float = 4.0
    steps: int = 30


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What one figure of the runs says.

    Attributes:
        rows: positions in the tree of the rows that were free.
        log_values, log_errors: of each of them.
        share: of the move that the fit asked for, what was made; runs of one place that disagree support less of it.
        runs, groups: how many runs each holds for, and of how many groups.
        study_effects: study -> log of measured over predicted that no row explains.
        residuals: per run, log of measured over predicted, with the effect of its study in it.
    """

    rows: Ints
    log_values: Num
    log_errors: Num
    share: float
    runs: Ints
    groups: Ints
    study_effects: Mapping[str, float]
    residuals: Num


def solve(tree: Tree, measured: Measured, settings: Settings | None = None, *, study_effects: bool = True) -> Solution:
    """The most probable values of the rows that the measured figure depends on.

    Args:
        tree: the rows, with priors.
        measured: the runs.
        settings: how far runs are believed.
        study_effects: False when all runs are of whom the calibration is for: then what they share is to be learned.
    """
    problem = _Problem(tree, measured, settings or Settings(), study_effects)
    squares = problem.squares()
    found = descend(squares, problem.start(), steps=problem.settings.steps, tolerance=_TOLERANCE)
    share = 1.0
    if not study_effects:
        before = problem.as_priors()
        residuals, moved = problem.measured.logs - problem.predicted(before), problem.predicted(found)
        share = supported_share(residuals, moved - problem.predicted(before))
        found = before + share * (found - before)
    return problem.solution(found, share, np.sqrt(np.diag(np.linalg.inv(curvature(squares, found)))))


class _Problem:
    """Residuals and their derivatives, in the order: runs, rows, effects of studies."""

    def __init__(self, tree: Tree, measured: Measured, settings: Settings, study_effects: bool) -> None:
        self.tree, self.measured, self.settings = tree, measured, settings
        self.several = measured.take(np.tile(np.arange(len(measured)), _AT_ONCE))
        self.holding = tree.rows_of(measured.cases)
        self.names = [
            name
            for name in PARAMETER_NAMES
            if (name in OF_MEMORY) == (measured.figure == "memory")
            and any(tree.rows[row].spread is not None for row in np.unique(self.holding[name]).tolist())
        ]
        told = tree.ancestry(np.unique(np.concatenate([self.holding[name] for name in self.names])).tolist())
        free = [index for index in told if tree.rows[index].spread is not None]
        self.free = np.array(free, dtype=np.int64)
        self.spreads = np.array([tree.rows[i].spread for i in free], dtype=float)
        self.position = np.full(len(tree.rows), -1, dtype=np.int64)
        self.position[self.free] = np.arange(self.free.size)
        self.fixed = _first_values(tree, start=False)
        with np.errstate(divide="ignore"):
            self.logs = np.log(self.fixed)
        self.studies, self.study = np.unique(measured.studies, return_inverse=True)
        self.effects = self.studies.size if study_effects else 0
        counts = np.bincount(self.study)[self.study]
        scale: Num = np.full(len(measured), settings.time_scale if measured.figure == "time" else settings.memory_scale)
        if not study_effects:
            # Where to begin is a calibration that has been held against runs: it knows how far a run may lie from it.
            known = np.log1p(self.fixed[self.holding["time_relative_error"]]) / COVERED_DEVIATIONS
            scale = np.maximum(scale, _WITHIN_A_PLACE * known if measured.figure == "time" else _MEMORY_OF_A_PLACE)
        power = settings.study_power if study_effects else 0.0
        self.study_spread = settings.study_spread if measured.figure == "time" else settings.memory_study_spread
        self.weights = counts ** (-power / 2.0)
        self.precision = self.weights / scale
        self.prior_matrix, self.prior_target = self._priors()
        shares = np.array([tree.rows[i].name in SHARES_OF_ONE for i in free], dtype=bool)
        self.upper = np.concatenate([np.where(shares, 0.0, np.inf), np.full(self.effects, np.inf)])
        self.scales = np.concatenate([self.spreads, np.full(self.effects, self.study_spread)])

    def _priors(self) -> tuple[Num, Num]:
        """Residuals of rows as ``matrix @ x - target``."""
        matrix, target = np.diag(1.0 / self.spreads), np.zeros(self.free.size)
        for line, index in enumerate(self.free.tolist()):
            parent = self.tree.rows[index].parent
            if parent is not None and self.position[parent] >= 0:
                matrix[line, self.position[parent]] = -1.0 / self.spreads[line]
            else:
                target[line] = self.logs[index if parent is None else parent] / self.spreads[line]
        return matrix, target

    def squares(self) -> LeastSquares:
        """What is minimised."""
        return LeastSquares(
            residuals=self.residuals, jacobian=self.jacobian, loss=self.loss, upper=self.upper, scales=self.scales
        )

    def start(self) -> Num:
        """Where the descent begins: the priors, or where they say to look."""
        first = np.log(_first_values(self.tree, start=True)[self.free])
        begin: Num = np.minimum(np.concatenate([first, np.zeros(self.effects)]), self.upper)
        return begin

    def as_priors(self) -> Num:
        """All rows as the priors have them."""
        return self.logs[self.free]

    def predicted(self, z: Num) -> Num:
        """Logs of the figures."""
        predicted: Num = self.measured.predicted(self._columns(z))
        return predicted

    def _columns(self, z: Num) -> dict[str, Num]:
        """The value of every parameter for every run."""
        # What no run moves is as the priors have it to the last bit: a multiple of 64 is not one of exp(log(64)).
        values = self.fixed.copy()
        values[self.free] = np.exp(z[: self.free.size])
        return {name: values[rows] for name, rows in self.holding.items()}

    def _bumped(self, z: Num) -> Iterator[tuple[str, Num]]:
        """Logs of the figures where one parameter after the other is a little less."""
        columns = self._columns(z)
        for begin in range(0, len(self.names), _AT_ONCE):
            names = self.names[begin : begin + _AT_ONCE]
            several = {name: np.tile(column, (_AT_ONCE, 1)) for name, column in columns.items()}
            for place, name in enumerate(names):
                several[name][place] *= np.exp(_BUMP)
            found = self.several.predicted({name: column.ravel() for name, column in several.items()})
            yield from zip(names, found.reshape(_AT_ONCE, -1), strict=False)

    def residuals(self, z: Num) -> Num:
        """All residuals, in standard deviations."""
        error = self.measured.logs - self.predicted(z)
        effects = z[self.free.size :]
        if self.effects:
            error = error - effects[self.study]
        of_rows = self.prior_matrix @ z[: self.free.size] - self.prior_target
        together: Num = np.concatenate([error * self.precision, of_rows, effects / self.study_spread])
        return together

    def jacobian(self, z: Num) -> Num:
        """Derivatives of the residuals.

        A row moves only the runs it holds for, so all rows of a parameter are moved at once and told apart after.
        """
        before, runs, rows = self.predicted(z), len(self.measured), self.free.size
        result = np.zeros((runs + z.size, z.size))
        for name, bumped in self._bumped(z):
            column = self.position[self.holding[name]]
            moved = np.flatnonzero(column >= 0)
            slope = (bumped - before) / _BUMP
            result[moved, column[moved]] -= (slope * self.precision)[moved]
        result[runs : runs + rows, :rows] = self.prior_matrix
        if self.effects:
            result[np.arange(runs), rows + self.study] = -self.precision
            result[runs + rows :, rows:] = np.eye(self.effects) / self.study_spread
        return result

    def loss(self, squares: Num) -> Num:
        """Cauchy on the runs, plain squares on the rest; a run's weight doesn't decide whether it is an outlier."""
        runs, cut = len(self.measured), self.settings.cut * self.weights**2
        result = np.vstack([squares, np.ones_like(squares), np.zeros_like(squares)])
        beyond = 1.0 + squares[:runs] / cut
        result[:, :runs] = cut * np.log(beyond), 1.0 / beyond, -1.0 / (cut * beyond**2)
        return result

    def solution(self, z: Num, share: float, errors: Num) -> Solution:
        """The found values, with their errors from the curvature."""
        rows, count = self.free.size, len(self.tree.rows)
        _, group = np.unique(self.measured.groups, return_inverse=True)
        told = np.zeros((count, len(self.measured)), dtype=bool)
        for name in self.names:
            told[self.holding[name], np.arange(len(self.measured))] = True
        # What holds for a class speaks of all classes that lie around it; a parent comes before its children.
        for index in reversed(range(count)):
            parent = self.tree.rows[index].parent
            if parent is not None:
                told[parent] |= told[index]
        runs = told.sum(axis=1)
        groups = np.array([np.unique(group[row]).size for row in told])
        return Solution(
            rows=self.free,
            log_values=z[:rows],
            log_errors=errors[:rows],
            share=share,
            runs=runs[self.free],
            groups=groups[self.free],
            study_effects=dict(zip(self.studies.tolist(), z[rows:].tolist(), strict=False)),
            residuals=self.measured.logs - self.predicted(z),
        )


def _first_values(tree: Tree, *, start: bool) -> Num:
    """All rows as the priors have them, or where a fit begins; a row of the runs' is as its parent."""
    values = np.empty(len(tree.rows))
    for index, row in enumerate(tree.rows):
        if start and row.start is not None:
            values[index] = row.start
        elif row.prior is not None:
            values[index] = row.prior.value
        else:
            assert row.parent is not None, "a row without a prior has a parent"
            values[index] = values[row.parent]
    return values
