"""How far off predictions are for each value of an axis: quantiles of predicted over measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from api.dashboard.fidelity.quantities import Quantity
from api.dashboard.fidelity.runs import View
from costmodel.runs.columns import Run
from costmodel.runs.words import recompute_of, sharding_of
from costmodel.spec.plan import RECOMPUTES

# Beyond so many different values of an axis they are told by powers of two.
_MOST_VALUES = 9
_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_UNSAID = "not said"
# What a strip shows: half to double.
_HALF_WIDTH = np.log(2.0)

# Names as people say them; of each run a number, a word, or None where it doesn't say.
_AXES: tuple[tuple[str, Callable[[Run], int | str | None]], ...] = (
    ("devices", lambda run: run.devices),
    ("tp", lambda run: run.tp),
    ("pp", lambda run: run.pp),
    ("cp", lambda run: run.cp),
    ("dp", lambda run: run.dp),
    ("ep", lambda run: run.ep),
    ("micro-batch", lambda run: run.micro_batch),
    ("ZeRO stage", lambda run: sharding_of(run.zero_stage)[0]),
    ("recompute", lambda run: recompute_of(run.recompute)[0]),
)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs with one value of an axis.

    Attributes:
        quantiles: of predicted over measured, at 5, 25, 50, 75 and 95 %.
        inside: share of the measured values that lie in their interval; None where none has one.
    """

    value: str
    runs: int
    quantiles: tuple[float, float, float, float, float]
    inside: float | None

    @property
    def strip(self) -> tuple[float, ...]:
        """Where the quantiles lie on a strip from half to double, 0 to 100; cut at its ends."""
        return tuple(
            round(float(50.0 * (1.0 + np.clip(np.log(value) / _HALF_WIDTH, -1.0, 1.0))), 1) for value in self.quantiles
        )


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """An axis with its values, in their order."""

    axis: str
    groups: tuple[Group, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@lru_cache(maxsize=32)
def residuals_of(view: View, shown: Quantity) -> tuple[Residuals, ...]:
    """For every axis that takes more than one value."""
    rows = np.array(shown.rows, dtype=int)
    found: list[Residuals] = []
    for axis, value_of in _AXES:
        labels = _labels([value_of(view.runs[row]) for row in rows])
        # In the order of the values, what isn't said last.
        names = [name for name, _ in sorted(set(labels), key=lambda label: label[1])]
        if len(names) < 2:
            continue
        told = np.array([name for name, _ in labels])
        found.append(Residuals(axis=axis, groups=tuple(_group(shown, name, rows[told == name]) for name in names)))
    return tuple(found)


def _group(shown: Quantity, name: str, rows: np.ndarray[Any, Any]) -> Group:
    low, q1, middle, q3, high = (float(value) for value in np.quantile(shown.ratio[rows], _SHARES))
    bounded = rows[shown.bounded[rows]]
    inside = float(shown.inside[bounded].mean()) if bounded.size else None
    return Group(value=name, runs=int(rows.size), quantiles=(low, q1, middle, q3, high), inside=inside)


def _labels(values: list[int | str | None]) -> list[tuple[str, tuple[int, int, str]]]:
    """Of each value how it is called, and where it stands."""
    numbers = {value for value in values if isinstance(value, int)}
    return [_label(value, in_powers=len(numbers) > _MOST_VALUES) for value in values]


def _label(value: int | str | None, *, in_powers: bool) -> tuple[str, tuple[int, int, str]]:
    if value is None:
        return _UNSAID, (2, 0, "")
    if isinstance(value, str):
        return value, (1, [*RECOMPUTES, value].index(value), value)
    if not in_powers or value < 2:
        return f"{value:,}", (0, value, "")
    least = 1 << (value.bit_length() - 1)
    return f"{least:,}–{2 * least - 1:,}", (0, least, "")
