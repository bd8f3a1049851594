"""The judge's parts on frameworks with few checks of their own: nanotron, LLM Foundry and Accelerate."""

from __future__ import annotations

from costmodel.checker.findings import Findings
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _whole_experts(plan: Plan, scenario: Scenario) -> Findings:
    if (plan.ep, plan.etp) != (1, 1):
        yield "no_expert_parallelism", f"ep {plan.ep}, etp {plan.etp}"


def _nanotron(plan: Plan, scenario: Scenario) -> Findings:
    model, seq_len, tp, cp = scenario.model, scenario.workload.seq_len, plan.tp, plan.cp
    for slug, size in (
        ("heads_divisible_by_tp", model.num_heads),
        ("kv_heads_divisible_by_tp", model.num_kv_heads if model.mla is None else 0),
        ("ffn_divisible_by_tp", model.ffn_hidden_size if model.num_dense_layers else 0),
    ):
        if size % tp:
            yield slug, f"{size} over tp {tp}"
    if cp > 1:
        if not scenario.framework.has("context_parallel"):
            yield "no_context_parallelism", f"cp {cp} in {scenario.framework.version}"
        if seq_len % (2 * cp):
            yield "sequence_divisible_by_cp", f"seq_len {seq_len} over 2 * {cp}"
    if tp > 1 and (seq_len % cp or seq_len // cp % tp):
        yield "sequence_divisible_by_tp", f"seq_len {seq_len} over cp {cp} and tp {tp}"
    if plan.zero_stage > 0 and plan.dp_replicate > 1:
        yield "no_hybrid_sharding", f"{plan.dp_replicate} copies under stage {plan.zero_stage}"
    if plan.schedule == "1f1b" and plan.num_microbatches + 1 < plan.pp:
        yield "microbatches_fill_warm_up", f"{plan.num_microbatches} micro-batches on pp {plan.pp}"


def _llm_foundry(plan: Plan, scenario: Scenario) -> Findings:
    if plan.tp > 1:
        yield "no_tensor_parallelism", f"tp {plan.tp}"


def _accelerate(plan: Plan, scenario: Scenario) -> Findings:
    model, seq_len, framework = scenario.model, scenario.workload.seq_len, scenario.framework
    sp = plan.cp if plan.cp_comm_type == "a2a" else 1
    cp = plan.cp // sp
    if (plan.tp > 1 or cp > 1) and plan.dp_replicate > 1 and plan.dp_shard == 1:
        yield "replicas_need_shards", f"{plan.dp_replicate} whole copies with tp {plan.tp} and cp {cp}"
    if cp > 1:
        if plan.zero_stage < 2:
            yield "context_parallelism_is_sharded", f"cp {cp} with zero_stage {plan.zero_stage}"
        if seq_len % (2 * cp):
            yield "sequence_divisible_by_cp", f"seq_len {seq_len} over 2 * {cp}"
    if plan.zero_stage >= 2 and plan.dp_shard == plan.cp == 1 and framework.has("empty_fsdp_refused"):
        yield "fsdp_needs_ranks", f"zero_stage {plan.zero_stage} over one rank"
    if plan.offload == "parameters" and plan.zero_stage < 2:
        yield "parameter_offload_is_sharded", f"offload parameters with zero_stage {plan.zero_stage}, must be 2 or 3"
    if sp > 1:
        ranks = plan.tp * sp
        if not framework.has("ulysses"):
            yield "a2a_needs_ulysses", f"a2a in {framework.version}"
        if plan.zero_stage > 0 and plan.dp_replicate > 1:
            yield "a2a_shards_over_all_replicas", f"dp_replicate {plan.dp_replicate}"
        if seq_len % sp:
            yield "a2a_sequence_divisible_by_cp", f"seq_len {seq_len} over {sp}"
        if model.num_heads % ranks:
            yield "a2a_heads_divisible_by_cp", f"{model.num_heads} heads over {ranks} ranks"
        if model.mla is None and model.num_kv_heads % ranks and ranks % model.num_kv_heads:
            yield "a2a_kv_heads_match_cp", f"{model.num_kv_heads} KV heads over {ranks} ranks"


NANOTRON_PARTS = (_whole_experts, _nanotron)
LLM_FOUNDRY_PARTS = (_whole_experts, _llm_foundry)
ACCELERATE_PARTS = (_whole_experts, _accelerate)
