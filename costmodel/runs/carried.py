"""The measured runs that ship with the planner."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from costmodel.runs.columns import Run
from costmodel.runs.reader import read_runs_of


@lru_cache(maxsize=1)
def default_runs() -> tuple[Run, ...]:
    """Every row of ``catalog/runs/measured_runs.csv``, each with its source."""
    return read_runs_of(resources.files("costmodel.catalog") / "runs" / "measured_runs.csv")
