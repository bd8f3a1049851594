"""What rows of parameters are about, and how much of a case one names."""

from __future__ import annotations

from typing import Protocol


class Keyed(Protocol):
    """Anything that says what it is about; None is any."""

    @property
    def accelerator(self) -> str | None: ...
    @property
    def family(self) -> str | None: ...
    @property
    def precision(self) -> str | None: ...
    @property
    def framework(self) -> str | None: ...


def specificity(
    row: Keyed, accelerator: str, family: str, precisions: tuple[str, str | None], framework: str
) -> tuple[int, int, int] | None:
    """How much of the case the row names, for comparison; None when it is about another case."""
    if row.accelerator not in (None, accelerator) or row.family not in (None, family):
        return None
    if row.precision not in (None, *precisions) or row.framework not in (None, framework):
        return None
    hardware = 2 if row.accelerator else 1 if row.family else 0
    numbers = 2 if row.precision == precisions[0] else 1 if row.precision else 0
    return hardware, numbers, int(row.framework is not None)
