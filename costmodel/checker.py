"""An independent judge of one plan: every validity rule again, in plain scalars, from the frameworks' own checks.

It shares no code with ``costmodel.rules`` and is their oracle and the solver's: both have to agree with it by slug.
Beyond the rules it checks what only a finished plan has: layers that add up, and facts repeated from the scenario.
docs/rules.md gives the source of every slug.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from costmodel.errors import UnknownName
from costmodel.scenario import Scenario
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One rule that the plan breaks, and the numbers that show it."""

    rule: str
    reason: str


def check_plan(plan: Plan, scenario: Scenario) -> tuple[Violation, ...]:
    """Everything that is wrong with ``plan`` in ``scenario``; empty when it is legal. Memory is not judged here.

    Raises:
        UnknownName: when the rules of the scenario's framework are not known.
    """
    if scenario.framework.name != "megatron-core":
        raise UnknownName("framework", scenario.framework.name, ["megatron-core"])
    parts = (_contents, _mesh, _batch, _pipeline, _sharding, _megatron_shapes, _megatron_context, _megatron_pipeline)
    return tuple(Violation(rule=rule, reason=reason) for part in parts for rule, reason in part(plan, scenario))


Findings = Iterator[tuple[str, str]]


def _mesh_size(plan: Plan) -> int:
    """Devices of the dense mesh; ``devices_used`` is one of the facts that are judged."""
    return plan.tp * plan.cp * plan.dp * plan.pp


def _contents(plan: Plan, scenario: Scenario) -> Findings:
    workload, framework = scenario.workload, scenario.framework
    for name, found, given in (
        ("global_batch_size", plan.global_batch_size, workload.global_batch_size),
        ("seq_len", plan.seq_len, workload.seq_len),
        ("precision", plan.precision, workload.precision.name),
        ("optimizer", plan.optimizer, workload.optimizer.name),
        ("framework", plan.framework, framework.name),
        ("framework_version", plan.framework_version, framework.version),
    ):
        if found != given:
            yield "plan_matches_scenario", f"{name} {found}, the scenario has {given}"
    mesh = _mesh_size(plan)
    if plan.devices_used != mesh:
        yield "devices_used_is_the_mesh", f"devices_used {plan.devices_used}, tp * cp * dp * pp = {mesh}"
    # model_parallel_config.py:497 and moe_layer.py:636; dense models may leave it off.
    if plan.sequence_parallel and plan.tp == 1:
        yield "sequence_parallel_follows_tp", "sequence_parallel needs tp > 1, tp is 1"
    if scenario.model.moe and plan.tp > 1 and not plan.sequence_parallel:
        yield "sequence_parallel_follows_tp", f"an MoE model with tp {plan.tp} needs sequence_parallel"

    layers = plan.layers_per_stage
    if len(layers) != plan.pp or sum(layers) != scenario.model.num_layers:
        found, wanted = f"{len(layers)} stages with {sum(layers)} layers", f"{plan.pp} with {scenario.model.num_layers}"
        yield "layers_add_up", f"layers_per_stage has {found}, must be {wanted}"
    if plan.layers_per_chunk is None:
        if plan.vpp > 1:
            yield "chunks_add_up", f"vpp {plan.vpp} needs layers_per_chunk"
    elif any(len(chunks) != plan.vpp for chunks in plan.layers_per_chunk):
        yield "chunks_add_up", f"every device must have vpp {plan.vpp} chunks, layers_per_chunk {plan.layers_per_chunk}"
    elif tuple(sum(chunks) for chunks in plan.layers_per_chunk) != layers:
        yield "chunks_add_up", f"layers_per_chunk {plan.layers_per_chunk} doesn't sum to layers_per_stage {layers}"
    again = plan.recomputed_layers_per_stage
    if len(again) != len(layers) or any(some > all_ for some, all_ in zip(again, layers, strict=False)):
        yield "recomputed_within_layers", f"recomputed_layers_per_stage {again} must not exceed {layers}"
    if plan.recompute == "none" and any(again):
        yield "recomputed_within_layers", f"recompute none, but recomputed_layers_per_stage {again}"


