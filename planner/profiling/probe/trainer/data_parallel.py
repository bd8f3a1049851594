"""Replicas of a chunk: DDP, or FSDP2 over shards and over replicas of shards (HSDP)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from costmodel.spec.plan import Plan
from planner.profiling.probe.trainer.mesh import REPLICATE, Ranks

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def is_replicated(plan: Plan) -> bool:
    """Whether gradients are averaged at all."""
    return plan.dp * plan.cp > 1


def by_fsdp(plan: Plan) -> bool:
    """Whether FSDP2 does so: for shards, and for replicas of what tensor parallelism has cut: DDP takes none."""
    return is_replicated(plan) and (plan.zero_stage >= 2 or plan.tp > 1)


def shard(module: nn.Module, plan: Plan, ranks: Ranks) -> None:
    """Make a unit of FSDP of a module: its parameters are gathered and reduced together."""
    of_plan = _DTYPES[plan.gradient_dtype]
    computed = torch.float32 if plan.precision == "fp32" else torch.bfloat16
    fully_shard(
        module,
        mesh=ranks.sharding,
        reshard_after_forward=plan.zero_stage == 3 and plan.reshard_after == "forward",
        mp_policy=MixedPrecisionPolicy(param_dtype=computed, reduce_dtype=of_plan),
    )


def prefetch(blocks: Sequence[nn.Module], ahead: int) -> None:
    """Gather so many layers ahead of the one at work; one is what FSDP2 does by itself."""
    units = [block for block in blocks if isinstance(block, FSDPModule)]
    if ahead <= 1:
        return
    for place, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[place + 1 : place + 1 + ahead])
        unit.set_modules_to_backward_prefetch(units[max(place - ahead, 0) : place][::-1])


def replicate(part: nn.Module, plan: Plan, ranks: Ranks, device: torch.device) -> nn.Module:
    """The chunk under DDP; its gradients are all-reduced in buckets."""
    assert not by_fsdp(plan)
    return DistributedDataParallel(
        part,
        device_ids=[device.index] if device.type == "cuda" else None,
        process_group=ranks.mesh[REPLICATE].get_group(),
        gradient_as_bucket_view=True,
    )


def accumulating(part: nn.Module, plan: Plan, *, last: bool) -> AbstractContextManager[None]:
    """The context of one micro-batch's passes: whether its gradients are reduced, and what stays gathered after."""
    reduces = last or plan.gradient_sync == "microbatch"
    if isinstance(part, DistributedDataParallel):
        return nullcontext() if reduces else part.no_sync()
    if isinstance(part, FSDPModule):
        part.set_requires_gradient_sync(reduces)
        part.set_is_last_backward(last)
        if plan.zero_stage == 3 and plan.reshard_after == "step":
            part.set_reshard_after_backward(last)
    return nullcontext()
