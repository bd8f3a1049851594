"""What the parameters that decide a case rest on: the accelerator itself, its family, another precision, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costmodel.calibration.keys import Keyed


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Parameters whose rows are about the same; None is any.

    Attributes:
        precision: the one that the rows are for, which may be another than the case's.
        framework: the engine, as parameters are keyed.
    """

    parameters: tuple[str, ...]
    accelerator: str | None
    family: str | None
    precision: str | None
    framework: str | None

    @property
    def text(self) -> str:
        """The same for people."""
        names = _listed(self.parameters)
        hardware = self.accelerator or self.family
        if not (hardware or self.precision or self.framework):
            return f"general values for {names}"
        where = [
            f"of {hardware}" if hardware else "",
            f"in {self.precision}" if self.precision else "",
            f"under {self.framework}" if self.framework else "",
        ]
        return " ".join((names, *filter(None, where)))


def bases_of(rows: Mapping[str, Keyed], names: Iterable[str]) -> tuple[Basis, ...]:
    """What parameters rest on, those together whose rows are about the same.

    Args:
        rows: parameter -> the row that holds for the case.
        names: the parameters that matter.
    """
    found: dict[tuple[str | None, ...], list[str]] = {}
    for name in names:
        row = rows[name]
        found.setdefault((row.accelerator, row.family, row.precision, row.framework), []).append(name)
    return tuple(
        Basis(parameters=tuple(names), accelerator=key[0], family=key[1], precision=key[2], framework=key[3])
        for key, names in found.items()
    )


def _listed(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
