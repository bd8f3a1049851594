"""The judge's part on MaxText."""

from __future__ import annotations

from costmodel.checker.findings import Findings, chunks_of, hybrid_heads, too_many_chunks
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _mesh(plan: Plan, scenario: Scenario) -> Findings:
    model = scenario.model
    if model.num_heads % plan.tp:
        yield "heads_divisible_by_tp", f"{model.num_heads} heads over tp {plan.tp}"
    if model.mla is None and model.num_kv_heads % plan.tp:
        yield "kv_heads_divisible_by_tp", f"{model.num_kv_heads} KV heads over tp {plan.tp}"
    if plan.dp % plan.ep:
        yield "experts_divide_data_parallel", f"dp {plan.dp} over ep {plan.ep}"
    if model.moe and plan.etp != plan.tp:
        yield "expert_tensor_parallel_is_tp", f"etp {plan.etp} with tp {plan.tp}"
    if plan.zero_stage == 1 and plan.dp_replicate > 1:
        yield "replicas_need_full_sharding", f"dp_replicate {plan.dp_replicate} with zero_stage 1"


def _pipeline(plan: Plan, scenario: Scenario) -> Findings:
    if plan.num_microbatches % plan.pp:
        yield "microbatches_divisible_by_pp", f"{plan.num_microbatches} micro-batches on pp {plan.pp}"
    moe = scenario.model.moe
    if plan.pp > 1 and moe and moe.num_dense_layers:
        yield "pipeline_layers_of_one_kind", f"{moe.num_dense_layers} dense layers on pp {plan.pp}"
    if plan.pp <= scenario.model.num_layers and not too_many_chunks(plan, scenario):
        counts = {count for device in chunks_of(plan) for count in device}
        if len(counts) > 1:
            yield "chunks_are_equal", f"chunks of {sorted(counts)} layers"


def _context(plan: Plan, scenario: Scenario) -> Findings:
    model, seq_len, cp = scenario.model, scenario.workload.seq_len, plan.cp
    tpu = scenario.cluster.accelerator.family == "tpu"
    if seq_len % cp:
        yield "sequence_divisible_by_cp", f"seq_len {seq_len} over cp {cp}"
    if cp == 1:
        return
    if plan.cp_comm_type == "p2p":
        if tpu:
            yield "ring_needs_gpu", f"p2p on {scenario.cluster.accelerator.name}"
        if seq_len % (cp * cp):
            yield "ring_sequence_divisible", f"seq_len {seq_len} over {cp} * {cp}"
        if cp % 2:
            yield "ring_needs_even_cp", f"cp {cp}"
        if model.num_mtp_layers:
            yield "ring_without_mtp", f"{model.num_mtp_layers} MTP layers"
    if plan.cp_comm_type == "a2a+p2p":
        if not tpu:
            yield "usp_needs_tpu", f"a2a+p2p on {scenario.cluster.accelerator.name}"
        if seq_len % (cp * cp):
            yield "usp_sequence_divisible", f"seq_len {seq_len} over {cp} * {cp}"
        if model.num_mtp_layers:
            yield "usp_without_mtp", f"{model.num_mtp_layers} MTP layers"
        yield from hybrid_heads(plan, scenario)
    if plan.cp_comm_type == "a2a":
        if not tpu:
            yield "ulysses_needs_tpu", f"a2a on {scenario.cluster.accelerator.name}"
        if model.num_heads % (plan.tp * cp):
            yield "a2a_heads_divisible_by_cp", f"{model.num_heads} heads over tp {plan.tp} and cp {cp}"
        if model.mla is None and model.num_kv_heads % (plan.tp * cp):
            yield "a2a_kv_heads_divisible_by_cp", f"{model.num_kv_heads} KV heads over tp {plan.tp} and cp {cp}"


MAXTEXT_PARTS = (_mesh, _pipeline, _context)
