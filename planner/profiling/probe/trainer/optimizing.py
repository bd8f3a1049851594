"""The optimizer of a rank's chunks, and the gradient that embedding and head share where they are tied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from costmodel.schedules import placement_of
from costmodel.spec.plan import Plan
from costmodel.stages import Placement
from planner.profiling.probe.job import ProbeJob
from planner.profiling.probe.trainer.building import Built, local
from planner.profiling.probe.trainer.data_parallel import is_replicated
from planner.profiling.probe.trainer.mesh import REPLICATE, Ranks

_MOMENTUM = 0.9
_CLASSES: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {"momentum": _MOMENTUM}),
}


def optimizer_of(job: ProbeJob, built: Sequence[Built], ranks: Ranks) -> torch.optim.Optimizer:
    """Over all parameters of this rank; under stage 1 each rank keeps the state of some of the tensors."""
    kind, settings = _CLASSES[job.plan.optimizer]
    parameters = [parameter for of in built for parameter in of.part.parameters()]
    if job.plan.zero_stage == 1 and is_replicated(job.plan):
        group = ranks.mesh[REPLICATE].get_group()
        return ZeroRedundancyOptimizer(
            parameters, optimizer_class=kind, process_group=group, lr=job.learning_rate, **settings
        )
    # One kernel updates many tensors at once, but not tensors of several meshes.
    apart: dict[Any, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        apart[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
    groups = [{"params": of} for of in apart.values()]
    return kind(groups, lr=job.learning_rate, **settings)


class Tied:
    """Adds up what the two copies of a tied embedding got in a pipeline that has both ends of the model apart."""

    def __init__(self, plan: Plan, built: Sequence[Built], ranks: Ranks, *, tied: bool) -> None:
        self.ends = [
            end.weight for of in built for end in (of.part.embedding, of.part.head) if tied and plan.pp > 1 and end
        ]
        self.group: dist.ProcessGroup | None = None
        if not tied or plan.pp == 1 or placement_of(plan.schedule) == Placement.V:
            return
        # Everyone has to take part in making every group.
        stages = ranks.mesh.mesh.flatten(1)
        for column in stages.T:
            pair = [int(column[0]), int(column[-1])]
            group = dist.new_group(pair)
            if dist.get_rank() in pair:
                self.group = group

    def add_up(self) -> None:
        """Before the optimizer's step, after all gradients of this rank are reduced over its replicas."""
        gradients = [local(end.grad) for end in self.ends]
        if len(gradients) > 1:
            both = gradients[0] + gradients[1]
            for gradient in gradients:
                gradient.copy_(both)
        elif gradients:
            dist.all_reduce(gradients[0], group=self.group)
