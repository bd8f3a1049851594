"""Options: what a plan may choose beside its mesh, its schedule and its recompute policy.

Each is declared once: its values, the one that frameworks use unless told otherwise, and the whole number that stands
for a value in a plan table's column of the same name. Plans, drafts, tables, pins and searches go through ``OPTIONS``
instead of naming each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from costmodel.arrays import Ints
from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.plan import RECOMPUTE_MODULES

Usual: TypeAlias = Callable[[Mapping[str, Ints]], Ints]


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        name: the plan's field, and the table's column.
        usual: the code that plans have unless told otherwise, from the columns that ``reads`` names.
        reads: the axes that ``usual`` depends on.
    """

    name: str
    usual: int | Usual = 0
    reads: tuple[str, ...] = ()

    @property
    def codes(self) -> tuple[int, ...]:
        """The codes that can be listed: all of them, or the usual one where values are too many."""
        raise NotImplementedError

    @property
    def lists_all(self) -> bool:
        """Whether ``codes`` are all that there are."""
        return False

    def encode(self, value: Any) -> int:
        """The code of a plan's value."""
        raise NotImplementedError

    def decode(self, code: int) -> Any:
        """The plan's value of a code."""
        raise NotImplementedError

    def read(self, text: str, field: str | None = None) -> int:
        """The code of a value as a flag writes it.

        Args:
            field: what the user calls the option, for errors; its name without it.

        Raises:
            InvalidInput: the text is no value of the option.
        """
        raise NotImplementedError

    def write(self, code: int) -> str:
        """A value as a flag writes it; ``read`` gives the code back."""
        return str(self.decode(code)).lower()

    def _unknown(self, field: str | None, text: str, words: tuple[str, ...]) -> UnknownName:
        """They are few, so all of them are told."""
        return UnknownName(field or self.name, text, words, because="known are")

    def _no_ranges(self, *values: object) -> str:
        """A search has no values of its own that a range could pick from."""
        return f"no range is taken here; list the values, as in {self.name}={','.join(map(str, values))}"

    def usual_of(self, columns: Mapping[str, Ints]) -> Ints:
        """The usual code of every row."""
        if callable(self.usual):
            return self.usual(columns)
        shapes = {np.shape(column) for column in columns.values()}
        return np.broadcast_to(np.int64(self.usual), shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes))


@dataclass(frozen=True, kw_only=True)
class Word(Option):
    """One of several words; the code is its place."""

    words: tuple[str, ...]

    @property
    def codes(self) -> tuple[int, ...]:
        return tuple(range(len(self.words)))

    @property
    def lists_all(self) -> bool:
        return True

    def encode(self, value: Any) -> int:
        return self.words.index(value)

    def decode(self, code: int) -> str:
        return self.words[code]

    def read(self, text: str, field: str | None = None) -> int:
        if text.lower() not in self.words:
            raise self._unknown(field, text, self.words)
        return self.words.index(text.lower())


@dataclass(frozen=True, kw_only=True)
class Switch(Option):
    """On (1) or off (0)."""

    @property
    def codes(self) -> tuple[int, ...]:
        return 0, 1

    @property
    def lists_all(self) -> bool:
        return True

    def encode(self, value: Any) -> int:
        return int(value)

    def decode(self, code: int) -> bool:
        return bool(code)

    def read(self, text: str, field: str | None = None) -> int:
        if text.lower() not in ("true", "false"):
            raise self._unknown(field, text, ("true", "false"))
        return int(text.lower() == "true")


@dataclass(frozen=True, kw_only=True)
class Count(Option):
    """A whole number from ``least`` on; the code is the number."""

    least: int
    _most = 1_000_000

    @property
    def codes(self) -> tuple[int, ...]:
        return () if callable(self.usual) else (self.usual,)

    def encode(self, value: Any) -> int:
        return int(value)

    def decode(self, code: int) -> int:
        return code

    def read(self, text: str, field: str | None = None) -> int:
        if ".." in text:
            raise InvalidInput(field or self.name, text, self._no_ranges(self.least, self.least + 1))
        if not text.isascii() or not text.isdigit() or len(text) > len(str(self._most)):
            raise InvalidInput(field or self.name, text, f"a whole number of at most {self._most} is expected")
        if not self.least <= int(text) <= self._most:
            raise InvalidInput(field or self.name, text, f"it must lie in {self.least}..{self._most}")
        return int(text)


HUNDREDTHS = 100.0
"""A factor of 1 in the code of a ``Factor``."""


