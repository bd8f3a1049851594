"""What schedulers call an accelerator."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from costmodel.catalog.documents import read_mapping
from costmodel.spec.base import Frozen, FrozenMapping, IsoDate
from costmodel.spec.validation import build
from planner.export.errors import Inexpressible, Refusal
from planner.export.job import Job

Scheduler = Literal["gres", "kubernetes", "ray"]


class DeviceNames(Frozen):
    """Names by vendor, and SkyPilot's by accelerator."""

    vendors: FrozenMapping[str, FrozenMapping[Scheduler, str]]
    skypilot: FrozenMapping[str, str]
    source: str
    retrieved: IsoDate


@cache
def device_names() -> DeviceNames:
    """All that are known."""
    found = read_mapping(files(__package__) / "devices.yaml", "devices")
    return build(DeviceNames, found, where="devices")


def resource_of(job: Job, scheduler: Scheduler) -> str | None:
    """The resource by which a scheduler counts the job's devices; None where it is not known."""
    return device_names().vendors.get(job.scenario.cluster.accelerator.vendor, {}).get(scheduler)


def needed(name: str | None, job: Job, target: str) -> str:
    """A scheduler's name of the job's devices, which it can't do without.

    Raises:
        Inexpressible: it has none, or none is known here.
    """
    if name is not None:
        return name
    accelerator = job.scenario.cluster.accelerator
    why = f"no name of {accelerator.vendor}'s {accelerator.name} is known there"
    raise Inexpressible(target, None, [Refusal(field="cluster.accelerator", value=accelerator.name, why=why)])
