"""All that is measured of a machine, a few seconds each."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
import torch.distributed as dist

from planner.profiling.probe.facts import MachineFacts, cpu_name, machine_memory
from planner.profiling.probe.machine import Measurements
from planner.profiling.probe.measure import kernels
from planner.profiling.probe.measure.links import sweeps
from planner.profiling.probe.measure.timing import Clock

T = TypeVar("T")


def measure(device: torch.device, *, seconds_each: float, beat: Callable[[], None]) -> Measurements:
    """What the ranks of this world can do together; all of them have to call it.

    Args:
        seconds_each: that one size of one kernel or collective is repeated for.
    """
    clock = Clock(device, seconds_each)

    def beating(rows: Iterator[T]) -> Iterator[T]:
        for row in rows:
            beat()
            yield row

    of_precisions = kernels.precisions_of(device)
    return Measurements(
        facts=_facts(device),
        gemms=tuple(row for of in of_precisions for row in beating(kernels.gemms(clock, of))),
        attention=tuple(row for of in of_precisions for row in beating(kernels.cores(clock, of))),
        memory=tuple(beating(kernels.passes(clock))),
        sweeps=tuple(beating(sweeps(clock))) if dist.get_world_size() > 1 else (),
    )


def _facts(device: torch.device) -> MachineFacts:
    ranks, cuda = dist.get_world_size(), device.type == "cuda"
    threads = 0 if cuda else torch.get_num_threads()
    return MachineFacts(
        device=torch.cuda.get_device_name(device) if cuda else cpu_name(threads),
        host=platform.node(),
        backend=str(dist.get_backend()),
        ranks=ranks,
        memory_bytes=torch.cuda.mem_get_info(device)[1] if cuda else machine_memory() // ranks,
        threads=threads,
    )
