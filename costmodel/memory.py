"""Bytes allocated on each stage at the fullest moment of the step, by term."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.arrays import Bools, Ints, Num, per_stage
from costmodel.facts import Facts
from costmodel.saved import hot_bytes, kept_activations, mtp_layers_of_kind
from costmodel.schedules import chunks_alive, chunks_held
from costmodel.sharding import Sharding
from costmodel.table import StageTable
from costmodel.terms.state import shard_share
from costmodel.terms.term import Outputs

MEMORY_TERMS = (
    "parameters",
    "weight_copies",
    "gradients",
    "optimizer",
    "activations",
    "recompute_workspace",
    "logits",
    "dispatch_buffers",
    "cp_buffers",
    "gathered_parameters",
    "hot_experts",
    "comm_buffers",
    "overhead",
    "optimizer_step",
)


_ONLY_IN_PASSES = (
    "activations",
    "recompute_workspace",
    "logits",
    "dispatch_buffers",
    "cp_buffers",
    "gathered_parameters",
    "hot_experts",
)


def stage_params(f: Facts, o: Outputs, stages: StageTable) -> tuple[Num, Num]:
    """Parameters on each stage's device: (reduced over the dense mesh, reduced over the expert mesh)."""
    dense_layers, moe = layers_of_kinds(f, stages)
    dense = dense_layers * per_stage(o["dense_layer_params"]) + moe * per_stage(o["moe_layer_params"])
    # A tied table is one table on a single stage; over a pipeline the last stage keeps a copy.
    single = stages.has_embedding * stages.has_head
    tables = stages.has_embedding + stages.has_head - single * per_stage(f.model.tied)
    dense = dense + tables * per_stage(o["table_params"])
    dense = dense + stages.has_head * per_stage(f.model.mtp_layers * o["mtp_projection_params"])
    dense = dense + stages.has_embedding * per_stage(f.model.other_params)
    return dense, moe * per_stage(o["expert_layer_params"])


def owned_params(f: Facts, o: Outputs, stages: StageTable, zero_stage: Num) -> Num:
    """Parameters of each stage whose optimizer state one rank keeps."""
    dense, expert = stage_params(f, o, stages)
    of_dense, of_experts = (per_stage(shard_share(zero_stage, 1, o[name])) for name in ("shards", "expert_shards"))
    owned: Num = dense * of_dense + expert * of_experts
    return owned


def layers_of_kinds(f: Facts, stages: StageTable) -> tuple[Num, Num]:
    """(dense, MoE) layers on each stage's device, with those of multi-token prediction."""
    dense = stages.dense_layers + stages.has_head * mtp_layers_of_kind(f, moe=False)
    return dense, stages.moe_layers + stages.has_head * mtp_layers_of_kind(f, moe=True)


def stage_memory(
    f: Facts,
    o: Outputs,
    stages: StageTable,
    *,
    sharding: Sharding,
    recompute: Ints,
    recompute_interval: Num,
    schedule: Ints,
    pp: Num,
    vpp: Num,
    num_microbatches: Num,
    overlaps_experts: Bools,
) -> dict[str, Num]:
    """Every term of ``MEMORY_TERMS`` as ``(rows, stages)`` bytes."""
    dense, expert = stage_params(f, o, stages)
    dense_layers, moe_layers = layers_of_kinds(f, stages)
    work, zero_stage = f.work, sharding.zero_stage
    parameter_stage = np.where(sharding.cuts_parameters, 3.0, zero_stage)

    def cut(since: int, per_param: Num, stage: Num = zero_stage) -> Num:
        of_dense = per_param * shard_share(stage, since, o["shards"])
        of_experts = per_param * shard_share(stage, since, o["expert_shards"])
        return dense * per_stage(of_dense) + expert * per_stage(of_experts)

    alive = chunks_alive(
        schedule[..., np.newaxis], per_stage(pp), per_stage(vpp), per_stage(num_microbatches), stages.index
    )
    held = chunks_held(schedule, vpp)
    per_micro_batch, of_head, workspace = kept_activations(f, o, stages, recompute, recompute_interval, held)
    activations = alive * per_micro_batch / per_stage(held) + of_head
    # What routing that is not even adds, told apart from what an even one would need.
    hot_activations = alive * hot_bytes(o, stages, recompute) / per_stage(held)
    hot_buffers = hot_buffer_bytes(o, stages, overlaps_experts)
    buffers = per_stage(o["dispatch_bytes"] * _in_flight(overlaps_experts)) * (stages.moe_layers > 0)

    heads = stages.has_head * per_stage(1.0 + f.model.mtp_layers)
    logits = heads * per_stage(o["logits_bytes"]) + stages.has_head * 2.0 * per_stage(o["boundary_bytes"])

    # Only the products of layers are quantised, so only their parameters have copies.
    in_layers = dense_layers * per_stage(o["dense_layer_params"]) + moe_layers * per_stage(o["moe_layer_params"])
    copies = in_layers * per_stage(shard_share(parameter_stage, 3, o["shards"]))
    copies = copies + expert * per_stage(shard_share(parameter_stage, 3, o["expert_shards"]))

    shape = np.zeros_like(activations)
    # Part of what is measured beside state and activations, told apart as far as it is known.
    communication = np.minimum(o["communicators"] * f.cal.communicator_bytes, f.cal.overhead_bytes)
    temporaries = owned_params(f, o, stages, zero_stage) * per_stage(
        f.cal.optimizer_temporary_share * f.work.moment_bytes
    )
    copies_each = work.gradient_copy_bytes + np.where(
        (zero_stage == 0) & (sharding.ranks > 1), work.unsharded_copy_bytes, 0.0
    )
    gradients = cut(2, work.gradient_bytes, np.where(sharding.cuts_gradients, zero_stage, 1.0))
    gradients = gradients + (dense + expert) * per_stage(copies_each)
    terms = {
        "parameters": cut(3, work.kept_param_bytes, parameter_stage) - copies * per_stage(work.absent_param_bytes),
        "weight_copies": copies * per_stage(work.kept_copy_bytes),
        "gradients": gradients,
        "optimizer": cut(1, work.optimizer_bytes),
        "activations": activations - hot_activations,
        "recompute_workspace": workspace + shape,
        "logits": logits,
        "dispatch_buffers": buffers - hot_buffers,
        "cp_buffers": per_stage(o["cp_buffer_bytes"]) + shape,
        "gathered_parameters": gathered_bytes(f, o, stages, sharding),
        "hot_experts": hot_activations + hot_buffers,
        "comm_buffers": per_stage(communication) + shape,
        "overhead": per_stage(f.cal.overhead_bytes - communication) + shape,
    }
    return terms | {"optimizer_step": optimizer_step_bytes(terms, temporaries)}


