"""What a fit moved, in terms that can be printed: from where, to where, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Any

from costmodel.calibration.fit.fit import Fitted
from costmodel.calibration.fit.tree import Key

# In standard errors. What lies closer to where it began, the runs can't tell from it.
_TELLS = 1.0


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One parameter for one class of cases.

    Attributes:
        key: what it is about.
        before, after, standard_error: in the parameter's unit; before is the prior, or what the more general row has.
        runs, groups: what it rests on.
    """

    name: str
    key: Key
    before: float
    after: float
    standard_error: float
    runs: int
    groups: int

    @property
    def about(self) -> str:
        """The class in words."""
        return ", ".join(part for part in self.key if part) or "every case"

    @property
    def surety(self) -> float:
        """How many standard errors it moved."""
        return abs(self.after - self.before) / self.standard_error

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            **self.key._asdict(),
            "before": self.before,
            "after": self.after,
            "standard_error": self.standard_error,
            "runs": self.runs,
            "groups": self.groups,
        }


def moved_rows(fitted: Fitted) -> tuple[tuple[Moved, ...], int]:
    """(what moved further than its standard error, the surest first; how many more rows could have)."""
    moved: list[Moved] = []
    steady = 0
    for row, found in zip(fitted.tree.rows, fitted.found, strict=True):
        if found.log_error is None:
            continue
        after = exp(found.log_value)
        entry = Moved(
            name=row.name,
            key=row.key,
            before=exp(found.log_before),
            after=after,
            standard_error=after * found.log_error,
            runs=found.runs,
            groups=found.groups,
        )
        if entry.surety > _TELLS:
            moved.append(entry)
        else:
            steady += 1
    return tuple(sorted(moved, key=lambda entry: -entry.surety)), steady
