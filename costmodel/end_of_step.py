"""What data parallelism does once a step: reduction and gathering beyond what passes hide, and the optimizer.

Gradients that are ready are reduced in buckets while the last backward pass goes on, so the last bucket has nothing to
hide under (Li 2020, arXiv 2006.15704, section 3.2.3); parameters are gathered under the first forward pass, where that
holds for the first bucket. Whole tensors that stage 1 dealt to ranks are broadcast one rank after the other when
all have been updated, before any pass. What is exchanged layer by layer is part of the micro-batches' work
(``costmodel.sharded_layers``), but for the one layer that has nothing to hide under.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from costmodel.arrays import Bools, Num, per_stage
from costmodel.facts import Facts
from costmodel.kernels import memory_bound_s
from costmodel.memory import owned_params, stage_params
from costmodel.once_a_step import whole_matrices_s
from costmodel.sharding import Sharding
from costmodel.table import StageTable
from costmodel.terms.data_parallel import exchanged_s
from costmodel.terms.term import Outputs
from costmodel.terms.zero_plus import quantised_gather_s, quantised_reduction_s

Exchange = Literal["reduce", "gather"]


def bucket_params(f: Facts, sharding: Sharding) -> Num:
    """Parameters of one bucket of gradients under stages 0 and 1; 0 where a bucket is a layer.

    Stages 2 and 3 exchange unit by unit; a unit is a layer.
    """
    of_bytes = f.work.bucket_bytes / sharding.gradient_bytes
    params = np.maximum(of_bytes, np.maximum(f.work.bucket_params, f.work.bucket_params_per_rank * sharding.ranks))
    return np.where(sharding.zero_stage >= 2, 0.0, params)


def exchanges_s(f: Facts, o: Outputs, stages: StageTable, sharding: Sharding, kind: Exchange) -> tuple[Num, Num]:
    """Seconds of all buckets (or layers) of a stage's gradients or parameters, and of the last one."""
    dense, expert = stage_params(f, o, stages)
    layers = _layers(stages)
    wire_bytes = sharding.gradient_bytes if kind == "reduce" else sharding.parameter_bytes
    bucket = per_stage(bucket_params(f, sharding))
    by_layer = bucket <= 0
    # The table of embeddings is one tensor, so the last bucket is at least as large.
    last = np.maximum(bucket, stages.has_embedding * per_stage(o["table_params"]))
    layers_with = {"": layers, "expert_": stages.moe_layers}
    everything, of_last = np.zeros(()), np.zeros(())
    for prefix, params, largest in (("", dense, last), ("expert_", expert, bucket)):
        count = np.where(by_layer, layers, np.maximum(np.ceil(params / np.where(by_layer, 1.0, bucket)), 1.0))
        if kind == "gather" and sharding.deals_tensors.any():
            # A broadcast for every rank that owns any.
            tensors = layers_with[prefix] * per_stage(o[prefix + "layer_tensors"])
            senders = np.clip(tensors, 1.0, per_stage(o[prefix + "shards"]))
            count = np.where(per_stage(sharding.deals_tensors), senders, count)
        seconds = count * exchanged_s(f, o, prefix + kind, params * per_stage(wire_bytes) / count)
        alone = exchanged_s(f, o, prefix + kind, np.minimum(params, largest) * per_stage(wire_bytes))
        everything, of_last = everything + seconds, of_last + np.where(by_layer, seconds / layers, alone)
    return everything, np.minimum(of_last, everything)


def _layers(stages: StageTable) -> Num:
    return np.maximum(stages.dense_layers + stages.moe_layers, 1.0)


def hiding_shares(f: Facts, sharding: Sharding) -> tuple[Num, Num]:
    """Share of the last backward pass that hides the reduction, and of the first forward pass that hides gathering."""
    by_unit, at_once = f.cal.fsdp_overlap_share, f.cal.dp_overlap_share
    # Nobody fetches ahead: a first forward pass waits for each of its layers.
    waits = sharding.deals_tensors | (sharding.cuts_parameters & (sharding.prefetch == 0))
    ahead = np.where(waits, 0.0, np.where(sharding.gathers_ahead, by_unit, at_once))
    return np.where(sharding.zero_stage >= 2, by_unit, at_once), ahead


def exposed_exchanges_s(
    f: Facts, o: Outputs, stages: StageTable, sharding: Sharding, *, ahead: Num, back: Num, num_microbatches: Num
) -> Num:
    """Exposed gradient reduction and parameter gathering, per stage.

    Args:
        ahead, back: seconds of the first forward and the last backward pass that these can hide under.
    """
    layers = _layers(stages)

    def exposed(exchanged: tuple[Num, Num], share: Num, window: Num, once: Bools, at_ends: Num) -> Num:
        seconds, first_or_last = exchanged
        hides = per_stage(share) * np.maximum(window, 0.0)
        left = np.maximum(seconds - hides, first_or_last)
        # What passes have not hidden of it is in the micro-batches' work already.
        alone = np.minimum(first_or_last, hides / layers)
        return np.where(per_stage(once) > 0, left, per_stage(at_ends) * alone)

    # Under stages 0 and 1 a backward pass ends with its last bucket, every time that it is reduced; the units of 2 and
    # 3 go on under the next forward pass, but for the step's last. What nobody gathers ahead is waited for already.
    ends = np.where(sharding.zero_stage >= 2, 1.0, num_microbatches)
    starts = np.where(sharding.gathers_ahead & (sharding.prefetch > 0), 1.0, 0.0)
    share, share_ahead = hiding_shares(f, sharding)
    reduced, gathered = exchanges_s(f, o, stages, sharding, "reduce"), exchanges_s(f, o, stages, sharding, "gather")
    reduction = exposed(reduced, share, back, ~sharding.reduces_each, ends)
    gathering = exposed(gathered, share_ahead, ahead, sharding.gathers_once, starts)
    return reduction + gathering + _casts_s(f, o, *stage_params(f, o, stages), sharding)


def _casts_s(f: Facts, o: Outputs, dense: Num, expert: Num, sharding: Sharding) -> Num:
    """Casting around quantised exchanges that happen once a step."""
    gathers = sharding.quantised_gathers & sharding.gathers_once
    reduces = sharding.quantised_reduction & ~sharding.reduces_each
    if not (gathers.any() or reduces.any()):
        return np.zeros(())
    one = np.ones(())
    gather = (dense + expert) * per_stage(quantised_gather_s(f, one))
    reduction = dense * per_stage(quantised_reduction_s(f, one, o["shards_in_domain"]))
    reduction = reduction + expert * per_stage(quantised_reduction_s(f, one, o["expert_shards_in_domain"]))
    return np.where(per_stage(gathers), gather, 0.0) + np.where(per_stage(reduces), reduction, 0.0)


def optimizer_s(f: Facts, o: Outputs, stages: StageTable, zero_stage: Num) -> Num:
    """The optimizer's own pass over what a rank owns, per stage."""
    owned = owned_params(f, o, stages, zero_stage)
    seconds = owned * per_stage(memory_bound_s(f, f.cal.optimizer_traffic_bytes * f.work.optimizer_traffic))
    if (f.work.newton_schulz > 0).any():
        seconds = seconds + whole_matrices_s(f, o, stages, zero_stage)
    return seconds
