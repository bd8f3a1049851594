"""The judge's part on DeepSpeed."""

from __future__ import annotations

from costmodel.checker.findings import Findings
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _pipeline(plan: Plan, scenario: Scenario) -> Findings:
    if plan.pp > 1:
        if plan.zero_stage in (2, 3):
            yield "pipeline_needs_zero_below_2", f"pp {plan.pp} with zero_stage {plan.zero_stage}"
        if plan.cp > 1:
            yield "pipeline_without_context_parallelism", f"pp {plan.pp} with cp {plan.cp}"


def _sharding(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    if plan.zero_stage == 3 and plan.tp > 1 and not framework.has("auto_tp_zero_3"):
        yield "auto_tp_needs_zero_below_3", f"tp {plan.tp} under stage 3 in {framework.version}"
    if plan.dp_replicate > 1:
        if framework.has("mics_removed"):
            if plan.zero_stage >= 1:
                yield "no_hybrid_sharding", f"{plan.dp_replicate} copies of what stage {plan.zero_stage} shards"
        elif plan.zero_stage in (1, 2):
            yield "replicas_need_mics", f"{plan.dp_replicate} copies of what stage {plan.zero_stage} shards"


def _experts(plan: Plan, scenario: Scenario) -> Findings:
    ranks, auto_ep = plan.tp * plan.cp * plan.dp, scenario.framework.has("auto_ep")
    if ranks % (plan.ep * plan.etp):
        yield "expert_mesh_divides_world", f"{ranks} ranks of a stage, ep {plan.ep} and etp {plan.etp}"
    if plan.cp * plan.dp % plan.ep:
        folded_over_tp = auto_ep and plan.etp == plan.pp == plan.cp == 1
        if not folded_over_tp:
            yield "experts_divide_data_parallel", f"cp * dp = {plan.cp * plan.dp}, ep {plan.ep}"
    if plan.etp not in (1, plan.tp):
        yield "expert_tensor_parallel_is_1_or_tp", f"etp {plan.etp} with tp {plan.tp}"
    if plan.ep > 1 and plan.zero_stage == 3:
        if not auto_ep:
            yield "zero_3_without_expert_parallelism", f"ep {plan.ep} under stage 3"
        elif plan.cp > 1 or plan.etp > 1:
            yield "zero_3_experts_without_context_parallelism", f"ep {plan.ep}, cp {plan.cp}, etp {plan.etp}"


def _ulysses(plan: Plan, scenario: Scenario) -> Findings:
    model, seq_len = scenario.model, scenario.workload.seq_len
    if seq_len % plan.cp:
        yield "sequence_divisible_by_cp", f"seq_len {seq_len} over cp {plan.cp}"
    if plan.cp > 1 and plan.cp_comm_type == "a2a":
        ranks = plan.tp * plan.cp
        if model.num_heads % ranks:
            yield "a2a_heads_divisible_by_cp", f"{model.num_heads} heads over {ranks} ranks"
        fewer, more = sorted((model.num_kv_heads, ranks))
        if model.mla is None and more % fewer:
            yield "a2a_kv_heads_match_cp", f"{model.num_kv_heads} KV heads over {ranks} ranks"


def _offload(plan: Plan, scenario: Scenario) -> Findings:
    """0.19.8 runtime/engine.py, runtime/zero/offload_config.py:22; activation_checkpointing/checkpointing.py:403."""
    if plan.offload == "optimizer" and plan.zero_stage == 0:
        yield "optimizer_offload_is_sharded", "offload optimizer with zero_stage 0, must be 1 to 3"
    if plan.offload == "parameters" and plan.zero_stage != 3:
        yield "parameter_offload_is_sharded", f"offload parameters with zero_stage {plan.zero_stage}, must be 3"
    if plan.offload == "activations" and plan.recompute != "full":
        yield "activation_offload_of_checkpoints", f"offload activations with recompute {plan.recompute}, must be full"


def _exchanges(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    if plan.zero_stage >= 2 and plan.gradient_sync == "step" and not framework.has("coalesced_reduction"):
        yield "gradients_accumulate_sharded", f"gradient_sync step under stage {plan.zero_stage} in {framework.version}"
    if not plan.zero_plus:
        return
    grouped = {"hpz", "qgz"} & set(plan.zero_plus)
    if grouped and plan.ep > 1 and framework.has("auto_ep"):
        yield "zero_plus_without_experts", f"{', '.join(sorted(grouped))} with ep {plan.ep}"
    if grouped and (plan.tp > 1 or plan.cp > 1):
        yield "second_copy_without_model_parallelism", f"{', '.join(sorted(grouped))} with tp {plan.tp}, cp {plan.cp}"
    if plan.dp_replicate > 1 and not framework.has("mics_removed"):
        yield "second_copy_without_replicas", f"{', '.join(plan.zero_plus)} with {plan.dp_replicate} replicas"


DEEPSPEED_PARTS = (_pipeline, _sharding, _experts, _ulysses, _offload, _exchanges)
