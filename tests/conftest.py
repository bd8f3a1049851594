"""How property tests run here: no limit on one example's time, since the first one of a test fills caches.

And the databases that any test may ask for.
"""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.databases"]

settings.register_profile("planner", deadline=None)
settings.load_profile("planner")
