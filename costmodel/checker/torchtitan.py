"""The judge's part on torchtitan."""

from __future__ import annotations

from costmodel.checker.findings import Findings
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _shapes(plan: Plan, scenario: Scenario) -> Findings:
    model, tp = scenario.model, plan.tp
    if model.num_heads % tp:
        yield "heads_divisible_by_tp", f"{model.num_heads} heads over tp {tp}"
    if model.mla is None and model.num_kv_heads % tp:
        yield "kv_heads_divisible_by_tp", f"{model.num_kv_heads} KV heads over tp {tp}"
    pair_of_chunks = 2 * plan.cp
    if plan.cp == 1 and scenario.framework.has("sequence_divisor_by_cp"):
        pair_of_chunks = 1
    if scenario.workload.seq_len % (tp * pair_of_chunks):
        yield "sequence_divisible_by_cp_and_tp", f"seq_len {scenario.workload.seq_len} over tp {tp} and cp {plan.cp}"


def _mesh(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    copy = plan.tp * plan.cp * plan.dp_shard
    if copy % (plan.ep * plan.etp):
        yield "expert_mesh_divides_shards", f"{copy} ranks of a replica, ep {plan.ep} and etp {plan.etp}"
    if plan.cp > 1:
        if plan.cp_comm_type == "p2p" and framework.has("all_gather_only"):
            yield "ring_rotation_removed", f"cp {plan.cp} by p2p in {framework.version}"
        if plan.zero_stage not in (2, 3):
            yield "context_parallelism_is_sharded", f"cp {plan.cp} with zero_stage {plan.zero_stage}"
    ddp = plan.zero_stage == 0 and plan.dp_replicate > 1
    if ddp and plan.tp * plan.pp > 1 and not framework.has("composable_replication"):
        yield "replicas_need_plain_data_parallelism", f"DDP beside tp {plan.tp} and pp {plan.pp}"


def _experts(plan: Plan, scenario: Scenario) -> Findings:
    if scenario.model.moe is None:
        return
    framework, moe = scenario.framework, scenario.model.moe
    if plan.ep > 1:
        shards = max(plan.dp_shard * plan.cp * plan.tp // plan.ep, 1)
        too_few = moe.num_experts < shards * plan.ep
    else:
        shards = plan.dp_shard * plan.cp
        too_few = framework.has("whole_experts_cut") and moe.num_experts < plan.dp * plan.cp * plan.tp
    if (
        too_few
        and shards > 1
        and (moe.expert_ffn_hidden_size % (shards * plan.etp) or scenario.model.hidden_size % shards)
    ):
        yield "expert_shards_are_even", f"experts of width {moe.expert_ffn_hidden_size} over {shards} ranks"
    allowed = {plan.tp} if plan.ep == 1 else {1} if framework.has("experts_without_tp") else {1, plan.tp}
    if plan.etp not in allowed:
        yield "expert_tensor_parallel_follows_tp", f"etp {plan.etp} with tp {plan.tp} and ep {plan.ep}"
    if framework.has("ep_covers_tp") and plan.ep < plan.tp:
        yield "ep_covers_tp", f"ep {plan.ep} below tp {plan.tp}"


def _pipeline(plan: Plan, scenario: Scenario) -> Findings:
    count = plan.num_microbatches
    if plan.pp > 1:
        if scenario.model.tie_word_embeddings:
            yield "untied_embeddings_with_pipeline", f"tied embeddings on pp {plan.pp}"
        stages = {"1f1b": plan.pp, "dualpipe_v": plan.pp + plan.pp}.get(plan.schedule, 0)
        if count < stages:
            yield "microbatches_cover_stages", f"{count} micro-batches for {stages} stages"
    if plan.schedule == "interleaved_1f1b":
        rounds = count // plan.pp
        if rounds and count % rounds:
            yield "microbatches_fill_rounds", f"{count} micro-batches in {rounds} rounds"


def _offload(plan: Plan, scenario: Scenario) -> Findings:
    """0.2.2 models/llama3/infra/parallelize.py:125-148: replicas without shards are DDP; later all is FSDP."""
    ddp = plan.zero_stage == 0 and not scenario.framework.has("composable_replication")
    if plan.offload == "parameters" and ddp:
        yield "parameter_offload_is_sharded", "offload parameters with zero_stage 0, must be 2 or 3"


def _gathers(plan: Plan, scenario: Scenario) -> Findings:
    if plan.reshard_after == "step" and plan.pp == 1:
        yield "parameters_stay_in_pipelines_alone", "reshard_after step without a pipeline"
    wanted = "step" if plan.pp > 1 else "microbatch"
    if plan.zero_stage >= 2 and plan.gradient_sync != wanted:
        yield "pipelines_reduce_once_a_step", f"gradient_sync {plan.gradient_sync} with pp {plan.pp}, it is {wanted}"


TORCHTITAN_PARTS = (_shapes, _mesh, _experts, _pipeline, _offload, _gathers)
