"""The judge's general part: the finished plan agrees with itself and its scenario, and what holds everywhere."""

from __future__ import annotations

from costmodel.checker.experts import DISPATCH_PARTS
from costmodel.checker.findings import Findings, mesh_size, too_many_chunks
from costmodel.checker.recompute_and_offload import RECOMPUTE_AND_OFFLOAD_PARTS
from costmodel.checker.sharding import SHARDING_PARTS
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _contents(plan: Plan, scenario: Scenario) -> Findings:
    workload, framework = scenario.workload, scenario.framework
    for name, found, given in (
        ("global_batch_size", plan.global_batch_size, workload.global_batch_size),
        ("seq_len", plan.seq_len, workload.seq_len),
        ("precision", plan.precision, workload.precision.name),
        ("optimizer", plan.optimizer, workload.optimizer.name),
        ("gradient_dtype", plan.gradient_dtype, scenario.gradients),
        ("framework", plan.framework, framework.name),
        ("framework_version", plan.framework_version, framework.version),
    ):
        if found != given:
            yield "plan_matches_scenario", f"{name} {found}, the scenario has {given}"
    mesh = mesh_size(plan)
    if plan.devices_used != mesh:
        yield "devices_used_is_the_mesh", f"devices_used {plan.devices_used}, tp * cp * dp * pp = {mesh}"
    if plan.sequence_parallel and plan.tp == 1:
        yield "sequence_parallel_follows_tp", "sequence_parallel needs tp > 1, tp is 1"


def _layers(plan: Plan, scenario: Scenario) -> Findings:
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
    used = mesh_size(plan)
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


def _pipeline(plan: Plan, scenario: Scenario) -> Findings:
    if plan.pp > scenario.model.num_layers:
        yield "pipeline_within_layers", f"pp {plan.pp} for {scenario.model.num_layers} layers"
    if too_many_chunks(plan, scenario):
        yield "chunks_within_layers", f"{plan.pp} * {plan.vpp} chunks for {scenario.model.num_layers} layers"
    if 0 in plan.layers_per_stage and (plan.pp > scenario.model.num_layers or not too_many_chunks(plan, scenario)):
        yield "every_stage_has_a_layer", f"device {plan.layers_per_stage.index(0)} has 0 layers"
    if plan.pp > 1 and plan.schedule not in scenario.framework.schedules:
        yield "schedule_known", f"{scenario.framework.title} has no {plan.schedule}"
    if plan.pp == 1:
        fits = plan.schedule == "1f1b" and plan.vpp == 1
    elif plan.schedule == "interleaved_1f1b":
        fits = plan.vpp >= 2
    elif plan.schedule in ("zb_v", "dualpipe_v"):
        fits = plan.vpp == 2
    else:
        fits = plan.vpp == 1
    if not fits:
        yield "schedule_fits_chunks", f"{plan.schedule} with pp {plan.pp}, vpp {plan.vpp}"
    if plan.schedule == "dualpipe" and plan.pp > 1:
        if plan.pp % 2:
            yield "dualpipe_needs_even_pp", f"pp {plan.pp}"
        each_way, rest = divmod(plan.num_microbatches, 2)
        if rest or each_way < plan.pp:
            yield "dualpipe_fills_both_ways", f"{plan.num_microbatches} micro-batches on pp {plan.pp}"


def _sharding(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    if plan.tp > 1 and not framework.tensor_parallel:
        yield "tensor_parallel_known", f"tp {plan.tp}, {framework.title} is planned without"
    if plan.tp > 1 and not plan.tp_overlap and not framework.has("tp_overlap"):
        yield "tp_overlap_known", f"tp_overlap false, {framework.title} has no such switch"
    if (plan.ep > 1 or plan.etp > 1) and not framework.expert_parallel:
        yield "expert_parallel_known", f"ep {plan.ep} and etp {plan.etp}, {framework.title} is planned without"
    if plan.zero_stage not in framework.zero_stages:
        yield "zero_stage_known", f"{framework.title} has no zero_stage {plan.zero_stage}"
    if plan.dp_replicate * plan.dp_shard != plan.dp:
        yield "dp_is_replicate_times_shard", f"{plan.dp_replicate} * {plan.dp_shard} is not dp {plan.dp}"
    if plan.zero_stage == 0 and plan.dp_shard > 1:
        yield "unsharded_has_one_shard", f"zero_stage 0 with dp_shard {plan.dp_shard}"
    if plan.cp > 1 and plan.cp_comm_type not in framework.cp_comm_types:
        yield "cp_comm_type_known", f"{framework.title} has no {plan.cp_comm_type}"
    if plan.cp > 1 and plan.cp_comm_type == "a2a+p2p":
        outer, rest = divmod(plan.cp, plan.cp_a2a_degree)
        if rest or outer == 1 or plan.cp_a2a_degree == 1:
            yield "cp_a2a_degree_fits_cp", f"{plan.cp_a2a_degree} inside, {outer} outside of cp {plan.cp}"
    elif plan.cp_a2a_degree != (plan.cp if plan.cp_comm_type == "a2a" else 1):
        yield "cp_a2a_degree_fits_cp", f"cp_a2a_degree {plan.cp_a2a_degree} under {plan.cp_comm_type} of cp {plan.cp}"
    if plan.cp > 1 and not plan.cp_balanced and not framework.has("cp_unbalanced"):
        yield "cp_balance_known", f"cp_balanced false in {framework.title}"
    if plan.cp == 1 and plan.cp_comm_type != "p2p":
        yield "cp_comm_type_canonical", f"cp 1 with cp_comm_type {plan.cp_comm_type}, must be p2p"


def _hardware(plan: Plan, scenario: Scenario) -> Findings:
    recipe, device = scenario.workload.precision, scenario.cluster.accelerator
    for number_format in sorted({recipe.compute, recipe.attention_compute} - set(device.peak_flops_per_s)):
        yield "precision_in_hardware", f"precision {recipe.name} needs {number_format}, not on {device.name}"
    if recipe.compute in device.peak_flops_per_s and recipe.block_format not in (None, *device.block_formats):
        yield "precision_in_hardware", f"precision {recipe.name} needs {recipe.block_format}, not on {device.name}"


GENERAL_PARTS = (
    _contents,
    _hardware,
    _layers,
    _mesh,
    _batch,
    _pipeline,
    _sharding,
    *DISPATCH_PARTS,
    *RECOMPUTE_AND_OFFLOAD_PARTS,
    *SHARDING_PARTS,
)
