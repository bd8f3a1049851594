"""The use of a fit: runs in, a calibration out, with what moved and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log

from costmodel.calibration.calibration import Calibration, ParameterRow, rounded
from costmodel.calibration.fit.errors import error_rows
from costmodel.calibration.fit.measured import CasesOf, Figure, Measured, measured_in
from costmodel.calibration.fit.observed_ranges import ranges_of
from costmodel.calibration.fit.priors import KEY_FIELDS, Priors, calibration_of
from costmodel.calibration.fit.solve import Settings, Solution, solve
from costmodel.calibration.fit.tree import Row, Tree, tree_of
from costmodel.calibration.ranges import merged
from costmodel.errors import InvalidInput
from costmodel.runs.cases import Case, Unpriced, cases_of
from costmodel.runs.columns import Run
from costmodel.spec.cluster import ClusterSpec

# Of the log. A row that lies no further from its parent, or from its prior, says no more than that. Hundreds of rows
# make a prediction, so what each of them may drop is little.
_TELLING = 2e-4
# Nor does one that lies within this share of its standard error: runs say nothing of it.
_TELLING_ERRORS = 0.02


@dataclass(frozen=True, kw_only=True)
class Found:
    """What became of one row.

    Attributes:
        log_before: of the prior, or of what was found for the parent.
        log_error: standard error; None where no run depends on it.
        runs, groups: how many it holds for.
    """

    log_value: float
    log_before: float
    log_error: float | None = None
    runs: int = 0
    groups: int = 0


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A calibration, and how it came about.

    Attributes:
        found: per row of the tree.
        figures: how many runs each was measured of.
    """

    calibration: Calibration
    tree: Tree
    found: tuple[Found, ...]
    solutions: Mapping[Figure, Solution]
    figures: Mapping[Figure, int]


def fit(
    runs: Sequence[Run],
    priors: Priors,
    *,
    name: str,
    retrieved: str,
    what: str = "runs",
    carried: bool = False,
    settings: Settings | None = None,
    study_effects: bool = True,
    known: ClusterSpec | None = None,
    as_cases: CasesOf = cases_of,
) -> Fitted:
    """The calibration that priors and measured runs agree on.

    Args:
        runs: those that weren't measured count for nothing.
        priors: where to begin.
        name, retrieved: of the calibration; the date is that of the runs.
        what: what the runs are, for the source of each row.
        carried: whether they are those that ship with the planner.
        settings: how far runs are believed.
        study_effects: False when all runs are of whom the calibration is for.
        known: the cluster of runs that name its accelerator, which need not be in the catalog.
        as_cases: what makes runs cases.

    Raises:
        InvalidInput: no run was measured that can be priced.
    """
    measured = measured_in(runs, calibration_of(priors), known, as_cases)
    if not measured:
        lacking = _nothing_to_learn(as_cases(tuple(runs), calibration_of(priors), known))
        raise InvalidInput("runs", f"{len(runs)} row{'s' * (len(runs) != 1)}", lacking)
    tree = tree_of(priors, [case for figure in measured for case in figure.cases])
    solutions = {figure.figure: solve(tree, figure, settings, study_effects=study_effects) for figure in measured}
    found = _found(tree, solutions.values())
    rows = [_row(tree, found, index, what) for index in range(len(tree.rows))]
    used = settings or Settings()
    spreads = {"time": used.study_spread, "memory": used.memory_study_spread}
    rows += _errors(measured, solutions, rows, what, {of: spreads[of] if study_effects else 0.0 for of in spreads})
    calibration = Calibration(
        name=name,
        retrieved=retrieved,
        fitted_to_carried_runs=carried,
        source=f"{what}, from {priors.name}: {priors.source}",
        ranges=merged(priors.ranges, ranges_of(measured)),
        parameters=tuple(row for row in rows if row is not None),
    )
    counts = {figure.figure: len(figure) for figure in measured}
    return Fitted(calibration=calibration, tree=tree, found=found, solutions=solutions, figures=counts)


def _nothing_to_learn(cases: Iterable[Case | Unpriced]) -> str:
    """Why no run counts, as most of them have it."""
    lacking = Counter(case.reason for case in cases if isinstance(case, Unpriced))
    said = "; ".join(f"{count} of them: {reason}" for reason, count in lacking.most_common(3))
    return "no row has a measured time or memory and says enough to be priced" + (f" ({said})" if said else "")


def _errors(
    measured: Sequence[Measured],
    solutions: Mapping[Figure, Solution],
    rows: Sequence[ParameterRow | None],
    what: str,
    study_spreads: Mapping[str, float],
) -> list[ParameterRow]:
    """Errors of the classes that no row has one for."""
    found: list[ParameterRow] = []
    for of in measured:
        name = f"{of.figure}_relative_error"
        known = [row for row in rows if row is not None and row.name == name]
        general = max(row.value for row in known if not any(getattr(row, field) for field in KEY_FIELDS))
        keys = {tuple(getattr(row, field) for field in KEY_FIELDS) for row in known}
        residuals, spread = solutions[of.figure].residuals, study_spreads[of.figure]
        new = error_rows(name, of.cases, of.groups, residuals, general, what, study_spread=spread)
        found += [row for row in new if tuple(getattr(row, field) for field in KEY_FIELDS) not in keys]
    return found


def _found(tree: Tree, solutions: Iterable[Solution]) -> tuple[Found, ...]:
    """Per row of the tree. What no run depends on stays as the priors have it, and its parent's where it has none."""
    told = {
        index: entry
        for of in solutions
        for index, *entry in zip(
            of.rows.tolist(),
            of.log_values.tolist(),
            of.log_errors.tolist(),
            of.runs.tolist(),
            of.groups.tolist(),
            strict=True,
        )
    }
    found: list[Found] = []
    for index, row in enumerate(tree.rows):
        if row.prior is not None:
            before = log(row.prior.value) if row.prior.value > 0 else -inf
        else:
            assert row.parent is not None, "a row without a prior has a parent, which comes before it"
            before = found[row.parent].log_value
        if index in told:
            value, error, runs, groups = told[index]
            found.append(Found(log_value=value, log_before=before, log_error=error, runs=runs, groups=groups))
        else:
            found.append(Found(log_value=before, log_before=before))
    return tuple(found)


def _row(tree: Tree, found: Sequence[Found], index: int, what: str) -> ParameterRow | None:
    """A row of the calibration; None for one that would say no more than its parent does."""
    row, told = tree.rows[index], found[index]
    as_before = None if row.prior is None else row.prior.as_row()
    if told.log_error is None:
        return as_before
    if abs(told.log_value - told.log_before) < max(_TELLING, _TELLING_ERRORS * told.log_error):
        return as_before
    value = exp(told.log_value)
    return ParameterRow(
        name=row.name,
        value=rounded(value),
        standard_error=rounded(value * told.log_error),
        **dict(zip(KEY_FIELDS, row.key, strict=True)),
        provenance="calibrated",
        source=f"fit to {told.runs} {what} of {told.groups} groups; {_before(tree, row)}",
    )


def _before(tree: Tree, row: Row) -> str:
    if row.prior is not None:
        return f"before: {row.prior.value:.4g}, {row.prior.source}"
    assert row.parent is not None
    general = [part for part in tree.rows[row.parent].key if part] or ["every case"]
    return f"around that of {' and '.join(general)}"
