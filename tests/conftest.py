"""How property tests run here: no limit on one example's time, since the first one of a test fills caches."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("planner", deadline=None)
settings.load_profile("planner")