def _mesh(plan: Plan, scenario: Scenario) -> Findings:
    used = _mesh_size(plan)
    node = scenario.cluster.devices_per_node
    if used > scenario.devices:
        yield "enough_devices", f"{used} devices used of {scenario.devices}"
    elif scenario.devices > node and (scenario.devices - used) % node != 0:
        yield "idle_devices_are_whole_nodes", f"{scenario.devices - used} idle devices are no multiple of {node}"
    moe = scenario.model.moe
    if moe is None:
        if plan.ep > 1 or plan.etp > 1:
            yield "experts_need_moe", f"ep {plan.ep}, etp {plan.etp} without experts"
    elif moe.num_experts % plan.ep != 0:
        yield "experts_divisible_by_ep", f"{moe.num_experts} experts over ep {plan.ep}"


def _batch(plan: Plan, scenario: Scenario) -> Findings:
    batch = scenario.workload.global_batch_size
    per_round = plan.micro_batch_size * plan.dp
    rounds, rest = divmod(batch, per_round)
    if rest:
        yield "batch_divisible", f"{batch} sequences over micro_batch_size * dp = {per_round} leave {rest}"
    if plan.num_microbatches != max(rounds, 1):
        yield "microbatches_fill_batch", f"num_microbatches {plan.num_microbatches}, must be {max(rounds, 1)}"


def _too_many_chunks(plan: Plan, scenario: Scenario) -> bool:
    """More chunks than layers, embedding and loss; what they would hold is then no further question."""
    return plan.vpp > 1 and plan.pp * plan.vpp > scenario.model.num_layers + 2


def _pipeline(plan: Plan, scenario: Scenario) -> Findings:
    if plan.pp > scenario.model.num_layers:
        yield "pipeline_within_layers", f"pp {plan.pp} for {scenario.model.num_layers} layers"
    if _too_many_chunks(plan, scenario):
        yield "chunks_within_layers", f"{plan.pp} * {plan.vpp} chunks for {scenario.model.num_layers} layers"
    if 0 in plan.layers_per_stage and (plan.pp > scenario.model.num_layers or not _too_many_chunks(plan, scenario)):
        yield "every_stage_has_a_layer", f"device {plan.layers_per_stage.index(0)} has 0 layers"
    if plan.pp > 1 and plan.schedule not in scenario.framework.schedules:
        yield "schedule_known", f"{scenario.framework.title} has no {plan.schedule}"
    if plan.pp == 1:
        fits = plan.schedule == "1f1b" and plan.vpp == 1
    elif plan.schedule == "interleaved_1f1b":
        fits = plan.vpp >= 2
    elif plan.schedule == "zb_v":
        fits = plan.vpp == 2
    else:
        fits = plan.vpp == 1 or plan.schedule == "dualpipe"
    if not fits:
        yield "schedule_fits_chunks", f"{plan.schedule} with pp {plan.pp}, vpp {plan.vpp}"


