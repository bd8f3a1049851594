"""What all nouns share: frozen, keyword-only, strict about unknown keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

K = TypeVar("K")
V = TypeVar("V")


class Frozen(BaseModel):
    """An immutable value: equal by content, hashable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FrozenMap(Mapping[K, V]):
    """A small mapping that can't be changed, so that the value that holds it can be hashed, shared and pickled."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def _plain(value: Mapping[K, V]) -> dict[K, V]:
    return dict(value)


def _iso_date(value: Any) -> Any:
    """YAML turns an unquoted 2026-11-29 into a date; either way the text of it is kept."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and value:
        try:
            date.fromisoformat(value)
        except ValueError:
            raise ValueError("a date such as 2026-11-29 is expected") from None
    return value


# Far beyond any model or machine, and small enough for products of a few to stay exact in 64 bits or a float.
_MOST = 10**15
_LARGEST = 1e18

MOST_LAYERS = 10_000
"""Decoder layers are listed one by one in places, so their number has a bound of its own."""

PositiveInt = Annotated[int, Field(strict=True, ge=1, le=_MOST)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
PositiveFloat = Annotated[float, Field(gt=0, le=_LARGEST)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=_LARGEST)]
Name = Annotated[str, Field(min_length=1)]
IsoDate = Annotated[str, BeforeValidator(_iso_date)]
# A field of this type takes any mapping, holds a ``FrozenMap`` and is dumped as a plain dict.
FrozenMapping: TypeAlias = Annotated[Mapping[K, V], AfterValidator(FrozenMap), PlainSerializer(_plain)]
