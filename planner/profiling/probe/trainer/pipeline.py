"""One step's forward and backward passes: through a schedule of torch.distributed.pipelining, or without a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor import DTensor, Shard

from costmodel.spec.plan import Plan
from planner.profiling.probe.trainer.building import Built
from planner.profiling.probe.trainer.data_parallel import accumulating
from planner.profiling.probe.trainer.mesh import Ranks

_SINGLE = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B}
_SEVERAL: dict[str, Any] = {
    "gpipe": schedules.ScheduleLoopedBFS,
    "interleaved_1f1b": schedules.ScheduleInterleaved1F1B,
    "zb_v": schedules.ScheduleZBVZeroBubble,
    "dualpipe_v": schedules.ScheduleDualPipeV,
}


class Loss:
    """Mean cross entropy of a micro-batch; logits are cut by vocabulary where ``mesh`` is given."""

    def __init__(self, mesh: DeviceMesh | None) -> None:
        self.mesh = mesh

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.mesh is not None:
            logits = DTensor.from_local(logits, self.mesh, [Shard(-1)], run_check=False)
        found = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))
        # A view of a DTensor is no output that the split backward pass of zero-bubble schedules can detach.
        return found.to_local().clone() if isinstance(found, DTensor) else found


class Straight:
    """Micro-batches one after the other through the only chunk; their gradients add up."""

    def __init__(self, built: Built, plan: Plan, loss: Loss) -> None:
        self.module, self.plan, self.loss = built.module, plan, loss

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor | None:
        count, losses = self.plan.num_microbatches, []
        pairs = zip(tokens.chunk(count), targets.chunk(count), strict=True)
        for place, (inputs, wanted) in enumerate(pairs):
            with accumulating(self.module, self.plan, last=place == count - 1):
                found = self.loss(self.module(inputs), wanted)
                (found / count).backward()
            losses.append(found.detach())
        return torch.stack(losses).mean()


class Pipelined:
    """A schedule over the chunks of this rank."""

    def __init__(self, built: Sequence[Built], plan: Plan, ranks: Ranks, device: torch.device, loss: Loss) -> None:
        stages = [_stage(of, plan, ranks, device) for of in built]
        self.is_first = any(of.chunk.has_embedding for of in built)
        self.is_last = any(of.chunk.has_head for of in built)
        of_step = {"n_microbatches": plan.num_microbatches, "loss_fn": loss}
        self.schedule: Any
        if plan.vpp == 1:
            self.schedule = _SINGLE[plan.schedule](stages[0], **of_step)
        else:
            self.schedule = _SEVERAL[plan.schedule](stages, **of_step)

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor | None:
        losses: list[Tensor] = []
        inputs = (tokens,) if self.is_first else ()
        if self.is_last:
            self.schedule.step(*inputs, target=targets, losses=losses, return_outputs=False)
            return torch.stack([of.detach() for of in losses]).mean()
        self.schedule.step(*inputs, return_outputs=False)
        return None


def _stage(built: Built, plan: Plan, ranks: Ranks, device: torch.device) -> PipelineStage:
    """With what it takes and gives told, else PyTorch runs a whole step to find out, hooks of DDP and all."""
    part, chunk = built.part, built.chunk
    tokens = (plan.micro_batch_size, plan.seq_len // plan.cp)
    share = plan.tp if plan.sequence_parallel else 1
    inside = torch.empty(tokens[0], tokens[1] // share, part.width, dtype=part.dtype, device="meta", requires_grad=True)
    logits = torch.empty(*tokens, part.vocab // plan.tp, dtype=part.dtype, device="meta", requires_grad=True)
    return PipelineStage(
        built.module,
        chunk.stage,
        plan.pp * plan.vpp,
        device,
        input_args=torch.empty(tokens, dtype=torch.int64, device="meta") if chunk.has_embedding else inside,
        output_args=logits if chunk.has_head else inside,
        group=ranks.pipeline.get_group(),
    )


def passes_of(built: Sequence[Built], plan: Plan, ranks: Ranks, device: torch.device) -> Straight | Pipelined:
    """What runs the passes of a step: tokens and targets of this rank in, the mean loss out where the head is."""
    loss = Loss(ranks.tensor if plan.tp > 1 else None)
    return Straight(built[0], plan, loss) if plan.pp == 1 else Pipelined(built, plan, ranks, device, loss)
