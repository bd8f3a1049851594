"""What a term is: named outputs computed from declared plan axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from costmodel.arrays import Num
from costmodel.facts import Facts


class Axes:
    """Columns of the plan axes that a term declared, as attributes; reading any other is an error."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Num]) -> None:
        self._columns = columns

    def __getattr__(self, name: str) -> Num:
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(f"this term does not declare the axis {name!r}") from None


Outputs = Mapping[str, Num]


@dataclass(frozen=True, kw_only=True)
class Term:
    """One physical effect.

    Attributes:
        name: how it is called in tables and tests.
        axes: the plan axes it reads; its value is the same for plans that agree on them.
        gives: names of its outputs; facts of which a part is no matter leave some out.
        evaluate: elementwise function of facts and axes; every output broadcasts against the axes.
    """

    name: str
    axes: tuple[str, ...]
    gives: tuple[str, ...]
    evaluate: Callable[[Facts, Axes], Outputs]
