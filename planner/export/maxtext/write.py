"""A plan as a MaxText YAML file: what differs from its base.yml, model and mesh included."""

from __future__ import annotations

import yaml

from planner.export.by_hand import by_hand
from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.maxtext.mesh import AXES, MESH_AXES, axes_of, over_slices, slices_of
from planner.export.maxtext.model import put_model
from planner.export.sheet import Sheet
from planner.export.words import words_of

FILE, MODULE = "maxtext.yml", "maxtext.trainers.pre_train.train"
WORDS = words_of("planner.export.maxtext")
STRATEGIES = {"p2p": "ring", "all_gather": "all_gather", "a2a": "ulysses", "a2a+p2p": "usp"}
# dtype, weight_dtype, matmul_precision, quantization. JAX multiplies float32 in TF32 on GPUs unless told otherwise.
PRECISIONS = {
    "bf16": ("bfloat16", "float32", "default", ""),
    "bf16-pure": ("bfloat16", "bfloat16", "default", ""),
    "fp8": ("bfloat16", "float32", "default", "te_fp8_delayedscaling"),
    "fp8-current": ("bfloat16", "float32", "default", "te_fp8_currentscaling"),
    "mxfp8": ("bfloat16", "float32", "default", "te_mxfp8"),
    "nvfp4": ("bfloat16", "float32", "default", "te_nvfp4"),
    "fp32": ("float32", "float32", "highest", ""),
    "tf32": ("float32", "float32", "default", ""),
}
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
OPTIMIZERS = ("adamw", "muon")
# remat_policy minimal keeps the outputs of all products.
MINIMAL = ("layernorm", "moe_act")
_SEGMENTS = 32


def write(job: Job, version: str | None) -> Launch:
    """The file, and the command that starts MaxText with it on each node.

    Raises:
        Inexpressible: parts of the plan or of the model have no key in this version.
        UnknownName: there is no such version.
    """
    found = program(job, version)
    return Launch(
        target="maxtext",
        version=WORDS.version_of(version, job.plan.framework_version),
        files=found.files,
        command=by_hand(found, job),
        notes=found.notes,
    )


def program(job: Job, version: str | None) -> Program:
    """What each node runs, one process for all of its devices. Raises as ``write`` does."""
    sheet = Sheet(job, "maxtext", WORDS, WORDS.version_of(version, job.plan.framework_version))
    sheet.put("base_config", "base.yml")
    for part in (_mesh, _sharding, _context, _batch, _pipeline, _recompute, _numbers, _experts, put_model):
        part(sheet)
    sheet.follows("framework", "framework_version")
    text = yaml.safe_dump(sheet.finish(), sort_keys=False)
    return Program(
        launcher="python",
        script=MODULE,
        module=True,
        arguments=(FILE,),
        files=(LaunchFile(name=FILE, text=text),),
        notes=_notes(job),
    )


