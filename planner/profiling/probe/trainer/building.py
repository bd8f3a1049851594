"""From a job to the chunks of this rank: built on the device layer by layer, cut, checkpointed and replicated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from planner.profiling.probe.can import is_sharded, selects_products
from planner.profiling.probe.job import ProbeJob
from planner.profiling.probe.layout import Chunk, chunks_of_device
from planner.profiling.probe.trainer import data_parallel as dp
from planner.profiling.probe.trainer.context import context_core, positions_of
from planner.profiling.probe.trainer.mesh import Ranks
from planner.profiling.probe.trainer.model import Block, Part, Shape, initialise
from planner.profiling.probe.trainer.parts import Core, attention, unfused_attention
from planner.profiling.probe.trainer.recompute import Recompute, checkpoint_modules
from planner.profiling.probe.trainer.tensor_parallel import cut_block, cut_ends


@dataclass(frozen=True, kw_only=True)
class Built:
    """A chunk ready to run.

    Attributes:
        module: under DDP or FSDP where it is replicated; ``part`` is what is inside.
    """

    chunk: Chunk
    part: Part
    module: nn.Module


def build(job: ProbeJob, ranks: Ranks, device: torch.device) -> tuple[Built, ...]:
    """The chunks of this rank, in the order in which they are visited.

    Every layer is drawn whole and cut before the next is built: a device never holds more than one of them whole.
    """
    plan, shape = job.plan, _shape(job, ranks, device)
    parts = [(chunk, _part(job, chunk, shape, ranks, device)) for chunk in chunks_of_device(plan, ranks.stage)]
    return tuple(Built(chunk=chunk, part=part, module=_replicated(job, part, ranks, device)) for chunk, part in parts)


def computes_in(job: ProbeJob) -> torch.dtype:
    """What products are computed in."""
    return torch.float32 if job.plan.precision == "fp32" else torch.bfloat16


def _shape(job: ProbeJob, ranks: Ranks, device: torch.device) -> Shape:
    plan, spec = job.plan, job.scenario.model
    kernel = attention if job.scenario.fused_attention else unfused_attention
    core: Core = kernel
    if ranks.context is not None:
        core = context_core(plan, ranks.context, ranks.piece, kernel)
    return Shape(
        spec=spec,
        vocab=-(-spec.vocab_size // plan.tp) * plan.tp,
        dtype=computes_in(job),
        positions=positions_of(plan, ranks.piece, device),
        core=core,
        seed=job.seed,
    )


def _part(job: ProbeJob, chunk: Chunk, shape: Shape, ranks: Ranks, device: torch.device) -> Part:
    plan = job.plan
    dtype = torch.bfloat16 if plan.precision == "bf16-pure" else torch.float32
    with device:
        part = Part(shape, chunk).to(dtype)
        initialise(part, "", shape)
        if plan.tp > 1:
            cut_ends(part, ranks.tensor, sequence=plan.sequence_parallel)
        if shape.spec.tie_word_embeddings:
            part.tie()
        for layer in chunk.layers:
            part.blocks[str(layer)] = _block(job, chunk, layer, shape, ranks, dtype)
    part.spans = _spans(job, chunk, list(part.blocks.values()))
    return part


def _block(job: ProbeJob, chunk: Chunk, layer: int, shape: Shape, ranks: Ranks, dtype: torch.dtype) -> nn.Module:
    plan, runs_again = job.plan, layer - chunk.layers.start < chunk.recomputed
    by_products = selects_products(job.scenario, plan)
    # Layers that share a checkpoint have it around all of them, in their part.
    whole = plan.recompute == "full" and runs_again and plan.recompute_interval == 1
    block = Block(shape, layer, Recompute(whole=whole, products=by_products)).to(dtype)
    initialise(block, f"blocks.{layer}.", shape)
    if plan.tp > 1:
        cut_block(block, ranks.tensor, sequence=plan.sequence_parallel)
    if plan.recompute == "selective" and not by_products:
        checkpoint_modules(block, plan.recompute_modules)
    if dp.by_fsdp(plan):
        dp.shard(block, plan, ranks)
    return block


def _spans(job: ProbeJob, chunk: Chunk, blocks: list[nn.Module]) -> tuple[tuple[tuple[nn.Module, ...], bool], ...]:
    plan = job.plan
    if plan.recompute != "full" or plan.recompute_interval == 1:
        return tuple(((block,), False) for block in blocks)
    again, step = blocks[: chunk.recomputed], plan.recompute_interval
    shared = [(tuple(again[begin : begin + step]), True) for begin in range(0, len(again), step)]
    return (*shared, *(((block,), False) for block in blocks[chunk.recomputed :]))


def _replicated(job: ProbeJob, part: Part, ranks: Ranks, device: torch.device) -> nn.Module:
    plan = job.plan
    if dp.by_fsdp(plan):
        dp.shard(part, plan, ranks)
        if is_sharded(plan):
            dp.prefetch(list(part.blocks.values()), plan.fsdp_prefetch)
        return part
    return dp.replicate(part, plan, ranks, device) if dp.is_replicated(plan) else part


def local(parameter: Tensor) -> Tensor:
    """This rank's piece of a parameter or a gradient."""
    from torch.distributed.tensor import DTensor

    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
