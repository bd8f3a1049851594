"""A plan as torchtitan's settings, by their dotted names in ``words.yaml``."""

from __future__ import annotations

from typing import Any

from costmodel.plan_rows import chunks_of_plan
from costmodel.recompute_modules import selective_modules
from costmodel.spec.plan import Plan
from planner.export.job import Job
from planner.export.sheet import Sheet
from planner.export.torchtitan.flavours import Flavour, flavour_of
from planner.export.torchtitan.precisions import put_precision
from planner.export.torchtitan.stages import MODULES, SCHEDULE, SCHEDULES, modules_of
from planner.export.words import words_of

NAME = "torchtitan"
WORDS = words_of("planner.export.torchtitan")
LAST_OF_TOML = "0.2"

BACKENDS = {"deduplicated": "deepep", "all_to_all": "standard"}
ROTATIONS = {"all_gather": "allgather", "p2p": "alltoall"}
OPTIMIZERS = {"adamw": ("AdamW", "fused"), "adam": ("Adam", "fused")}
OF_BF16_STATES = "fused_opt_states_bf16"
HEADS = {True: "output", False: "lm_head"}
"""What the output projection is called in files of TOML times, and later."""


def settings_of(job: Job, asked: str | None) -> tuple[Flavour, str | None, dict[str, Any]]:
    """The model's flavour, the version that is written for, and its settings.

    Raises:
        UnknownName: no such version.
        Inexpressible: torchtitan can't say all of the plan.
    """
    version = WORDS.version_of(asked, job.plan.framework_version)
    sheet = Sheet(job, NAME, WORDS, version)
    flavour = flavour_of(sheet)
    if flavour is not None:
        _put_model(sheet, flavour)
    _put_mesh(sheet)
    _put_sharding(sheet)
    _put_batch(sheet)
    _put_pipeline(sheet)
    _put_context(sheet)
    _put_experts(sheet)
    _put_recompute(sheet)
    put_precision(sheet)
    _put_rest(sheet)
    settings = sheet.finish()
    assert flavour is not None, "a model without a flavour was refused"
    return flavour, version, settings


def _is_toml(sheet: Sheet) -> bool:
    return sheet.version == LAST_OF_TOML


def _put_model(sheet: Sheet, flavour: Flavour) -> None:
    plan, mtp = sheet.plan, sheet.job.model.num_mtp_layers
    if _is_toml(sheet):
        sheet.put("model.name", flavour.module)
        sheet.put("model.flavor", flavour.flavour)
        for axis in flavour.lacks:
            sheet.only(axis, 1, why=f"{flavour.module} can't be run with it in {sheet.version}")
    else:
        sheet.put("model_registry.flavor", flavour.flavour)
        # Context parallelism is for FlexAttention alone (distributed/full_dtensor.py, validate_config).
        sheet.put("model_registry.attn_backend", "flex")
        if plan.seq_len > flavour.longest:
            sheet.refuse("seq_len", plan.seq_len, f"positions of {flavour.flavour} reach {flavour.longest}")
    if mtp and (_is_toml(sheet) or plan.pp > 1 or plan.cp > 1):
        why = (
            "it is there from 0.3 on" if _is_toml(sheet) else "it runs with neither pp nor cp (deepseek_v3/mtp.py:201)"
        )
        sheet.refuse("model.num_mtp_layers", mtp, why)
    elif mtp:
        sheet.put("model_registry.num_mtp_layers", mtp)


