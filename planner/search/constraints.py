"""What a user pins, ranges and forbids: ``tp=8``, ``pp=4,8,16``, ``dp=4..``, ``recompute=full``.

An axis keeps the values that every pin on it allows and no forbid names. Pins may name values outside the default
space (an odd tp, say): they are then searched, and the rules that refuse them are named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.options import BY_NAME, CHOICE_NAMES
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES, Plan

WORDS: Mapping[str, tuple[str, ...]] = {
    "recompute": RECOMPUTES,
    "schedule": SCHEDULES,
    "cp_comm_type": CP_COMM_TYPES,
}
NUMBERS: tuple[str, ...] = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "dp",
    "dp_replicate",
    "dp_shard",
    "zero_stage",
    "micro_batch_size",
    "num_microbatches",
    "devices_used",
)
ALIASES: Mapping[str, str] = {
    "mbs": "micro_batch_size",
    "micro_batch": "micro_batch_size",
    "microbatches": "num_microbatches",
    "zero": "zero_stage",
    "cp_comm": "cp_comm_type",
    "devices": "devices_used",
}
KEYS: tuple[str, ...] = (*NUMBERS, *WORDS, *CHOICE_NAMES)
_LARGEST = 1_000_000_000
_MOST_SHOWN = 12


class Contradiction(InvalidInput):
    """Pins and forbids leave no plan to look at. An answer explains it: it is no mistake in what was typed."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """Integers from ``low`` to ``high``, both included; ``high`` None is open."""

    low: int
    high: int | None

    def __contains__(self, value: int) -> bool:
        return self.low <= value and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One pin or forbid: an axis and the values it names (codes for axes of words)."""

    axis: str
    values: frozenset[int] = frozenset()
    ranges: tuple[Range, ...] = ()
    text: str = ""

    def names(self, value: int) -> bool:
        """Whether the condition names ``value``."""
        return value in self.values or any(value in span for span in self.ranges)


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """All pins and forbids of a request."""

    pins: tuple[Condition, ...] = ()
    forbids: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, pins: Iterable[str], forbids: Iterable[str]) -> Constraints:
        """Read the texts of ``--pin`` and ``--forbid``; conditions that contradict each other are no error here.

        Raises:
            InvalidInput: a text that is no condition.
        """
        return cls(
            pins=tuple(_condition("pin", text) for text in pins),
            forbids=tuple(_condition("forbid", text) for text in forbids),
        )

    def without(self, lifted: Collection[Condition]) -> Constraints:
        """The same less some conditions."""
        return Constraints(
            pins=tuple(pin for pin in self.pins if pin not in lifted),
            forbids=tuple(ban for ban in self.forbids if ban not in lifted),
        )

    def allows(self, axis: str, value: int) -> bool:
        """Whether ``value`` passes every pin and forbid on ``axis``."""
        if not self.pins and not self.forbids:
            return True
        if any(pin.axis == axis and not pin.names(value) for pin in self.pins):
            return False
        return not any(ban.axis == axis and ban.names(value) for ban in self.forbids)

    def pinned(self, axis: str) -> tuple[int, ...] | None:
        """The single values that pins list for ``axis``; None when no pin lists any."""
        listed = [pin.values for pin in self.pins if pin.axis == axis and pin.values]
        if not listed:
            return None
        return tuple(sorted(value for value in frozenset.union(*listed) if self.allows(axis, value)))

    def domain(self, axis: str, default: Iterable[int]) -> tuple[int, ...]:
        """The values to search: the default ones and the pinned ones, as far as allowed."""
        values = set(default) | set(self.pinned(axis) or ())
        return tuple(sorted(value for value in values if self.allows(axis, value)))

    def needed(self, axis: str, default: Iterable[int]) -> tuple[int, ...]:
        """The domain of an axis that every plan has.

        Raises:
            Contradiction: pins and forbids leave none of the default values.
        """
        offered = tuple(default)
        values = self.domain(axis, offered)
        if not values:
            kind = "pin" if any(pin.axis == axis for pin in self.pins) else "forbid"
            raise Contradiction(
                kind, self.describe(axis), f"it leaves {axis} without a value; {searched_values(axis, offered)}"
            )
        return values

    def touches(self, axis: str) -> bool:
        """Whether any pin or forbid is about ``axis``."""
        return any(condition.axis == axis for condition in (*self.pins, *self.forbids))

    def describe(self, axis: str | None = None) -> str:
        """The texts about one axis, or all of them, as given."""
        pins = [f"--pin {c.text}" for c in self.pins if axis in (None, c.axis)]
        return " ".join(pins + [f"--forbid {c.text}" for c in self.forbids if axis in (None, c.axis)])


