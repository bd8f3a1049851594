"""Seconds of a piece of work that all ranks do at the same time, on the slowest of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

_LEAST, _MOST = 3, 50


class Clock:
    """Times work until a share of the budget is used, so that fast work is repeated more often."""

    def __init__(self, device: torch.device, seconds_each: float) -> None:
        self.device, self.seconds_each = device, seconds_each

    def seconds(self, work: Callable[[], object], *, best: bool = False) -> float:
        """Of one call: the median of repeats, or the best, where nothing but the rest of the machine can slow it."""
        work()
        once = self._slowest(self._time(work))
        # Every rank repeats as often as the slowest can, since they may wait for each other inside.
        count = int(min(max(self.seconds_each / max(once, 1e-9), _LEAST), _MOST))
        times = [self._time(work) for _ in range(count)]
        return self._slowest(min(times) if best else statistics.median(times))

    def _time(self, work: Callable[[], object]) -> float:
        dist.barrier()
        self._wait()
        begin = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - begin

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _slowest(self, seconds: float) -> float:
        found = torch.tensor([seconds], dtype=torch.float64, device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return float(found)