def _put_mesh(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.put("parallelism.data_parallel_replicate_degree", plan.dp_replicate, "dp_replicate")
    sheet.put("parallelism.data_parallel_shard_degree", plan.dp_shard, "dp_shard")
    sheet.put("parallelism.tensor_parallel_degree", plan.tp, "tp")
    # The world has to be their product exactly (distributed/parallel_dims.py, _validate).
    sheet.follows("dp", "devices_used")
    if plan.tp > 1 and sheet.has("parallelism.enable_sequence_parallel"):
        sheet.put("parallelism.enable_sequence_parallel", plan.sequence_parallel, "sequence_parallel")
    else:
        sheet.only("sequence_parallel", plan.tp > 1, why="tensor parallelism cuts norms too, and nothing else does")
    compiled = sheet.job.scenario.fused_pointwise
    sheet.put("compile.enable", compiled)
    if compiled:
        # Recipes of models with experts compile the loss alone.
        sheet.put("compile.components", ["model", "loss"])
    if plan.tp > 1:
        overlaps = "parallelism" if _is_toml(sheet) else "compile"
        sheet.put(f"{overlaps}.enable_async_tensor_parallel", plan.tp_overlap, "tp_overlap")
        if plan.tp_overlap and not (compiled and plan.sequence_parallel):
            why = "asynchronous tensor parallelism needs torch.compile and sequence parallelism"
            sheet.refuse("tp_overlap", True, why)
    else:
        sheet.follows("tp_overlap")


def _put_sharding(sheet: Sheet) -> None:
    plan, pipeline = sheet.plan, sheet.plan.pp > 1
    ranks = plan.dp_shard * plan.cp
    if sheet.job.model.moe is not None and plan.ep > 1:
        ranks = max(ranks, ranks * plan.tp // (plan.ep * plan.etp))
    sheet.only("zero_stage", 0, 2, 3, why="FSDP cuts parameters, gradients and optimizer states alike, or nothing")
    if plan.zero_stage == 0:
        sheet.only("reshard_after", "forward", why="nothing is gathered with zero_stage 0")
        if ranks > 1:
            sheet.refuse("zero_stage", 0, f"FSDP shards over {ranks} ranks by itself")
    else:
        kept = "step" if pipeline else "backward"
        if plan.zero_stage == 2 and pipeline:
            sheet.refuse("zero_stage", 2, "pipelines keep what they gathered to the end of the step: 3 with step")
        word = "always" if plan.zero_stage == 3 and plan.reshard_after == "forward" else "never"
        sheet.put("parallelism.fsdp_reshard_after_forward", word, "zero_stage", "reshard_after")
        if plan.zero_stage == 3:
            sheet.only("reshard_after", "forward", kept, why=f"with pp {plan.pp} what is kept stays for the {kept}")
    reduces = "step" if pipeline else "microbatch"
    if plan.zero_stage == 0 and (plan.dp == 1 or plan.num_microbatches == 1):
        sheet.follows("gradient_sync")
    else:
        sheet.only("gradient_sync", reduces, why=f"with pp {plan.pp} gradients are reduced once a {reduces}")
    sheet.only("fsdp_prefetch", 1, why="FSDP gathers one layer ahead")
    sheet.only("zero_plus", (), why="there is no ZeRO++")


def _put_batch(sheet: Sheet) -> None:
    plan = sheet.plan
    # A pipeline cuts the local batch into micro-batches; without one there are steps of gradient accumulation.
    local = plan.micro_batch_size * (plan.num_microbatches if plan.pp > 1 else 1)
    sheet.put("training.local_batch_size", local, "micro_batch_size", "num_microbatches")
    sheet.put("training.global_batch_size", plan.global_batch_size, "global_batch_size")
    sheet.put("training.seq_len", plan.seq_len, "seq_len")


def _put_pipeline(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.put("parallelism.pipeline_parallel_degree", plan.pp, "pp")
    if plan.pp == 1:
        sheet.only("schedule", "1f1b", why="pp is 1: nothing is scheduled")
        sheet.only("vpp", 1, why="pp is 1: there is one stage")
        layers = sheet.job.model.num_layers
        sheet.only("layers_per_stage", (layers,), why="pp is 1: there is one stage")
        sheet.only("layers_per_chunk", None, ((layers,),), why="pp is 1: there is one stage")
        return
    if plan.schedule not in SCHEDULES:
        sheet.refuse("schedule", plan.schedule, "PyTorch has " + ", ".join(SCHEDULES))
        sheet.follows("vpp", "layers_per_stage", "layers_per_chunk")
        return
    sheet.put(SCHEDULE, SCHEDULES[plan.schedule], "schedule")
    sheet.put("parallelism.pipeline_parallel_microbatch_size", plan.micro_batch_size, "micro_batch_size")
    chunks, layers = chunks_of_plan(plan), sheet.job.model.num_layers
    sums = tuple(map(sum, chunks))
    sheet.follows("vpp", "layers_per_stage", "layers_per_chunk")
    if len(chunks) != plan.pp or {len(device) for device in chunks} != {plan.vpp}:
        sheet.refuse("layers_per_chunk", plan.layers_per_chunk, f"pp {plan.pp} devices of vpp {plan.vpp} chunks each")
    elif sums != plan.layers_per_stage or sum(sums) != layers:
        sheet.refuse("layers_per_stage", plan.layers_per_stage, f"chunks have {sums}, the model {layers} layers")
    else:
        modules = modules_of(plan, HEADS[_is_toml(sheet)])
        sheet.put(MODULES, modules, "vpp", "layers_per_stage", "layers_per_chunk")


def _put_context(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.put("parallelism.context_parallel_degree", plan.cp, "cp")
    sheet.only("cp_a2a_degree", 1, why="no heads are exchanged")
    if plan.cp == 1:
        sheet.only("cp_comm_type", "p2p", why="cp is 1: nothing is exchanged")
        sheet.follows("cp_balanced")
        return
    balancer = "headtail" if plan.cp_balanced else None
    sheet.put("parallelism.context_parallel_load_balancer", balancer, "cp_balanced")
    rotation = "parallelism.context_parallel_rotate_method"
    if sheet.has(rotation) and plan.cp_comm_type in ROTATIONS:
        sheet.put(rotation, ROTATIONS[plan.cp_comm_type], "cp_comm_type")
    else:
        offered = tuple(ROTATIONS) if sheet.has(rotation) else ("all_gather",)
        sheet.only("cp_comm_type", *offered, why=f"keys and values go by {' or '.join(offered)}")


def _put_experts(sheet: Sheet) -> None:
    plan, parallel = sheet.plan, sheet.plan.ep > 1
    sheet.only("moe_capacity_factor", None, why="no token is dropped")
    if sheet.job.model.moe is None:
        for axis in ("ep", "etp"):
            sheet.only(axis, 1, why="the model has no experts")
        sheet.only("ep_overlap", False, why="the model has no experts")
        sheet.follows("moe_dispatcher")
        return
    sheet.put("parallelism.expert_parallel_degree", plan.ep, "ep")
    if not parallel:
        sheet.only("etp", plan.tp, why="without ep experts are cut as everything else is, by tp")
    elif sheet.has("parallelism.expert_tensor_parallel_degree"):
        sheet.put("parallelism.expert_tensor_parallel_degree", plan.etp, "etp")
        sheet.only("etp", 1, plan.tp, why="it is 1 or tp")
    else:
        sheet.only("etp", 1, why="expert parallelism takes the tp ranks")
    backend = "parallelism.expert_parallel_comm_backend" if _is_toml(sheet) else "model_registry.moe_comm_backend"
    if plan.moe_dispatcher not in BACKENDS:
        sheet.refuse("moe_dispatcher", plan.moe_dispatcher, "it has " + ", ".join(BACKENDS))
    elif parallel or plan.moe_dispatcher == "all_to_all":
        # DeepEP refuses to be asked for without expert parallelism.
        sheet.put(backend, BACKENDS[plan.moe_dispatcher], "moe_dispatcher")
    else:
        sheet.follows("moe_dispatcher")
    if _is_toml(sheet) and parallel and plan.pp > 1 and plan.schedule == "dualpipe_v":
        sheet.put("parallelism.pipeline_parallel_expert_parallel_overlap", plan.ep_overlap, "ep_overlap")
        if plan.ep_overlap and plan.recompute != "none":
            sheet.refuse("ep_overlap", True, "it goes with recompute none alone (distributed/dual_pipe_v.py:44)")
    else:
        sheet.only("ep_overlap", False, why="0.2 overlaps under DualPipeV with ep, and nothing else does")


def _put_recompute(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("recompute_interval", 1, why="every layer has a checkpoint of its own")
    usual = selective_modules(sheet.job.scenario) if plan.recompute == "selective" else ()
    sheet.only("recompute_modules", usual, why="which operations are recomputed is its own choice")
    if plan.recompute != "full":
        sheet.only(
            "recomputed_layers_per_stage", (0,) * plan.pp, why=f"recompute {plan.recompute} repeats no whole layer"
        )
    every = _every_nth(plan)
    if plan.recompute == "full" and plan.recomputed_layers_per_stage != plan.layers_per_stage:
        if _is_toml(sheet) and every is not None:
            sheet.put("activation_checkpoint.mode", "selective", "recompute")
            sheet.put("activation_checkpoint.selective_ac_option", str(every), "recomputed_layers_per_stage")
            return
        why = "all layers are recomputed or none" + (", or every n-th" if _is_toml(sheet) else "")
        sheet.refuse("recomputed_layers_per_stage", plan.recomputed_layers_per_stage, why)
    word = "activation_checkpoint.mode" if _is_toml(sheet) else "activation_checkpoint"
    sheet.put(word, plan.recompute, "recompute", "recomputed_layers_per_stage")
    if _is_toml(sheet) and plan.recompute == "selective":
        sheet.put("activation_checkpoint.selective_ac_option", "op", "recompute")


def _every_nth(plan: Plan) -> int | None:
    """n, where every n-th layer of each device is recomputed."""
    for n in range(2, max(plan.layers_per_stage) + 1):
        if tuple(layers // n for layers in plan.layers_per_stage) == plan.recomputed_layers_per_stage:
            return n
    return None


def _put_rest(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("offload", "none", "parameters", why="parameters go to the host with gradients and optimizer states")
    sheet.put("training.enable_cpu_offload", plan.offload == "parameters", "offload")
    if sheet.has("training.disable_cuda_graphs"):
        # With pp or ep it refuses to capture them; offloaded parameters can't be captured either.
        eager = plan.pp > 1 or plan.ep > 1 or plan.offload == "parameters"
        if eager:
            sheet.put("training.disable_cuda_graphs", True)
    name = "optimizer.name" if _is_toml(sheet) else "optimizer.param_groups.optimizer_name"
    if plan.optimizer in OPTIMIZERS:
        word, implementation = OPTIMIZERS[plan.optimizer]
        sheet.put(name, word, "optimizer")
        sheet.put("optimizer.implementation", implementation, "optimizer")
    elif plan.optimizer == "adamw-bf16-moments" and not _is_toml(sheet):
        sheet.put(name, "AdamW", "optimizer")
        sheet.put("optimizer.implementation", OF_BF16_STATES, "optimizer")
    else:
        also = "" if _is_toml(sheet) else ", adamw-bf16-moments"
        sheet.refuse("optimizer", plan.optimizer, f"it has {', '.join(OPTIMIZERS)}{also}")
    sheet.follows("framework", "framework_version")
