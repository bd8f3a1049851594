"""The rows that a fit may move: those of the priors, and one for every class of cases that the runs show.

A row that the priors don't have lies around the value of the next more general one, its parent. So what little a class
says moves it little, and a class that no run speaks of has its parent's value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costmodel.arrays import Ints
from costmodel.calibration.fit.priors import KEY_FIELDS, Prior, Priors
from costmodel.calibration.keys import specificity
from costmodel.calibration.parameters import PARAMETER_NAMES
from costmodel.scenario import Scenario


class Key(NamedTuple):
    """What a row is about; None is any."""

    accelerator: str | None
    family: str | None
    precision: str | None
    framework: str | None


class Case(NamedTuple):
    """What a run is about, as calibrations are keyed."""

    accelerator: str
    family: str
    precision: str
    framework: str
    precision_like: str | None

    @classmethod
    def of(cls, scenario: Scenario) -> Case:
        """The case of a scenario."""
        accelerator, precision = scenario.cluster.accelerator, scenario.workload.precision
        return cls(
            accelerator.name, accelerator.family, precision.name, scenario.framework.name, precision.calibrated_as
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """One value to be found.

    Attributes:
        prior: the row of the priors; None for one that the runs brought up.
        parent: position of the next more general row; None for a row of the priors.
        spread: of the log around the prior, or around the parent; None: fixed.
        start: where a fit begins; None for the prior, or where the parent begins.
    """

    name: str
    key: Key
    prior: Prior | None
    parent: int | None
    spread: float | None
    start: float | None


@dataclass(frozen=True, kw_only=True)
class Tree:
    """All rows; a parent comes before its children."""

    rows: tuple[Row, ...]

    def rows_of(self, cases: Sequence[Case]) -> Mapping[str, Ints]:
        """Parameter -> for every case, the position of the row that holds for it."""
        by_name: dict[str, list[int]] = defaultdict(list)
        for position, row in enumerate(self.rows):
            by_name[row.name].append(position)
        kinds = {case: index for index, case in enumerate(dict.fromkeys(cases))}
        which = np.array([kinds[case] for case in cases], dtype=np.int64)
        return {
            name: np.array([self._holding(by_name[name], case) for case in kinds], dtype=np.int64)[which]
            for name in PARAMETER_NAMES
        }

    def ancestry(self, positions: Sequence[int]) -> list[int]:
        """Positions of some rows and of all that they lie around, in order."""
        found: set[int] = set()
        for position in positions:
            above: int | None = position
            while above is not None and above not in found:
                found.add(above)
                above = self.rows[above].parent
        return sorted(found)

    def _holding(self, positions: Sequence[int], case: Case) -> int:
        ranked = [(rank, p) for p in positions if (rank := _rank(self.rows[p].key, case)) is not None]
        return max(ranked, key=lambda entry: entry[0])[1]


def tree_of(priors: Priors, cases: Sequence[Case]) -> Tree:
    """The rows of the priors, and one more for every class of the cases that they don't have and can tell apart."""
    rows = [
        Row(name=prior.name, key=_key_of(prior), prior=prior, parent=None, spread=prior.spread, start=prior.start)
        for prior in priors.parameters
    ]
    kinds = sorted(set(cases), key=str)
    for entry in priors.classes:
        for level in entry.classes:
            known = {row.key for row in rows if row.name == entry.name}
            new = {_class_of(case, level.by): case for case in kinds}
            for key, case in new.items():
                if key in known:
                    continue
                parent = _parent(rows, entry.name, key, case)
                alike = not level.always and _same_cases(key, rows[parent].key, kinds)
                if rows[parent].spread is None or alike:
                    continue
                rows.append(
                    Row(name=entry.name, key=key, prior=None, parent=parent, spread=level.spread, start=entry.start)
                )
    return Tree(rows=tuple(rows))


def _key_of(prior: Prior) -> Key:
    return Key(*(getattr(prior, name) for name in KEY_FIELDS))


def _class_of(case: Case, by: Sequence[str]) -> Key:
    return Key(*(getattr(case, name) if name in by else None for name in KEY_FIELDS))


def _parent(rows: Sequence[Row], name: str, key: Key, case: Case) -> int:
    """The row that would hold for the class if it had none of its own: it names nothing that the class doesn't."""
    family = case.family if key.accelerator else key.family
    wanted = key._replace(family=family)
    found = [
        (rank, position)
        for position, row in enumerate(rows)
        if row.name == name
        and all(a is None or a == b for a, b in zip(row.key, wanted, strict=True))
        and (rank := _rank(row.key, case)) is not None
    ]
    return max(found, key=lambda entry: entry[0])[1]


def _same_cases(key: Key, parent: Key, cases: Sequence[Case]) -> bool:
    """Whether runs can't tell a class from its parent, being all of it."""
    return all(_rank(key, case) is not None for case in cases if _rank(parent, case) is not None)


def _rank(key: Key, case: Case) -> tuple[int, int, int] | None:
    precisions = case.precision, case.precision_like
    return specificity(key, case.accelerator, case.family, precisions, case.framework)
