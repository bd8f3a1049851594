"""Which code searched: an answer found by other code is another answer."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from costmodel.fingerprint import digest_of_sources


@cache
def search_version() -> str:
    """A digest of the search's own sources, and the solver's release: another one may list other plans first."""
    return f"{digest_of_sources('planner.search')}-ortools{metadata.version('ortools')}"
