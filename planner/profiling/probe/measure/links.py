"""Collectives of all ranks over sizes of messages, as nccl-tests runs and counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from costmodel.spec.collective import CollectiveOp
from planner.profiling.probe.machine import Sweep
from planner.profiling.probe.measure.timing import Clock

_FOURFOLD = 4
_ELEMENT = 4  # bytes of a number
# Smallest and largest message, bytes.
_RANGE = {"cpu": (2**10, 2**26), "cuda": (2**10, 2**32)}


def sweeps(clock: Clock) -> Iterator[Sweep]:
    """One for each operation."""
    makers: dict[CollectiveOp, Callable[[Tensor], Callable[[], object]]] = {
        "all_reduce": _all_reduce,
        "all_gather": _all_gather,
        "reduce_scatter": _reduce_scatter,
        "all_to_all": _all_to_all,
        "send_recv": _send_recv,
    }
    for op, made in makers.items():
        points = []
        for size in _sizes(clock.device):
            whole = torch.ones(size // _ELEMENT, device=clock.device)
            points.append((whole.numel() * _ELEMENT, clock.seconds(made(whole))))
        yield Sweep(op=op, points=tuple(points))


def _sizes(device: torch.device) -> Iterator[int]:
    """Fourfold steps, rounded down to what every rank has an equal share of."""
    size, most = _RANGE[device.type]
    unit = _ELEMENT * dist.get_world_size()
    while size <= most:
        yield max(size // unit, 1) * unit
        size *= _FOURFOLD


def _all_reduce(whole: Tensor) -> Callable[[], object]:
    return lambda: dist.all_reduce(whole)


def _share(whole: Tensor) -> Tensor:
    return torch.ones(whole.numel() // dist.get_world_size(), device=whole.device)


def _all_gather(whole: Tensor) -> Callable[[], object]:
    share = _share(whole)
    return lambda: dist.all_gather_into_tensor(whole, share)


def _reduce_scatter(whole: Tensor) -> Callable[[], object]:
    share = _share(whole)
    return lambda: dist.reduce_scatter_tensor(share, whole)


def _all_to_all(whole: Tensor) -> Callable[[], object]:
    out = torch.empty_like(whole)
    return lambda: dist.all_to_all_single(out, whole)


def _send_recv(whole: Tensor) -> Callable[[], object]:
    """Every rank to the next, all at once."""
    rank, ranks, out = dist.get_rank(), dist.get_world_size(), torch.empty_like(whole)

    def ring() -> None:
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, whole, (rank + 1) % ranks), dist.P2POp(dist.irecv, out, (rank - 1) % ranks)]
        )
        for work in works:
            work.wait()

    return ring
