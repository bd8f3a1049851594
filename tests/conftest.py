"""How property tests run here: no limit on one example's time, since the first one of a test fills caches.

And the databases that any test may ask for, and which files are begun first.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# A worker has a core, so threads of a product of matrices only wait for each other. Said before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

pytest_plugins = ["tests.databases"]

settings.register_profile("planner", deadline=None)
settings.load_profile("planner")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, and the cost model's many short ones last.

    So no worker is left with one that takes long while the others have nothing.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, "costmodel" in item.path.parts))
