"""A plan as nanotron's YAML file.

The file holds what the plan says; the rest of a run (data, tokenizer, learning rate, checkpoints) is the user's to add,
in the same file. nanotron lays layers over a pipeline itself, by their cost.
"""

from __future__ import annotations

import yaml

from costmodel.spec.model import ModelSpec
from costmodel.stages import chunks_by_cost
from planner.export.allocator import allocator_of
from planner.export.by_hand import by_hand
from planner.export.dotted import nested
from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.nanotron.model import RINGS, put_model
from planner.export.sheet import Sheet
from planner.export.words import words_of

FILE, SCRIPT = "nanotron.yaml", "run_train.py"
WORDS = words_of("planner.export.nanotron")
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
ENGINES = {"1f1b": "1f1b", "gpipe": "afab"}


def write(job: Job, version: str | None) -> Launch:
    """The file, and the command that starts nanotron's own script with it.

    Raises:
        Inexpressible: parts of the plan or of the model have no key in this version.
        UnknownName: there is no such version.
    """
    found = program(job, version)
    return Launch(
        target="nanotron",
        version=WORDS.version_of(version, job.plan.framework_version),
        files=found.files,
        command=by_hand(found, job),
        notes=found.notes,
    )


def program(job: Job, version: str | None) -> Program:
    """What each node runs. Raises as ``write`` does."""
    sheet = Sheet(job, "nanotron", WORDS, WORDS.version_of(version, job.plan.framework_version))
    for part in (_parallelism, _pipeline, _tokens, _optimizer, put_model, _absent):
        part(sheet)
    sheet.follows("framework", "framework_version")
    text = yaml.safe_dump(nested(sheet.finish()), sort_keys=False)
    return Program(
        launcher="torchrun",
        script=SCRIPT,
        arguments=("--config-file", FILE),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"} | allocator_of(job),
        files=(LaunchFile(name=FILE, text=text),),
        notes=_notes(job),
    )


def layers_by_cost(model: ModelSpec, pp: int) -> tuple[int, ...]:
    """Decoder layers of each stage as nanotron lays them (models/base.py, build_model; get_block_compute_costs)."""
    layer = (4 * model.num_heads * model.head_dim + 3 * model.ffn_hidden_size) * model.hidden_size
    head = model.vocab_size * model.hidden_size
    return tuple(map(sum, chunks_by_cost(model.num_layers, pp, layer, head)))


def _parallelism(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.put("parallelism.dp", plan.dp, "dp")
    sheet.put("parallelism.tp", plan.tp, "tp")
    sheet.put("parallelism.pp", plan.pp, "pp")
    sheet.put("parallelism.expert_parallel_size", 1)
    sheet.only("ep", 1, why="its mesh has no room for experts: tp * cp * dp * pp is the world")
    sheet.only("etp", 1, why="experts are whole on every rank")
    sheet.follows("devices_used", "sequence_parallel", "tp_overlap", "cp", "cp_comm_type")
    if plan.tp > 1:
        sheet.put("parallelism.tp_mode", "REDUCE_SCATTER" if plan.sequence_parallel else "ALL_REDUCE")
        sheet.put("parallelism.tp_linear_async_communication", plan.tp_overlap, "tp_overlap")
    if plan.cp > 1:
        sheet.put("parallelism.context_parallel_size", plan.cp, "cp")
        sheet.only("cp_comm_type", *RINGS, why="rings and gathers are there")
        sheet.only("cp_balanced", True, why="every rank has an early and a late piece")
        sheet.only("cp_a2a_degree", 1, why="no rank exchanges heads")
    sheet.follows("cp_balanced", "cp_a2a_degree")


def _pipeline(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("vpp", 1, why="a rank has one stage")
    sheet.only("layers_per_chunk", None, why="a rank has one stage")
    sheet.follows("schedule")
    if plan.pp > 1:
        sheet.only("schedule", *ENGINES, why="afab and 1f1b are there")
        sheet.put("parallelism.pp_engine", ENGINES.get(plan.schedule, plan.schedule), "schedule")
    own = layers_by_cost(sheet.job.model, plan.pp)
    sheet.only("layers_per_stage", own, why=f"it lays layers by cost, as {','.join(map(str, own))}")
    sheet.only("recompute", "none", "full", why="recompute_layer is on or off")
    sheet.only("recompute_modules", (), why="recompute_layer is on or off")
    sheet.only("recompute_interval", 1, why="every layer is recomputed by itself")
    full = plan.recompute == "full"
    if full:
        sheet.put("parallelism.recompute_layer", True, "recompute")
    every = plan.layers_per_stage if full else (0,) * plan.pp
    sheet.only("recomputed_layers_per_stage", every, why="all layers are recomputed, or none")


def _tokens(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.put("tokens.sequence_length", plan.seq_len, "seq_len")
    sheet.put("tokens.micro_batch_size", plan.micro_batch_size, "micro_batch_size")
    sheet.put("tokens.batch_accumulation_per_replica", plan.num_microbatches, "num_microbatches")
    sheet.follows("global_batch_size")


def _optimizer(sheet: Sheet) -> None:
    plan = sheet.plan
    sheet.only("zero_stage", 0, 1, why="zero_stage 1 shards the optimizer, and nothing shards more")
    sheet.put("optimizer.zero_stage", plan.zero_stage, "zero_stage")
    sheet.follows("dp_replicate", "dp_shard")
    if plan.zero_stage:
        sheet.only("dp_replicate", 1, why="the optimizer is sharded over all of dp")
    sheet.only("optimizer", "adamw", why="it has AdamW, and SGD without momentum")
    if sheet.has("optimizer.optimizer_factory.name"):
        sheet.put("optimizer.optimizer_factory.name", "adamW", "optimizer")
    sheet.only("precision", *DTYPES, why="bf16, fp16 and fp32 have a dtype, and no key says more")
    sheet.put("model.dtype", DTYPES.get(plan.precision, plan.precision), "precision")
    sheet.put("optimizer.accumulate_grad_in_fp32", plan.precision != "fp32", "gradient_dtype")
    why = "the 32-bit copy of 16-bit parameters is where gradients are accumulated"
    sheet.only("gradient_dtype", "fp32", why=why)


def _absent(sheet: Sheet) -> None:
    sheet.only("offload", "none", why="nothing lives in host memory")
    sheet.only("reshard_after", "forward", why="parameters are never gathered")
    sheet.only("fsdp_prefetch", 1, why="parameters are never gathered")
    sheet.only("gradient_sync", "step", why="gradients are reduced with the last micro-batch")
    sheet.only("zero_plus", (), why="there is no ZeRO++")
    sheet.only("ep_overlap", False, why="experts are whole on every rank")
    sheet.only("moe_capacity_factor", None, why="no tokens are dropped")
    sheet.follows("moe_dispatcher")
    # The tokenizer's vocabulary is not padded.
    sheet.put("model.make_vocab_size_divisible_by", 1)


def _notes(job: Job) -> tuple[str, ...]:
    found = [
        "the file holds the plan: add general.project, tokenizer, data_stages, checkpoints, model.init_method, "
        "tokens.train_steps, and of the optimizer its learning rate schedule, weight decay, clipping and betas",
        f"of {job.model.name} it holds the sizes: rope_theta, rms_norm_eps and token ids are yours",
        f"{SCRIPT} is nanotron's own, at the root of its repository",
    ]
    if job.plan.precision == "fp16":
        found.append("nanotron scales no loss: float16 is trained as it is")
    return tuple(found)
