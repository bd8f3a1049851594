"""What several records share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A part of a list and the place where the next one begins; None at the end.

    Attributes:
        next: to be handed back as ``after``: values of the sort column and the id of the last item.
    """

    items: Sequence[Any]
    next: tuple[Any, str] | None
