"""When to ask again, and how long to wait before: exponential, jittered, and not before the server wants it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

# 429 too many requests; 502, 503 and 504 from a server that is overloaded, restarting or behind a proxy.
AGAIN_STATUSES = frozenset({429, 502, 503, 504})
IN_PROGRESS = "idempotency-key-in-progress"


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses between attempts, in seconds.

    Attributes:
        first_s: about the first pause; each further one is twice as long.
        longest_s: no pause grows beyond that by itself.
        longest_told_s: no server can make a client wait longer than that.
    """

    first_s: float = 0.25
    longest_s: float = 8.0
    longest_told_s: float = 30.0

    def pause(self, attempt: int, told_s: float | None = None) -> float:
        """How long to wait after attempt number ``attempt`` (from 0); jittered, so clients do not come back in step.

        Args:
            told_s: what the server's Retry-After says.
        """
        own = min(self.longest_s, self.first_s * 2.0**attempt) * random.uniform(0.5, 1.0)
        if told_s is None:
            return own
        told = min(told_s, self.longest_told_s)
        return max(told * random.uniform(1.0, 1.1), own if told > 0 else 0.0)


def told_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, as a number or as a date; None without one that can be read."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isdecimal():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
