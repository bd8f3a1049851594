"""A plan as DeepSpeed's JSON file.

The file says how a model is cut and in what it is computed. The model, its data and the loop are the user's script:
what a plan asks of that is a note. What only code could say is refused.
"""

from __future__ import annotations

import json

from planner.export.allocator import allocator_of
from planner.export.deepspeed import pipelines
from planner.export.deepspeed.notes import notes
from planner.export.dotted import nested
from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.sheet import Sheet
from planner.export.shell import quoted
from planner.export.words import words_of

FILE = "ds_config.json"
SCRIPT = "train.py"
WORDS = words_of("planner.export.deepspeed")
# A recipe of the catalog -> what DeepSpeed calls it; the rest are optimizers of the script's own.
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "lion": "Lion", "muon": "Muon"}
ZERO = "zero_optimization."
_EXPERTS = "expert_parallel."
# runtime/zero/config.py: the default, which the catalog's gradient_buckets assume.
_REDUCED_AT_ONCE = 500_000_000
# launcher/runner.py: the variables of other names than its own that it passes on are those of this file.
_ON_OTHER_NODES = "{} has to stand in a file .deepspeed_env beside the command: so it reaches the other nodes"


def write(job: Job, version: str | None) -> Launch:
    """The file, and the command that starts the user's script with it on every node of a host file.

    Raises:
        Inexpressible: parts of the plan have no key in this version.
        UnknownName: there is no such version.
    """
    found = program(job, version)
    nodes, per_node = job.nodes, job.devices_per_node
    words = ["deepspeed", "--hostfile", "hostfile", "--num_nodes", nodes, "--num_gpus", per_node]
    started = [*(words if nodes > 1 else ["deepspeed", "--num_gpus", per_node]), found.script, *found.arguments]
    variables = [f"{name}={quoted(value)}" for name, value in found.environment.items()]
    return Launch(
        target="deepspeed",
        version=_version(job, version),
        files=found.files,
        command=" ".join([*variables, *map(quoted, started), '"$@"']),
        notes=(*found.notes, *(_ON_OTHER_NODES.format(variable) for variable in variables if nodes > 1)),
    )


def program(job: Job, version: str | None) -> Program:
    """What each node runs. Raises as ``write`` does."""
    sheet = Sheet(job, "deepspeed", WORDS, _version(job, version))
    for part in (_batch, _precision, _optimizer, _mesh, _experts, _sharding, _offload, _pipeline, _recompute):
        part(sheet)
    sheet.follows("framework", "framework_version")
    text = json.dumps(nested(sheet.finish()), indent=2) + "\n"
    return Program(
        launcher="torchrun",
        script=SCRIPT,
        arguments=("--deepspeed", "--deepspeed_config", FILE),
        environment=allocator_of(job),
        files=(LaunchFile(name=FILE, text=text),),
        notes=notes(job, SCRIPT),
    )


def _version(job: Job, asked: str | None) -> str | None:
    return WORDS.version_of(asked, job.plan.framework_version)