def searched_values(axis: str, offered: tuple[int, ...]) -> str:
    """Which values are tried, and how others would be."""
    if not offered:
        return "plans have what follows from their other axes, unless a pin lists values one by one"
    names = [_shown(axis, value) for value in offered]
    shown = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
    all_there_are = axis in WORDS or (axis in BY_NAME and BY_NAME[axis].lists_all)
    return f"searched are {shown}" + ("" if all_there_are else "; others are searched when a pin lists them one by one")


def _shown(axis: str, value: int) -> str:
    if axis in WORDS:
        return WORDS[axis][value]
    return BY_NAME[axis].write(value) if axis in BY_NAME else str(value)


def _condition(kind: str, text: str) -> Condition:
    key, separator, values = text.partition("=")
    axis = ALIASES.get(key.strip().lower().replace("-", "_"), key.strip().lower().replace("-", "_"))
    if not separator or not values.strip():
        raise InvalidInput(kind, text, "write KEY=VALUE, as in tp=8, pp=4,8,16, dp=4.. or recompute=full")
    if axis not in KEYS and axis in Plan.model_fields:
        raise InvalidInput(kind, text, f"{axis} can not be pinned or forbidden; these can: {', '.join(KEYS)}")
    if axis not in KEYS:
        raise UnknownName(kind, key.strip(), KEYS)
    singles: set[int] = set()
    ranges: list[Range] = []
    for part in (part.strip() for part in values.split(",")):
        if axis in WORDS:
            if part.lower() not in WORDS[axis]:
                raise UnknownName(f"{kind} {axis}", part, WORDS[axis], because="known are")
            singles.add(WORDS[axis].index(part.lower()))
        elif axis in BY_NAME:
            singles.add(BY_NAME[axis].read(part, f"{kind} {axis}"))
        elif ".." in part:
            ranges.append(_range(kind, text, part, minimum=0 if axis == "zero_stage" else 1))
        else:
            singles.add(_number(kind, text, part, minimum=0 if axis == "zero_stage" else 1))
    return Condition(axis=axis, values=frozenset(singles), ranges=tuple(ranges), text=text)


def _range(kind: str, text: str, part: str, minimum: int) -> Range:
    low, _, high = part.partition("..")
    if not low and not high:
        raise InvalidInput(kind, text, "a range needs at least one end, as in 4.. or 2..8")
    start = _number(kind, text, low, minimum) if low else minimum
    end = _number(kind, text, high, minimum) if high else None
    if end is not None and end < start:
        raise InvalidInput(kind, text, f"a range runs upwards, as in {end}..{start}")
    return Range(low=start, high=end)


def _number(kind: str, text: str, part: str, minimum: int) -> int:
    if not part.isascii() or not part.isdigit():
        raise InvalidInput(kind, text, f"{part!r} must be a whole number")
    if len(part) > len(str(_LARGEST)) or int(part) > _LARGEST:
        raise InvalidInput(kind, text, f"no axis has values beyond {_LARGEST}")
    value = int(part)
    if value < minimum:
        raise InvalidInput(kind, text, f"{value} must be at least {minimum}")
    return value