def _sharding(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    if plan.zero_stage not in framework.zero_stages:
        yield "zero_stage_known", f"{framework.title} has no zero_stage {plan.zero_stage}"
    if plan.dp_replicate * plan.dp_shard != plan.dp:
        yield "dp_is_replicate_times_shard", f"{plan.dp_replicate} * {plan.dp_shard} is not dp {plan.dp}"
    if plan.zero_stage == 0 and plan.dp_shard > 1:
        yield "unsharded_has_one_shard", f"zero_stage 0 with dp_shard {plan.dp_shard}"
    if plan.cp > 1 and plan.cp_comm_type not in framework.cp_comm_types:
        yield "cp_comm_type_known", f"{framework.title} has no {plan.cp_comm_type}"
    if plan.cp == 1 and plan.cp_comm_type != "p2p":
        yield "cp_comm_type_canonical", f"cp 1 with cp_comm_type {plan.cp_comm_type}, must be p2p"
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
        if scenario.model.moe and ranks % experts != 0:
            yield "expert_dp_divisible_by_replicas", f"{ranks} ranks in {plan.dp_replicate} copies of {experts}"


def _megatron_shapes(plan: Plan, scenario: Scenario) -> Findings:
    model, tp = scenario.model, plan.tp
    world = _mesh_size(plan)
    if world % (plan.etp * plan.ep * plan.pp) != 0:
        yield "expert_mesh_divides_world", f"world {world}, etp * ep * pp = {plan.etp * plan.ep * plan.pp}"
    if model.num_heads % tp != 0:
        yield "heads_divisible_by_tp", f"{model.num_heads} heads over tp {tp}"
    if model.mla is None:
        if scenario.framework.has("kv_replication"):
            low, high = sorted((model.num_kv_heads, tp))
            if high % low != 0:
                yield "kv_heads_match_tp", f"{model.num_kv_heads} KV heads over tp {tp}"
        elif model.num_kv_heads % tp != 0:
            yield "kv_heads_divisible_by_tp", f"{model.num_kv_heads} KV heads over tp {tp}"
    if model.hidden_size % tp != 0:
        yield "hidden_divisible_by_tp", f"hidden_size {model.hidden_size} over tp {tp}"
    if model.num_dense_layers and model.ffn_hidden_size % tp != 0:
        yield "ffn_divisible_by_tp", f"ffn_hidden_size {model.ffn_hidden_size} over tp {tp}"
    if model.moe is not None:
        if model.moe.shared_expert_ffn_hidden_size % tp != 0:
            yield "shared_expert_ffn_divisible_by_tp", f"{model.moe.shared_expert_ffn_hidden_size} over tp {tp}"
        if model.moe.expert_ffn_hidden_size % plan.etp != 0:
            yield "expert_ffn_divisible_by_etp", f"{model.moe.expert_ffn_hidden_size} over etp {plan.etp}"


def _megatron_context(plan: Plan, scenario: Scenario) -> Findings:
    model, seq_len, cp = scenario.model, scenario.workload.seq_len, plan.cp
    if cp > 1 and seq_len % (2 * cp) != 0:
        yield "sequence_divisible_by_cp", f"seq_len {seq_len} over 2 * cp = {2 * cp}"
    if plan.sequence_parallel and (seq_len % cp != 0 or seq_len // cp % plan.tp != 0):
        yield "sequence_divisible_by_tp", f"seq_len {seq_len} over cp {cp} and tp {plan.tp}"
    if cp > 1 and plan.cp_comm_type == "a2a":
        if not scenario.framework.has("ulysses"):
            yield "a2a_needs_ulysses", f"a2a in {scenario.framework.version}"
        if model.num_heads % plan.tp != 0 or model.num_heads // plan.tp % cp != 0:
            yield "a2a_heads_divisible_by_cp", f"{model.num_heads} heads over tp {plan.tp} and cp {cp}"
        kv_heads = model.num_kv_heads
        if model.mla is None and (kv_heads % plan.tp != 0 or kv_heads // plan.tp % cp != 0):
            yield "a2a_kv_heads_divisible_by_cp", f"{kv_heads} KV heads over tp {plan.tp} and cp {cp}"


def _megatron_pipeline(plan: Plan, scenario: Scenario) -> Findings:
    rest = plan.num_microbatches % plan.pp
    if plan.schedule == "interleaved_1f1b" and rest != 0:
        yield "microbatches_divisible_by_pp", f"num_microbatches {plan.num_microbatches} over pp {plan.pp} leave {rest}"
    too_long = plan.pp > scenario.model.num_layers or _too_many_chunks(plan, scenario)
    if too_long or scenario.framework.has("pipeline_layout"):
        return
    chunks = plan.layers_per_chunk or tuple((layers,) for layers in plan.layers_per_stage)
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
    if not framework.has("uneven_ends"):
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
