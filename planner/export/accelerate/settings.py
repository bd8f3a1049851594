"""A plan as keys of Accelerate's file and arguments of the training script, by their names in ``words.yaml``."""

from __future__ import annotations

from typing import Any

from planner.export.job import Job
from planner.export.sheet import Sheet
from planner.export.words import words_of

NAME = "accelerate"
WORDS = words_of("planner.export.accelerate")

STRATEGIES = {"all_gather": "allgather", "p2p": "alltoall"}
OPTIMIZERS = {"adamw": "adamw_torch", "adafactor": "adafactor"}
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp32": "no", "tf32": "no", "fp8": "fp8", "fp8-current": "fp8"}
"""Recipe -> ``mixed_precision``."""

_TE = {"fp8_backend": "te", "fp8_format": "HYBRID", "fp8_amax_history_len": 1024, "fp8_amax_compute_algo": "max"}
_AO = {"fp8_backend": "ao", "fp8_enable_fsdp_float8_all_gather": False}
_MESH = "parallelism_config.parallelism_config_"
_FSDP = "fsdp_config.fsdp_"


def settings_of(job: Job, asked: str | None) -> tuple[str | None, dict[str, Any]]:
    """The version that is written for, and the settings; arguments of the script begin with ``--``.

    Raises:
        UnknownName: no such version.
        Inexpressible: Accelerate can't say all of the plan.
    """
    version = WORDS.version_of(asked, job.plan.framework_version)
    sheet = Sheet(job, NAME, WORDS, version)
    _put_launch(sheet)
    _put_precision(sheet)
    _put_mesh(sheet)
    _put_sharding(sheet)
    _put_script(sheet)
    _account_for_the_rest(sheet)
    return version, sheet.finish()


def _put_launch(sheet: Sheet) -> None:
    plan, job = sheet.plan, sheet.job
    sheet.put("compute_environment", "LOCAL_MACHINE")
    sheet.put("distributed_type", "FSDP" if plan.zero_stage else "MULTI_GPU", "zero_stage")
    sheet.put("num_machines", job.nodes)
    sheet.put("num_processes", plan.devices_used, "devices_used")
    sheet.put("machine_rank", 0)
    sheet.put("main_training_function", "main")
    sheet.put("same_network", True)
    sheet.put("rdzv_backend", "static")
    if job.scenario.fused_pointwise:
        sheet.put("dynamo_config.dynamo_backend", "INDUCTOR")


def _put_precision(sheet: Sheet) -> None:
    plan, name = sheet.plan, sheet.plan.precision
    if name not in PRECISIONS:
        loaded = "the script would have to load the model in it" if name == "bf16-pure" else "recipes are the script's"
        sheet.refuse("precision", name, f"the file has {', '.join(PRECISIONS)}; {loaded}")
        sheet.follows("gradient_dtype")
        return
    mixed = PRECISIONS[name]
    sheet.put("mixed_precision", mixed, "precision")
    if name == "tf32":
        sheet.put("--tf32", True, "precision")
    for word, value in {"fp8": _TE, "fp8-current": _AO}.get(name, {}).items():
        sheet.put(f"fp8_config.{word}", value, "precision")
    # FSDP reduces in the type that it computes in (utils/dataclasses.py:2137); DDP keeps gradients as parameters are.
    narrow = plan.zero_stage > 0 and mixed in ("bf16", "fp8")
    reduced = "bf16" if narrow else "fp32"
    hint = "a plan with --gradient-dtype bf16 can be said, or the script passes a mixed_precision_policy of its own"
    why = f"mixed_precision {mixed} reduces gradients in {reduced}" + (f": {hint}" if narrow else "")
    sheet.only("gradient_dtype", reduced, why=why)
    if plan.zero_stage > 0 and mixed == "fp16":
        sheet.refuse("precision", name, "FSDP would reduce in fp16")


