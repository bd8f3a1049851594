"""The judge's part on Megatron-Core and what runs it."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.checker.experts import MEGATRON_EXPERT_PARTS
from costmodel.checker.findings import Findings, chunks_of, hybrid_heads, mesh_size, too_many_chunks
from costmodel.checker.megatron_model import MEGATRON_MODEL_PARTS
from costmodel.scenario import Scenario
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.plan import Plan


def _sharding(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    # moe_layer.py:636; dense models may leave it off.
    if scenario.model.moe and plan.tp > 1 and not plan.sequence_parallel:
        yield "sequence_parallel_follows_tp", f"an MoE model with tp {plan.tp} needs sequence_parallel"
    if plan.tp > 1 and plan.tp_overlap and not plan.sequence_parallel:
        yield "tp_overlap_needs_sequence_parallel", f"tp_overlap with tp {plan.tp} needs sequence_parallel"
    if plan.zero_stage >= 2:
        if not framework.has("megatron_fsdp"):
            yield "gradient_sharding_needs_megatron_fsdp", f"zero_stage {plan.zero_stage} in {framework.version}"
        optimizer = scenario.workload.optimizer.name
        if not (optimizer.startswith("adam") or optimizer.startswith("sgd")):
            yield "megatron_fsdp_optimizer", f"zero_stage {plan.zero_stage} with {optimizer}"
    if plan.zero_stage >= 1 and plan.dp_replicate > 1:
        if not framework.has("optimizer_instances"):
            yield "replicas_need_optimizer_instances", f"dp_replicate {plan.dp_replicate} in {framework.version}"
        experts, ranks = plan.ep * plan.etp * plan.dp_replicate, plan.tp * plan.cp * plan.dp
        together = scenario.model.moe and framework.has("expert_optimizer_instances")
        if together and ranks % experts != 0:
            yield "expert_dp_divisible_by_replicas", f"{ranks} ranks in {plan.dp_replicate} copies of {experts}"


def _offload(plan: Plan, scenario: Scenario) -> Findings:
    """Megatron-Core 0.16.1 transformer_config.py:1144-1152, optimizer_config.py:375-382; arguments.py of 2026-08."""
    if plan.offload == "activations":
        if plan.pp > 1:
            yield "activation_offload_without_pipeline", f"offload activations with pp {plan.pp}, must be 1"
        if plan.recompute != "none":
            yield "activation_offload_without_recompute", f"offload activations with recompute {plan.recompute}"
    if plan.offload == "optimizer":
        needs = "offload optimizer needs --use-precision-aware-optimizer, which needs"
        if plan.zero_stage == 0:
            yield "optimizer_offload_is_precision_aware", f"{needs} a sharded optimizer: zero_stage 0 must be 1 to 3"
        if not scenario.workload.optimizer.name.startswith("adam"):
            yield "optimizer_offload_is_precision_aware", f"{needs} adam, found {scenario.workload.optimizer.name}"


def _recompute(plan: Plan, scenario: Scenario) -> Findings:
    """Megatron-Core 0.14.0 transformer_config.py:912-918, 0.13.0:846."""
    framework, precision = scenario.framework, scenario.workload.precision
    eight_bits = precision.name.startswith(("fp8", "mxfp8"))
    if plan.recompute != "selective" or not eight_bits or not framework.has("fp8_recompute_checked"):
        return
    if framework.has("fp8_recompute_of_norms") and precision.name != "fp8":
        return
    for module in plan.recompute_modules:
        if module in ("layernorm", "moe_act"):
            yield "fp8_norms_run_once", f"recompute_modules {module} in precision {precision.name}"
            return


def _shapes(plan: Plan, scenario: Scenario) -> Findings:
    model, tp = scenario.model, plan.tp
    world = mesh_size(plan)
    if world % (plan.etp * plan.ep * plan.pp) != 0:
        yield "expert_mesh_divides_world", f"world {world}, etp * ep * pp = {plan.etp * plan.ep * plan.pp}"
    if model.num_heads % tp != 0:
        yield "heads_divisible_by_tp", f"{model.num_heads} heads over tp {tp}"
    if model.mla is None:
        if scenario.framework.has("kv_replication"):
            low, high = sorted((model.num_kv_heads, tp))
            if high % low != 0:
                yield "kv_heads_match_tp", f"{model.num_kv_heads} KV heads over tp {tp}"
            width = model.head_dim * (model.num_heads + model.num_kv_heads + model.num_kv_heads)
            if model.num_kv_heads < tp and width % tp != 0:
                yield "qkv_divisible_by_tp", f"queries, keys and values of width {width} over tp {tp}"
        elif model.num_kv_heads % tp != 0:
            yield "kv_heads_divisible_by_tp", f"{model.num_kv_heads} KV heads over tp {tp}"
    if model.num_dense_layers and model.ffn_hidden_size % tp != 0:
        yield "ffn_divisible_by_tp", f"ffn_hidden_size {model.ffn_hidden_size} over tp {tp}"
    if model.moe is not None:
        if model.moe.shared_expert_ffn_hidden_size % tp != 0:
            yield "shared_expert_ffn_divisible_by_tp", f"{model.moe.shared_expert_ffn_hidden_size} over tp {tp}"
        if model.moe.expert_ffn_hidden_size % plan.etp != 0:
            yield "expert_ffn_divisible_by_etp", f"{model.moe.expert_ffn_hidden_size} over etp {plan.etp}"


def _context(plan: Plan, scenario: Scenario) -> Findings:
    model, seq_len, cp = scenario.model, scenario.workload.seq_len, plan.cp
    if cp > 1 and seq_len % (2 * cp) != 0:
        yield "sequence_divisible_by_cp", f"seq_len {seq_len} over 2 * cp = {2 * cp}"
    if plan.sequence_parallel and (seq_len % cp != 0 or seq_len // cp % plan.tp != 0):
        yield "sequence_divisible_by_tp", f"seq_len {seq_len} over cp {cp} and tp {plan.tp}"
    if cp > 1 and plan.cp_comm_type == "all_gather" and not scenario.framework.has("cp_comm_type"):
        yield "all_gather_needs_cp_comm_type", f"all_gather in {scenario.framework.version}"
    if cp > 1 and plan.cp_comm_type == "a2a+p2p":
        if not scenario.framework.has("cp_comm_type"):
            yield "hybrid_cp_needs_cp_comm_type", f"a2a+p2p in {scenario.framework.version}"
        yield from hybrid_heads(plan, scenario)
    if cp > 1 and plan.cp_comm_type == "a2a":
        if not scenario.framework.has("cp_comm_type"):
            yield "a2a_needs_ulysses", f"a2a in {scenario.framework.version}"
        if model.num_heads % plan.tp != 0 or model.num_heads // plan.tp % cp != 0:
            yield "a2a_heads_divisible_by_cp", f"{model.num_heads} heads over tp {plan.tp} and cp {cp}"
        kv_heads = model.num_kv_heads
        if model.mla is None and (kv_heads % plan.tp != 0 or kv_heads // plan.tp % cp != 0):
            yield "a2a_kv_heads_divisible_by_cp", f"{kv_heads} KV heads over tp {plan.tp} and cp {cp}"


def _pipeline(plan: Plan, scenario: Scenario) -> Findings:
    rest = plan.num_microbatches % plan.pp
    if plan.schedule == "interleaved_1f1b" and rest != 0:
        yield "microbatches_divisible_by_pp", f"num_microbatches {plan.num_microbatches} over pp {plan.pp} leave {rest}"
    too_long = plan.pp > scenario.model.num_layers or too_many_chunks(plan, scenario)
    layout = "pipeline_layout_mtp" if scenario.model.num_mtp_layers else "pipeline_layout"
    if too_long or scenario.framework.has(layout):
        return
    chunks = chunks_of(plan)
    ends = plan.layers_per_stage[0], plan.layers_per_stage[-1]
    if chunks not in _splits(scenario.model.num_layers, plan.pp, plan.vpp, ends, scenario.framework):
        yield "layers_expressible", f"no flags of {scenario.framework.version} give {chunks}"


def _splits(
    layers: int, pp: int, vpp: int, ends: tuple[int, int], framework: FrameworkSpec
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """What Megatron makes of every setting of its flags; of first and last counts only those that equal ``ends``."""
    for embedding, loss in ((0, 0), (0, 1), (1, 0), (1, 1)) if framework.has("account_for_ends") else ((0, 0),):
        each, rest = divmod(layers + embedding + loss, pp * vpp)
        if rest == 0:
            rows = [[each] * vpp for _ in range(pp)]
            rows[0][0] -= embedding
            rows[-1][-1] -= loss
            yield tuple(map(tuple, rows))
    if not framework.has("uneven_ends") or (vpp > 1 and not framework.has("uneven_ends_interleaved")):
        return
    for first, last in ((ends[0], None), (None, ends[1]), ends):
        given = [count for count in (first, last) if count is not None]
        left, stages = layers - sum(given), pp - len(given)
        if stages < 0 or any(count <= 0 or count % vpp != 0 for count in given) or bool(left) != bool(stages):
            continue
        if stages and (left % stages != 0 or left // stages % vpp != 0):
            continue
        totals = [left // stages] * stages if stages else []
        totals = ([first] if first is not None else []) + totals + ([last] if last is not None else [])
        yield tuple((total // vpp,) * vpp for total in totals)


MEGATRON_PARTS = (
    _sharding,
    _offload,
    _recompute,
    _shapes,
    _context,
    _pipeline,
    *MEGATRON_MODEL_PARTS,
    *MEGATRON_EXPERT_PARTS,
)