def _mesh(sheet: Sheet) -> None:
    plan, on_tpu = sheet.plan, _on_tpu(sheet.job)
    sheet.put("hardware", "tpu" if on_tpu else "gpu")
    fused = "flash" if on_tpu else "cudnn_flash_te"
    sheet.put("attention", fused if sheet.job.scenario.fused_attention else "dot_product")
    if not on_tpu:
        sheet.put("max_segments_per_seq", _SEGMENTS)
    if plan.ep > 1 and plan.tp * plan.cp > 1:
        sheet.put("mesh_axes", list(MESH_AXES))
    axes, slices = axes_of(sheet.job), slices_of(sheet.job)
    if not axes["fsdp"]:
        sheet.refuse(
            "ep", plan.ep, f"parameters are cut over the expert axis too: it is a part of dp_shard {plan.dp_shard}"
        )
    over = over_slices(axes, slices)
    if over is None:
        sheet.refuse("devices_used", plan.devices_used, f"tensor or context parallelism would span {slices} slices")
    for axis in AXES:
        outside = (over or {}).get(axis, 1)
        sheet.put(f"ici_{axis}_parallelism", axes[axis] // outside)
        if slices > 1:
            sheet.put(f"dcn_{axis}_parallelism", outside)
    sheet.follows("tp", "pp", "cp", "ep", "dp", "dp_replicate", "dp_shard", "devices_used", "sequence_parallel")
    if plan.tp > 1:
        sheet.only("tp_overlap", True, why="XLA overlaps what it can")
    sheet.follows("tp_overlap")


def _sharding(sheet: Sheet) -> None:
    plan = sheet.plan
    stage = plan.zero_stage
    sheet.only("zero_stage", 0, 1, 3, why="the data axis, shard_optimizer_over_data and the fsdp axis are there")
    sheet.put("shard_optimizer_over_data", stage == 1, "zero_stage")
    if stage < 3 and plan.cp * plan.ep > 1:
        sheet.refuse("zero_stage", stage, "parameters are cut over the context and the expert axis: that is stage 3")
    if stage == 1:
        sheet.only("dp_replicate", 1, why="the optimizer is sharded over all of the data axis")
    sheet.only("reshard_after", "forward", why="XLA gathers what a pass uses")
    sheet.only("fsdp_prefetch", 1, why="XLA decides what is gathered ahead")
    sheet.only("gradient_sync", "microbatch" if stage == 3 else "step", why="it follows from the stage")
    sheet.only("zero_plus", (), why="there is no ZeRO++")


def _context(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.follows("cp_comm_type", "cp_balanced", "cp_a2a_degree")
    if plan.cp == 1:
        return
    sheet.put("context_parallel_strategy", STRATEGIES[plan.cp_comm_type], "cp_comm_type")
    sheet.put("context_parallel_load_balance", plan.cp_balanced, "cp_balanced")
    if plan.cp_comm_type in ("a2a", "a2a+p2p"):
        sheet.put("use_tokamax_splash", True)
    if plan.cp_comm_type == "a2a":
        sheet.only("cp_balanced", False, why="Ulysses takes the sequence in its natural order")
    if plan.cp_comm_type != "a2a+p2p":
        degree = plan.cp if plan.cp_comm_type == "a2a" else 1
        sheet.only("cp_a2a_degree", degree, why=f"{STRATEGIES[plan.cp_comm_type]} has no other")


def _batch(sheet: Sheet) -> None:
    """A pipeline takes its micro-batches out of one pass; without one they are accumulated."""
    plan = sheet.plan
    piped = plan.pp > 1
    at_once = plan.micro_batch_size * plan.dp * (plan.num_microbatches if piped else 1)
    per_device = at_once / plan.devices_used
    if int(per_device * plan.devices_used) != at_once:
        sheet.refuse(
            "micro_batch_size", plan.micro_batch_size, f"{at_once} over {plan.devices_used} devices is rounded"
        )
    sheet.put("per_device_batch_size", per_device, "micro_batch_size")
    sheet.put("gradient_accumulation_steps", 1 if piped else plan.num_microbatches, "num_microbatches")
    sheet.put("max_target_length", plan.seq_len, "seq_len")
    sheet.follows("global_batch_size")
    if plan.precision == "fp8" and not piped and plan.num_microbatches > 1:
        sheet.refuse("num_microbatches", plan.num_microbatches, "delayed scaling has no gradient accumulation")


def _pipeline(sheet: Sheet) -> None:
    plan, layers = sheet.plan, sheet.job.model.num_layers
    sheet.only("vpp", 1, why="several repeats (a circular pipeline) have no schedule in a plan")
    sheet.only("layers_per_chunk", None, why="several repeats (a circular pipeline) have no schedule in a plan")
    sheet.follows("schedule")
    each = (layers // plan.pp,) * plan.pp
    sheet.only("layers_per_stage", each, why="every stage holds as many layers as the next")
    if plan.pp == 1:
        return
    sheet.only("schedule", "gpipe", why="all micro-batches go forward before any goes backward")
    sheet.put("num_layers_per_pipeline_stage", each[0], "layers_per_stage")
    sheet.put("num_pipeline_repeats", 1)
    sheet.put("num_pipeline_microbatches", plan.num_microbatches, "num_microbatches")


def _recompute(sheet: Sheet) -> None:
    plan, has_experts = sheet.plan, sheet.job.model.moe is not None
    minimal = tuple(module for module in MINIMAL if has_experts or module != "moe_act")
    sheet.only("recompute_modules", *((minimal,) if plan.recompute == "selective" else ((),)), why=_MINIMAL_WHY)
    every = plan.layers_per_stage if plan.recompute == "full" else (0,) * plan.pp
    sheet.only("recomputed_layers_per_stage", every, why="all layers are recomputed, or none")
    sheet.only("recompute_interval", 1, why="every layer is recomputed by itself")
    policy = {"none": "none", "selective": "minimal", "full": "full"}[plan.recompute]
    if plan.offload == "activations":
        if plan.recompute != "selective":
            sheet.refuse("offload", plan.offload, "minimal_offloaded goes with recompute selective")
        policy = "minimal_offloaded"
    sheet.put("remat_policy", policy, "recompute", "offload")
    sheet.put("optimizer_memory_host_offload", plan.offload == "optimizer", "offload")
    sheet.put("parameter_memory_host_offload", plan.offload == "parameters", "offload")


_MINIMAL_WHY = f"remat_policy minimal recomputes {' and '.join(MINIMAL)} (of experts), and no policy here others"


def _numbers(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("precision", *PRECISIONS, why=f"{', '.join(PRECISIONS)} are there")
    dtype, weights, products, quantization = PRECISIONS.get(plan.precision, PRECISIONS["bf16"])
    sheet.put("dtype", dtype, "precision")
    sheet.put("weight_dtype", weights, "precision")
    sheet.put("matmul_precision", products, "precision")
    sheet.put("quantization", quantization, "precision")
    sheet.only("gradient_dtype", *DTYPES, why="float32 and bfloat16 are there")
    sheet.put("grad_dtype", DTYPES.get(plan.gradient_dtype, plan.gradient_dtype), "gradient_dtype")
    sheet.only("optimizer", *OPTIMIZERS, why=f"{' and '.join(OPTIMIZERS)} keep what the recipes say")
    sheet.put("opt_type", plan.optimizer, "optimizer")


def _experts(sheet: Sheet) -> None:
    plan, moe = sheet.plan, sheet.job.model.moe
    sheet.only("ep_overlap", False, why="nothing overlaps dispatch and combine with other micro-batches")
    sheet.follows("moe_dispatcher", "moe_capacity_factor", "etp")
    if moe is None:
        sheet.only("etp", 1, why="the model has no experts to cut")
        sheet.only("moe_capacity_factor", None, why="the model has no experts")
        return
    sheet.only("etp", plan.tp, why=f"one tensor axis cuts experts as well, over tp {plan.tp}")
    drops = plan.moe_capacity_factor is not None
    sheet.put("sparse_matmul", not drops, "moe_capacity_factor")
    sheet.put("capacity_factor", plan.moe_capacity_factor if drops else -1.0, "moe_capacity_factor")
    if plan.ep > 1:
        sheet.only("moe_dispatcher", "all_to_all", "all_gather", why="all-to-all and a ring of experts are there")
        sheet.put("use_ring_of_experts", plan.moe_dispatcher == "all_gather", "moe_dispatcher")


def _on_tpu(job: Job) -> bool:
    return job.scenario.cluster.accelerator.family == "tpu"


def _notes(job: Job) -> tuple[str, ...]:
    found = [
        "run_name, base_output_directory, data set, tokenizer, steps and learning rate are yours: give them after the "
        "file, as key=value",
        f"of {job.model.name} the file holds the sizes: rope_max_timescale, epsilons and the router's scores are yours",
    ]
    if not _on_tpu(job):
        found.append("packing puts at most 32 segments into a sequence, as MaxText's files for GPUs have it")
    return tuple(found)
