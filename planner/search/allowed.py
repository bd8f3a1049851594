"""What a search may use that changes what a plan needs beside its devices: only when it is allowed to (``--allow``)."""

from __future__ import annotations

from collections.abc import Iterable

from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.options import OFFLOADS

ALLOWABLE = ("offload",)

Also = tuple[tuple[str, int], ...]


def allowed_options(framework: FrameworkSpec, allow: Iterable[str]) -> Also:
    """(option, code) pairs that are tried beside the usual ones.

    Args:
        allow: words of ``ALLOWABLE``, also several in one text with commas between.

    Raises:
        UnknownName: there is no such word.
        InvalidInput: the framework offers nothing of the kind, or nobody looked what it does.
    """
    words = dict.fromkeys(word.strip().lower() for text in allow for word in text.split(","))
    found: list[tuple[str, int]] = []
    for word in words:
        if word not in ALLOWABLE:
            raise UnknownName("allow", word, ALLOWABLE)
        offered = framework.known_offloads()
        if not offered:
            why = "has none" if offered is not None else "may have some, but what is not known here"
            raise InvalidInput("allow", word, f"{framework.title} {framework.version} {why}")
        found += [("offload", OFFLOADS.index(kind)) for kind in offered]
    return tuple(found)


def words_of(also: Also) -> list[str]:
    """The words that give these pairs."""
    return sorted({name for name, _ in also if name in ALLOWABLE})