def _batch(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.put("train_batch_size", plan.global_batch_size, "global_batch_size")
    sheet.put("train_micro_batch_size_per_gpu", plan.micro_batch_size, "micro_batch_size")
    sheet.put("gradient_accumulation_steps", plan.num_microbatches, "num_microbatches")
    # The length of sequences is the data's: a note says it. Devices are the launcher's.
    sheet.follows("seq_len", "devices_used", "dp")


def _precision(sheet: Sheet) -> None:
    plan = sheet.plan
    name, gradients = plan.precision, plan.gradient_dtype
    if name not in ("bf16", "bf16-pure", "fp16", "fp32"):
        others = "torch.backends, in the script, does" if name == "tf32" else "bf16, bf16-pure, fp16 and fp32 have one"
        sheet.refuse("precision", name, f"no key says it: {others}")
    sheet.put("bf16.enabled", name.startswith("bf16"), "precision")
    sheet.put("fp16.enabled", name == "fp16", "precision")
    if name == "bf16-pure":
        sheet.put("bf16.bf16_master_weights_and_grads", True, "precision")
        sheet.put("bf16.bf16_optimizer_states", True, "precision")
        if plan.zero_stage == 0:
            sheet.refuse("precision", name, "bf16_optimizer_states takes zero_stage 1, 2 or 3")
    sheet.put("data_types.grad_accum_dtype", gradients, "gradient_dtype")
    if plan.zero_stage == 0 and name in ("bf16", "fp16") and gradients != name:
        sheet.refuse("gradient_dtype", gradients, f"zero_stage 0 accumulates in the type of the model, {name}")


def _optimizer(sheet: Sheet) -> None:
    name = sheet.plan.optimizer
    if name not in OPTIMIZERS:
        types = ", ".join(OPTIMIZERS.values())
        sheet.refuse("optimizer", name, f"the script would have to make it: types are {types}")
        return
    sheet.put("optimizer.type", OPTIMIZERS[name], "optimizer")
    if name == "adam":
        sheet.put("optimizer.params.adam_w_mode", False, "optimizer")


def _mesh(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.follows("sequence_parallel", "tp_overlap", "cp_comm_type", "cp_a2a_degree")
    sheet.only("cp_balanced", *((True,) if plan.cp > 1 else (True, False)), why="heads are exchanged, not pieces")
    sheet.follows("tp")
    if plan.tp > 1:
        sheet.put("tensor_parallel.autotp_size", plan.tp, "tp")
        sheet.put("tensor_parallel.tp_overlap_comm", plan.tp_overlap, "tp_overlap")
        sheet.only("sequence_parallel", False, why="AutoTP cuts products alone, norms and residuals are on every rank")
    sheet.follows("cp")
    if plan.cp > 1:
        sheet.put("sequence_parallel_size", plan.cp, "cp")
        sheet.only("cp_comm_type", "a2a", why="Ulysses alone is there, which exchanges heads")
        sheet.only("cp_a2a_degree", plan.cp, why="all ranks exchange heads")


def _experts(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("ep_overlap", False, why="nothing overlaps dispatch and combine with other micro-batches")
    sheet.only("moe_capacity_factor", None, why="AutoEP drops no tokens; MoE(capacity_factor=...) is code")
    sheet.follows("ep", "etp", "moe_dispatcher")
    if plan.ep > 1:
        sheet.put(f"{_EXPERTS}enabled", True, "ep")
        sheet.put(f"{_EXPERTS}autoep_size", plan.ep, "ep")
        sheet.only("etp", 1, why="AutoEP cuts no expert")
        _dispatcher(sheet)
        if plan.tp > 1 and plan.cp > 1:
            sheet.refuse("cp", plan.cp, f"AutoEP with tp {plan.tp} has no Ulysses beside it")
        if plan.tp > 1 and plan.offload in ("optimizer", "parameters"):
            sheet.refuse("offload", plan.offload, f"AutoEP with tp {plan.tp} has no offload")
    elif sheet.job.model.moe is None:
        sheet.only("etp", 1, why="the model has no experts to cut")
    else:
        sheet.only("etp", plan.tp, why=f"AutoTP cuts experts as it cuts the rest, over tp {plan.tp}")


def _dispatcher(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("moe_dispatcher", "all_to_all", "deduplicated", why="AutoEP sends tokens by all-to-all or by DeepEP")
    deduplicated = plan.moe_dispatcher == "deduplicated"
    sheet.put(f"{_EXPERTS}comm_backend", "deepep" if deduplicated else "comm", "moe_dispatcher")
    if deduplicated:
        tokens = plan.micro_batch_size * plan.seq_len // plan.cp
        sheet.put(f"{_EXPERTS}comm_max_tokens_per_rank", tokens, "moe_dispatcher")


def _sharding(sheet: Sheet) -> None:
    plan = sheet.plan
    stage = plan.zero_stage
    sheet.put(f"{ZERO}stage", stage, "zero_stage")
    sheet.put(f"{ZERO}reduce_bucket_size", _REDUCED_AT_ONCE)
    sheet.put(f"{ZERO}overlap_comm", True)
    sheet.follows("dp_replicate", "dp_shard", "fsdp_prefetch")
    if stage and plan.dp_replicate > 1:
        if stage < 3:
            sheet.refuse("dp_replicate", plan.dp_replicate, "what is sharded below stage 3 is sharded over all of dp")
        sheet.put(f"{ZERO}mics_shard_size", plan.dp_shard, "dp_replicate", "dp_shard")
    sheet.only(
        "reshard_after", "forward", why="what is gathered is let go by its distance to the next use, not by time"
    )
    sheet.only("gradient_sync", "microbatch" if stage >= 2 else "step", why=_when_reduced(stage))
    if stage == 3:
        _gathers(sheet)
    for part, word, value in (
        ("qwz", "zero_quantized_weights", True),
        ("hpz", "zero_hpz_partition_size", sheet.job.devices_per_node),
        ("qgz", "zero_quantized_gradients", True),
    ):
        if part in plan.zero_plus:
            sheet.put(ZERO + word, value, "zero_plus")
    sheet.follows("zero_plus")


def _when_reduced(stage: int) -> str:
    if stage >= 2:
        return f"stage {stage} reduces every micro-batch; engine.coalesce_grad_reduction() is code"
    return f"stage {stage} reduces with the last micro-batch"


def _gathers(sheet: Sheet) -> None:
    """DeepSpeed counts in parameters: those of the largest layer stand for a layer."""
    plan, layer = sheet.plan, _largest_layer(sheet.job)
    sheet.put(f"{ZERO}stage3_prefetch_bucket_size", plan.fsdp_prefetch * layer, "fsdp_prefetch")
    sheet.put(f"{ZERO}stage3_max_live_parameters", (plan.fsdp_prefetch + 1) * layer, "fsdp_prefetch")
    # Kept from the forward pass of recompute to the backward pass, not from one pass to the other.
    sheet.put(f"{ZERO}stage3_max_reuse_distance", layer, "reshard_after")


def _largest_layer(job: Job) -> int:
    """Parameters that a rank gathers for one layer."""
    counts, plan = job.model.params, job.plan
    mixer = max(counts.attention_per_layer, counts.mixer_per_layer) + counts.norms_per_layer
    dense = counts.dense_mlp_per_layer if counts.num_dense_layers else 0
    experts = counts.num_experts * counts.per_expert // (plan.ep * plan.etp)
    with_experts = counts.expert_mlp(0) // plan.tp + experts if counts.num_experts else 0
    return mixer // plan.tp + max(dense // plan.tp, with_experts)


def _offload(sheet: Sheet) -> None:
    offload = sheet.plan.offload
    # What holds the parameters holds the optimizer's state too.
    held = {"optimizer": ("offload_optimizer",), "parameters": ("offload_optimizer", "offload_param")}
    for block in held.get(offload, ()):
        sheet.put(f"{ZERO}{block}.device", "cpu", "offload")
        sheet.put(f"{ZERO}{block}.pin_memory", True, "offload")
    sheet.follows("offload")  # activations: see _recompute


def _pipeline(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("vpp", 1, why="a rank has one stage")
    sheet.only("schedule", "1f1b", why="pipelines run 1f1b")
    sheet.only("layers_per_chunk", None, why="a rank has one stage")
    sheet.follows("pp", "layers_per_stage")
    if plan.pp == 1:
        return
    sheet.put("pipeline.stages", plan.pp, "pp")
    sheet.put("pipeline.partition", pipelines.PARTITION, "layers_per_stage")
    split = pipelines.split(sheet.job.model.num_layers, plan.pp)
    sheet.only("layers_per_stage", split, why=f"PipelineModule lays them out itself, as {','.join(map(str, split))}")
    for name in ("tp", "cp", "ep"):
        sheet.only(name, 1, why=f"the layers of a PipelineModule are code, so how {name} cuts them is too")
    if sheet.job.model.num_mtp_layers:
        sheet.refuse("model.num_mtp_layers", sheet.job.model.num_mtp_layers, "a PipelineModule is one chain of layers")


def _recompute(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("recompute", "none", "full", why="activation checkpointing runs whole layers again")
    sheet.only("recompute_modules", (), why="activation checkpointing runs whole layers again")
    full = plan.recompute == "full"
    every = plan.layers_per_stage if full else (0,) * plan.pp
    sheet.only("recomputed_layers_per_stage", every, why="all layers are recomputed, or none")
    block, interval = "activation_checkpointing.", plan.recompute_interval
    if not full:
        sheet.only("recompute_interval", 1, why="nothing is recomputed")
        if plan.offload == "activations":
            sheet.refuse("offload", plan.offload, "cpu_checkpointing moves checkpoints: it takes recompute full")
        return
    sheet.put(f"{block}partition_activations", False, "recompute")
    sheet.put(f"{block}cpu_checkpointing", plan.offload == "activations", "offload")
    sheet.put(f"{block}number_checkpoints", sum(-(-layers // interval) for layers in every), "recompute")
    if plan.pp > 1:
        sheet.put("pipeline.activation_checkpoint_interval", interval, "recompute", "recompute_interval")
    else:
        sheet.only("recompute_interval", 1, why="only a PipelineModule of several stages is told to join layers")
