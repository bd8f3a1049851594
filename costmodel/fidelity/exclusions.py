"""Which measured runs a figure leaves out, and why: data, since it is a finding about runs and no property of ours."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

from costmodel.catalog.documents import read_mapping
from costmodel.runs.columns import Run
from costmodel.spec.base import Frozen, IsoDate, PositiveFloat, PositiveInt
from costmodel.spec.validation import build

Figure = Literal["time", "ranking"]


class Exclusion(Frozen):
    """Runs of one study that share what the fields say; a field that is None says nothing.

    Attributes:
        study: first part of the group.
        left_out_of: ``time`` errors, or the ``ranking`` of plans.
    """

    name: str
    study: str
    devices: PositiveInt | None = None
    peak_mem_gb_above: PositiveFloat | None = None
    left_out_of: tuple[Figure, ...]
    reason: str

    def covers(self, run: Run) -> bool:
        """Whether the run is one of them."""
        if study_of(run) != self.study or self.devices not in (None, run.devices):
            return False
        return self.peak_mem_gb_above is None or (run.measured_peak_mem_gb or 0.0) > self.peak_mem_gb_above


class Exclusions(Frozen):
    """All of them, with where they come from."""

    source: str
    retrieved: IsoDate
    exclusions: tuple[Exclusion, ...]


def study_of(run: Run) -> str:
    """Who made the run: the first part of its group."""
    return run.group.split("/")[0]


@lru_cache(maxsize=1)
def default_exclusions() -> tuple[Exclusion, ...]:
    """Those that ship with the measured runs."""
    file = resources.files("costmodel.catalog") / "runs" / "exclusions.yaml"
    return build(Exclusions, read_mapping(file, "exclusions"), "exclusions").exclusions
