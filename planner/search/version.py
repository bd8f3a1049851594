"""Which code searched: an answer found by other code is another answer."""

from __future__ import annotations

from functools import cache

from costmodel.fingerprint import digest_of_sources


@cache
def search_version() -> str:
    """A digest of the search's own sources."""
    return digest_of_sources("planner.search")
