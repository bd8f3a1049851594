"""Calibrations as they are listed, where the numbers of one come from, and in what two differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.fidelity.meanings import meaning_of
from costmodel.calibration.calibration import Calibration, ParameterRow
from costmodel.spec.validation import build
from db import records

_ANY = "anything else"


def calibration_of(record: records.Calibration) -> Calibration:
    """The calibration that a record keeps.

    Raises:
        InvalidInput: it was stored by a version whose parameters were others.
    """
    return build(Calibration, record.spec, "calibration")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A calibration in the list.

    Attributes:
        asked: what asks for it in a query string: its name, or its id where an earlier one has that name.
        title: its name, with the id where another one has that name.
        fitted_on: how many runs, on what; empty where it doesn't say.
    """

    id: str
    asked: str
    title: str
    retrieved: str
    source: str
    fitted_on: str
    parameters: int
    current: bool


def listed(found: Sequence[records.Calibration], current: str) -> list[Listed]:
    """All of them; ``current`` is the id of the one that new questions are answered under."""
    names = [record.name for record in found]
    return [
        Listed(
            id=record.id,
            asked=record.name if names.index(record.name) == place else record.id,
            title=record.name if names.count(record.name) == 1 else f"{record.name} ({record.id[:8]})",
            retrieved=record.retrieved,
            source=record.source,
            fitted_on=_fitted_on(record.spec),
            parameters=len(record.spec.get("parameters", ())),
            current=record.id == current,
        )
        for place, record in enumerate(found)
    ]


@dataclass(frozen=True, kw_only=True)
class Value:
    """A row of a parameter, as texts."""

    applies_to: str
    value: str
    error: str
    provenance: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter with every row of it."""

    name: str
    meaning: str
    values: tuple[Value, ...]


def provenance(calibration: Calibration) -> list[Parameter]:
    """Every parameter with every row, in the order of the file."""
    rows: dict[str, list[ParameterRow]] = {}
    for row in calibration.parameters:
        rows.setdefault(row.name, []).append(row)
    return [
        Parameter(
            name=name,
            meaning=meaning_of(name),
            values=tuple(_value(row) for row in found),
        )
        for name, found in rows.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A row in which two calibrations differ; None where one has none of it."""

    name: str
    applies_to: str
    value: float | None
    against: float | None

    @property
    def ratio(self) -> float | None:
        """Of the second over the first."""
        return self.against / self.value if self.value and self.against is not None else None

    @property
    def meaning(self) -> str:
        """Of the parameter."""
        return meaning_of(self.name)

    @property
    def cells(self) -> tuple[str, str, str]:
        """Both values and their ratio, as texts."""
        return (
            "" if self.value is None else _figure(self.value),
            "" if self.against is None else _figure(self.against),
            "" if self.ratio is None else f"{self.ratio:.3f}",
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("name", "applies_to", "value", "against", "ratio")
        return {name: getattr(self, name) for name in names}


def differences(one: Calibration, other: Calibration) -> tuple[list[Difference], int]:
    """Rows whose values differ, the farthest apart first within each kind, and how many are the same."""
    first, second = _by_case(one), _by_case(other)
    cases = list(dict.fromkeys((*first, *second)))
    found = [
        Difference(name=case[0], applies_to=case[1], value=first.get(case), against=second.get(case))
        for case in cases
        if first.get(case) != second.get(case)
    ]
    return sorted(found, key=_how_far, reverse=True), len(cases) - len(found)


def _how_far(difference: Difference) -> float:
    ratio = difference.ratio
    return max(ratio, 1.0 / ratio) if ratio else 0.0


def _by_case(calibration: Calibration) -> dict[tuple[str, str], float]:
    return {(row.name, _applies_to(row)): row.value for row in calibration.parameters}


def _applies_to(row: ParameterRow) -> str:
    named = (row.accelerator, row.family and f"{row.family} family", row.precision, row.framework)
    return ", ".join(text for text in named if text) or _ANY


def _value(row: ParameterRow) -> Value:
    return Value(
        applies_to=_applies_to(row),
        value=_figure(row.value),
        error="" if row.standard_error is None else f"{row.standard_error:.2g}",
        provenance=row.provenance,
        source=row.source,
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


def _fitted_on(spec: dict[str, Any]) -> str:
    ranges = spec.get("ranges") or ()
    if not ranges:
        return ""
    runs = sum(found["runs"] for found in ranges)
    families = {found["family"] for found in ranges}
    frameworks = {found["framework"] for found in ranges}
    return f"{runs:,} runs: {len(families)} families of accelerators, {len(frameworks)} frameworks"
