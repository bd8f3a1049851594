"""Errors of the planner, one hierarchy.

    PlannerError
    └── InvalidInput          a user's field holds something unusable (CLI exit 2)
        ├── Missing           an option that has to be given and is not
        ├── UnknownName       a name that no catalog or table holds; carries the nearest ones
        └── UnreadableFile    a file that is absent, unreadable or not in its format

Every message is one line that names the field, the value found and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

# More would bury the message; all axes of a plan are fewer.
_MOST_NAMES = 32


class PlannerError(Exception):
    """Base of every error that this project raises on purpose."""


class InvalidInput(PlannerError):
    """A field of the request is wrong.

    Attributes:
        field: the name the user knows it by (``global-batch-size``, ``num_hidden_layers``).
        value: what was found.
        expected: what would be right, in words.
    """

    slug = "invalid-input"

    def __init__(self, field: str, value: Any, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: {self._found()}; {expected}")

    def __reduce__(self) -> tuple[Any, ...]:
        # It crosses processes, and what an exception is made again from by default is its message alone.
        return type(self).__new__, (type(self), *self.args), vars(self)

    @property
    def members(self) -> dict[str, Any]:
        """What a program may want to know besides, as members of a problem object."""
        return {}

    def _found(self) -> str:
        return f"{_shown(self.value)} is not usable"


class Missing(InvalidInput):
    """An option that has to be given and is not."""

    slug = "missing"

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(field, None, expected)

    def _found(self) -> str:
        return "nothing is given"


class UnknownName(InvalidInput):
    """A name that is not known, with the names nearest to it.

    Attributes:
        nearest: what may be meant; with a ``because`` all of ``known``, in their order.
    """

    slug = "unknown-name"

    def __init__(self, field: str, value: str, known: Iterable[str], hint: str = "", because: str = "") -> None:
        names = list(known) if because else sorted(known)
        lowered = {name.lower(): name for name in names}
        nearest = get_close_matches(value.lower(), lowered, n=3, cutoff=0.5)
        self.nearest = tuple(names) if because else tuple(lowered[name] for name in nearest)
        if because:
            expected = f"{because} {', '.join(names)}"
        elif self.nearest:
            expected = f"did you mean {' or '.join(self.nearest)}?"
        else:
            expected = f"known: {', '.join(names[:_MOST_NAMES])}{', ...' if len(names) > _MOST_NAMES else ''}"
        super().__init__(field, value, expected + (f" ({hint})" if hint else ""))

    @property
    def members(self) -> dict[str, Any]:
        return {"nearest": list(self.nearest)}


class UnreadableFile(InvalidInput):
    """A file that can't be read or isn't in the format it should be in."""

    slug = "unreadable-file"


_LONGEST_SHOWN = 160


def _shown(value: Any) -> str:
    """The value as it is shown in a message: quoted when text, and shortened in the middle when long.

    The end stays, because the end of a path is what its reader knows it by.
    """
    text = repr(value)
    if len(text) <= _LONGEST_SHOWN:
        return text
    half = (_LONGEST_SHOWN - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
