"""Server-sent events, after the WHATWG's HTML standard, section 9.2 (only what our server uses of it: no ``retry``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Message:
    """One event. ``id`` is the last that was sent, with this event or before it."""

    id: str
    kind: str
    data: str


def messages(chunks: Iterable[bytes]) -> Iterator[Message]:
    """The events in a body, as they come; one that was cut off is left out."""
    identifier, kind, data = "", "", list[str]()
    for line in _lines(chunks):
        if not line:
            if data:
                yield Message(id=identifier, kind=kind or "message", data="\n".join(data))
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id" and "\0" not in value:
            identifier = value


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Whole lines, without what ends them. Not ``splitlines``: JSON may hold the letters that it also splits at."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