def _put_mesh(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.follows("dp")
    sheet.only("sequence_parallel", False, why="Transformers' plans of tensor parallelism leave norms whole")
    for axis in ("ep", "etp", "pp", "vpp"):
        sheet.only(axis, 1, why=f"there is no {axis}")
    if plan.zero_stage == 0 and plan.tp == plan.cp == 1:
        sheet.follows("dp_replicate", "tp", "cp")
        sheet.only("dp_shard", 1, why="nothing is sharded")
    else:
        sheet.put(_MESH + "dp_replicate_size", plan.dp_replicate, "dp_replicate")
        sheet.put(_MESH + "dp_shard_size", plan.dp_shard, "dp_shard")
        sheet.put(_MESH + "tp_size", plan.tp, "tp")
    if plan.cp == 1:
        sheet.only("cp_comm_type", "p2p", why="cp is 1: nothing is exchanged")
        sheet.follows("cp")
    elif plan.cp_comm_type in STRATEGIES:
        sheet.put(_MESH + "cp_size", plan.cp, "cp")
        if sheet.has(_MESH + "cp_backend"):
            sheet.put(_MESH + "cp_backend", "torch")
        sheet.put(_MESH + "cp_comm_strategy", STRATEGIES[plan.cp_comm_type], "cp_comm_type")
    else:
        sheet.refuse("cp_comm_type", plan.cp_comm_type, "Ulysses runs under DeepSpeed, not under FSDP")
        sheet.follows("cp")
    exchanged = plan.cp if plan.cp_comm_type == "a2a" else 1
    sheet.only("cp_a2a_degree", exchanged, why="no heads are exchanged")
    sheet.only("cp_balanced", True, why="PyTorch balances every sequence that it cuts")
    # It has no switch for this, and is priced as it was measured.
    sheet.only("tp_overlap", True, why="there is no switch for it")


def _put_sharding(sheet: Sheet) -> None:
    plan, full = sheet.plan, sheet.plan.recompute == "full"
    sheet.only("zero_stage", 0, 2, 3, why="FSDP cuts parameters, gradients and optimizer states alike, or nothing")
    sheet.only("recompute", "none", "full", why="a layer is recomputed whole or not at all")
    sheet.only("recompute_interval", 1, why="every layer has a checkpoint of its own")
    sheet.only("recompute_modules", (), why="a layer is recomputed whole or not at all")
    again = plan.layers_per_stage if full else (0,) * plan.pp
    sheet.only("recomputed_layers_per_stage", again, why="all layers are recomputed or none")
    if plan.num_microbatches == 1:
        sheet.follows("gradient_sync")
    else:
        hint = "a plan with gradient_sync step can be said, or the script sets sync_each_batch"
        sheet.only("gradient_sync", "step", why=f"accumulate() holds reductions back to the last micro-batch: {hint}")
    if plan.zero_stage == 0:
        sheet.only("reshard_after", "forward", why="nothing is gathered with zero_stage 0")
        sheet.only("offload", "none", why="only FSDP offloads")
        if full:
            sheet.put("--gradient_checkpointing", True, "recompute")
        return
    sheet.only("reshard_after", "forward", "backward", why="parameters are dropped after forward or backward")
    again_gathered = plan.zero_stage == 3 and plan.reshard_after == "forward"
    sheet.put(_FSDP + "version", 2)
    sheet.put(_FSDP + "reshard_after_forward", again_gathered, "zero_stage", "reshard_after")
    sheet.put(_FSDP + "auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    sheet.put(_FSDP + "state_dict_type", "SHARDED_STATE_DICT")
    sheet.put(_FSDP + "offload_params", plan.offload == "parameters", "offload")
    sheet.only("offload", "none", "parameters", why="FSDP offloads parameters with all that belongs to them")
    sheet.put(_FSDP + "activation_checkpointing", full, "recompute")


def _put_script(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.put("--per_device_train_batch_size", plan.micro_batch_size, "micro_batch_size")
    sheet.put("--gradient_accumulation_steps", plan.num_microbatches, "num_microbatches")
    sheet.put("--block_size", plan.seq_len, "seq_len")
    sheet.follows("global_batch_size")
    if plan.optimizer in OPTIMIZERS:
        sheet.put("--optim", OPTIMIZERS[plan.optimizer], "optimizer")
    else:
        sheet.refuse("optimizer", plan.optimizer, f"it has {', '.join(OPTIMIZERS)}")


def _account_for_the_rest(sheet: Sheet) -> None:
    plan, model = sheet.plan, sheet.job.model
    sheet.only("schedule", "1f1b", why="there are no pipelines")
    sheet.only("layers_per_stage", (model.num_layers,), why="there are no pipelines")
    sheet.only("layers_per_chunk", None, ((model.num_layers,),), why="there are no pipelines")
    sheet.only("fsdp_prefetch", 1, why="FSDP gathers one layer ahead")
    sheet.only("zero_plus", (), why="there is no ZeRO++")
    sheet.only("ep_overlap", False, why="there is no expert parallelism")
    sheet.only("moe_capacity_factor", None, why="no token is dropped")
    # Without expert parallelism no token is sent anywhere.
    sheet.follows("moe_dispatcher", "framework", "framework_version")
    if model.num_mtp_layers:
        sheet.refuse("model.num_mtp_layers", model.num_mtp_layers, "models of Transformers train without these layers")
    if plan.zero_stage and plan.dp_shard * plan.cp == 1:
        sheet.refuse("zero_stage", plan.zero_stage, "FSDP has nothing to shard over")
