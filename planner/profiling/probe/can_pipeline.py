"""Which pipelines the probe can't run."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.spec.plan import Plan
from planner.export.errors import Refusal
from planner.profiling.probe.layout import chunks_of_device

SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zb_v", "dualpipe_v")
_CHUNKS_IN_A_V = 2


def pipeline_refusals(plan: Plan) -> Iterator[Refusal]:
    """What torch.distributed.pipelining (2.13) has no schedule for."""
    if plan.pp == 1:
        if plan.vpp > 1:
            yield Refusal(field="vpp", value=plan.vpp, why="one pipeline device has one chunk")
        return
    if plan.schedule not in SCHEDULES:
        yield Refusal(field="schedule", value=plan.schedule, why=f"the probe has {', '.join(SCHEDULES)}")
        return
    yield from _schedule(plan)
    for device in range(plan.pp):
        for chunk in chunks_of_device(plan, device):
            if not chunk.layers and not chunk.has_embedding and not chunk.has_head:
                why = f"chunk {chunk.stage} would hold nothing"
                yield Refusal(field="layers_per_chunk", value=plan.layers_per_chunk, why=why)
                return


def _schedule(plan: Plan) -> Iterator[Refusal]:
    schedule, micro_batches = plan.schedule, plan.num_microbatches
    in_a_v = schedule in ("zb_v", "dualpipe_v")
    if in_a_v and plan.vpp != _CHUNKS_IN_A_V:
        yield Refusal(field="vpp", value=plan.vpp, why=f"{schedule} has two chunks on every device")
    if in_a_v and plan.zero_stage < 2 and plan.dp * plan.cp > 1 and plan.tp == 1:
        why = f"DDP doesn't take the split backward pass of {schedule}; stages 2 and 3 do"
        yield Refusal(field="zero_stage", value=plan.zero_stage, why=why)
    if in_a_v and plan.zero_stage == 3 and plan.dp * plan.cp > 1 and plan.reshard_after == "forward":
        why = f"weights' gradients go astray where {schedule} splits the backward pass and FSDP reshards before it"
        yield Refusal(field="zero_stage", value=plan.zero_stage, why=why)
    if schedule == "1f1b" and plan.vpp > 1:
        yield Refusal(field="schedule", value=schedule, why="several chunks on a device need interleaved_1f1b or gpipe")
    if schedule == "interleaved_1f1b" and plan.vpp == 1:
        yield Refusal(field="vpp", value=plan.vpp, why="interleaved_1f1b has several chunks on every device")
    # schedules.py of torch 2.13, the checks in the constructors of each class
    least = {"1f1b": plan.pp, "dualpipe_v": _CHUNKS_IN_A_V * plan.pp}.get(schedule, 1)
    if micro_batches < least:
        why = f"PyTorch's {schedule} needs at least {least} with pp {plan.pp}"
        yield Refusal(field="num_microbatches", value=micro_batches, why=why)
    rounds = max(1, micro_batches // plan.pp)
    if schedule == "interleaved_1f1b" and micro_batches % rounds:
        why = f"PyTorch's {schedule} takes them in {rounds} rounds, which don't divide them"
        yield Refusal(field="num_microbatches", value=micro_batches, why=why)