@dataclass(frozen=True, kw_only=True)
class Factor(Option):
    """A number in hundredths, or none (0)."""

    least: float
    most: float

    @property
    def codes(self) -> tuple[int, ...]:
        return (0,)

    def encode(self, value: Any) -> int:
        return 0 if value is None else round(HUNDREDTHS * value)

    def decode(self, code: int) -> float | None:
        return code / HUNDREDTHS if code else None

    def read(self, text: str, field: str | None = None) -> int:
        if text.lower() == "none":
            return 0
        if ".." in text:
            raise InvalidInput(field or self.name, text, self._no_ranges("none", 1.25))
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.least <= value <= self.most:
            expected = f"none, or a number in {self.least:g}..{self.most:g}, is expected"
            raise InvalidInput(field or self.name, text, expected)
        return self.encode(value)

    def write(self, code: int) -> str:
        return f"{code / HUNDREDTHS:g}" if code else "none"


@dataclass(frozen=True, kw_only=True)
class AnyOf(Option):
    """Any of several words, none included; the code has a bit for each. A flag joins them by ``+``.

    Attributes:
        nothing: what a flag calls code 0.
    """

    words: tuple[str, ...]
    nothing: str = "none"

    @property
    def codes(self) -> tuple[int, ...]:
        return (0,)

    def encode(self, value: Any) -> int:
        return sum(1 << self.words.index(word) for word in set(value))

    def decode(self, code: int) -> tuple[str, ...]:
        return tuple(word for place, word in enumerate(self.words) if code >> place & 1)

    def read(self, text: str, field: str | None = None) -> int:
        if text.lower() == self.nothing:
            return 0
        named = [word.strip().lower() for word in text.split("+")]
        for word in named:
            if word not in self.words:
                expected = f"write {self.nothing} alone, or any of these joined by +:"
                raise UnknownName(field or self.name, word, self.words, because=expected)
        return self.encode(named)

    def write(self, code: int) -> str:
        return "+".join(self.decode(code)) or self.nothing


OFFLOADS = ("none", "optimizer", "activations", "parameters")
RESHARD_AFTER = ("forward", "backward", "step")
GRADIENT_SYNCS = ("step", "microbatch")
ZERO_PLUS = ("qwz", "hpz", "qgz")
MOE_DISPATCHERS = ("deduplicated", "all_to_all", "all_gather")


def _sync_of_stage(columns: Mapping[str, Ints]) -> Ints:
    """Sharded gradients are reduced after every micro-batch, whole ones once a step."""
    return np.asarray(columns["zero_stage"] >= 2, dtype=np.int64)


def _ulysses_ranks(columns: Mapping[str, Ints]) -> Ints:
    """All ranks exchange heads under ``a2a`` (code 2 of the exchanges), none in a ring or an all-gather.

    How many of them do under ``a2a+p2p`` depends on the model's heads and on tp: ``rules.context_parallel`` says.
    """
    return np.asarray(np.where(columns["cp_comm_type"] == 2, columns["cp"], 1), dtype=np.int64)


OPTIONS: tuple[Option, ...] = (
    Word(name="offload", words=OFFLOADS),
    Count(name="recompute_interval", usual=1, least=1),
    Word(name="reshard_after", words=RESHARD_AFTER),
    Count(name="fsdp_prefetch", usual=1, least=0),
    Word(name="gradient_sync", words=GRADIENT_SYNCS, usual=_sync_of_stage, reads=("zero_stage",)),
    AnyOf(name="zero_plus", words=ZERO_PLUS),
    Switch(name="tp_overlap", usual=1),
    Count(name="cp_a2a_degree", usual=_ulysses_ranks, reads=("tp", "cp", "cp_comm_type"), least=1),
    Switch(name="cp_balanced", usual=1),
    Word(name="moe_dispatcher", words=MOE_DISPATCHERS),
    Switch(name="ep_overlap", usual=0),
    Factor(name="moe_capacity_factor", least=0.1, most=100.0),
)
"""All of them; ``Plan`` says what each means."""

OPTION_NAMES: tuple[str, ...] = tuple(option.name for option in OPTIONS)
MODULES = AnyOf(name="recompute_modules", words=RECOMPUTE_MODULES, nothing="usual")
"""What selective recompute names: like an option, but what a plan says by default, code 0, is its framework's own."""
CHOICES: tuple[Option, ...] = (*OPTIONS, MODULES)
"""What a search can be told of: all options, and the modules."""
CHOICE_NAMES: tuple[str, ...] = tuple(option.name for option in CHOICES)
BY_NAME: Mapping[str, Option] = {option.name: option for option in CHOICES}


def usual_options(columns: Mapping[str, Ints], names: tuple[str, ...] = OPTION_NAMES) -> dict[str, Ints]:
    """The usual codes of the named options for rows with these other axes."""
    return {name: BY_NAME[name].usual_of(columns) for name in names}
