"""Numbers and ranges as flags have them: ``8..4096`` and ``8,16,61``; light enough for the CLI to read."""

from __future__ import annotations

from costmodel.errors import InvalidInput

_MOST_DIGITS = 10


def devices_asked(text: str) -> tuple[int, int | None]:
    """``--devices`` of one question: (most, fewest); ``8..4096`` means at least 8 and at most 4096.

    Raises:
        InvalidInput: it is neither a number nor a range that has an end.
    """
    low, separator, high = text.partition("..")
    if not separator:
        return _number("devices", text, text), None
    if not high.strip():
        raise InvalidInput("devices", text, "a range needs its upper end, as in 8..4096: so many there are at most")
    most, least = _number("devices", text, high), _number("devices", text, low) if low.strip() else 1
    if least > most:
        raise InvalidInput("devices", text, f"a range runs upwards, as in {most}..{least}")
    return most, least


def values_of(field: str, text: str, most: int) -> tuple[int, ...]:
    """The values of one axis of a sweep, ascending, each once.

    ``8..4096`` doubles from one to the next, ``8..4096:8`` goes in steps of 8, ``8,16,61`` lists them; parts of a list
    may be ranges. The upper end is there where a step meets it.

    Args:
        most: how many there may be.

    Raises:
        InvalidInput: it is none of these, or there are more.
    """
    found: set[int] = set()
    for part in text.split(","):
        values = _values(field, text, part.strip())
        if len(values) > most or len(found := found | set(values)) > most:
            raise InvalidInput(field, text, f"it names more than the {most} points that one sweep may have")
    return tuple(sorted(found))


def _values(field: str, text: str, part: str) -> range | list[int]:
    span, stepped, by = part.partition(":")
    low, separator, high = span.partition("..")
    if not separator:
        if stepped:
            raise InvalidInput(field, text, "a step goes with a range, as in 8..4096:8")
        return [_number(field, text, part)]
    if not low.strip() or not high.strip():
        raise InvalidInput(field, text, "a range of a sweep needs both ends, as in 8..4096 or 8..4096:8")
    start, end = _number(field, text, low), _number(field, text, high)
    if end < start:
        raise InvalidInput(field, text, f"a range runs upwards, as in {end}..{start}")
    if start < 1:
        raise InvalidInput(field, text, "a range of a sweep begins at 1 or above")
    if stepped:
        step = _number(field, text, by)
        if step < 1:
            raise InvalidInput(field, text, "a step is at least 1")
        return range(start, end + 1, step)
    return [start << doublings for doublings in range((end // start).bit_length())]


def _number(field: str, text: str, part: str) -> int:
    digits = part.strip()
    if not digits.removeprefix("-").isdigit() or not digits.isascii():
        raise InvalidInput(field, text, "a whole number is expected")
    if len(digits) > _MOST_DIGITS:
        raise InvalidInput(field, text, f"a number of at most {_MOST_DIGITS} digits is expected")
    return int(digits)
