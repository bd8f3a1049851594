"""How many searches run at once in a server or a worker: what may be asked for, and what is usual."""

from __future__ import annotations

import os

MOST_SLOTS = 64
_MOST_BY_DEFAULT = 4


def default_slots() -> int:
    """One core is left for answering; four searches at once are enough for any machine."""
    return max(1, min(_MOST_BY_DEFAULT, (os.cpu_count() or 1) - 1))