def hot_buffer_bytes(o: Outputs, stages: StageTable, overlaps_experts: Bools) -> Num:
    """What uneven routing adds to the buffers of dispatch and combine on each stage.

    The rest of ``hot_experts`` is kept for the backward pass.
    """
    return per_stage(o["dispatch_hot_bytes"] * _in_flight(overlaps_experts)) * (stages.moe_layers > 0)


def _in_flight(overlaps_experts: Bools) -> Num:
    """Two micro-batches are on their way at once where their exchanges overlap."""
    return np.where(overlaps_experts, 2.0, 1.0)


def optimizer_step_bytes(terms: Mapping[str, Num], temporaries: Num) -> Num:
    """By how much the optimizer's step needs more than the fullest moment of the passes.

    Activations and their buffers are gone by then; the step's temporaries are there instead.
    """
    of_passes = sum((terms[name] for name in _ONLY_IN_PASSES), start=np.zeros(()))
    beyond: Num = np.maximum(temporaries - of_passes, 0.0)
    return beyond


def visiting_bytes(f: Facts, o: Outputs, stages: StageTable, prefetch: Num) -> Num:
    """The layer at work and those that are fetched ahead, and a table beside its neighbouring layer, per stage."""
    work = f.work
    dense_unit = per_stage(o["dense_layer_params"]) * (stages.dense_layers > 0)
    moe_unit = per_stage(o["moe_layer_params"] + o["expert_layer_params"]) * (stages.moe_layers > 0)
    table_bytes = per_stage(o["table_params"] * work.param_bytes) * np.maximum(stages.has_embedding, stages.has_head)
    layer_bytes = np.maximum(dense_unit, moe_unit) * per_stage(work.gathered_bytes)
    further = np.minimum(per_stage(prefetch), np.maximum(stages.dense_layers + stages.moe_layers, 1.0))
    return further * layer_bytes + np.maximum(layer_bytes, table_bytes)


def gathered_bytes(f: Facts, o: Outputs, stages: StageTable, sharding: Sharding) -> Num:
    """What ZeRO-3 holds beside its shards, per stage.

    The layer at work and those that are fetched ahead, and a table beside its neighbouring layer (PyTorch FSDP); or all
    parameters of the stage, once they stay from the forward to the backward pass. With hpZ also the share of each in
    the node's second copy (Wang 2023, arXiv 2306.10209, section 3.2).
    """
    work = f.work
    units = visiting_bytes(f, o, stages, sharding.prefetch)
    dense, expert = stage_params(f, o, stages)
    dense_layers, moe_layers = layers_of_kinds(f, stages)
    in_layers = dense_layers * per_stage(o["dense_layer_params"]) + moe_layers * per_stage(o["moe_layer_params"])
    in_layers = in_layers + expert
    whole = (dense + expert - in_layers) * per_stage(work.param_bytes) + in_layers * per_stage(work.gathered_bytes)
    held = np.where(per_stage(sharding.keeps_whole) > 0, whole, units)
    held = held * per_stage(np.where(sharding.cuts_parameters, 1.0, 0.0))
    if sharding.second_copy.any():
        second = dense / per_stage(o["shards_in_domain"]) + expert / per_stage(o["expert_shards_in_domain"])
        held = held + second * per_stage(work.param_bytes * sharding.second_copy)
    return held
