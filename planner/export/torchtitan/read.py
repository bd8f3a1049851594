"""What torchtitan's settings say of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from planner.export.known_keys import known_keys
from planner.export.notebook import Notebook
from planner.export.numbers import whole_number
from planner.export.reading import Read
from planner.export.torchtitan import stages
from planner.export.torchtitan.flavours import flavour_named
from planner.export.torchtitan.precisions import precision_of
from planner.export.torchtitan.settings import BACKENDS, NAME, OF_BF16_STATES, ROTATIONS
from planner.export.torchtitan.sources import Source, source_of

_KEYS = known_keys("planner.export.torchtitan")
_DEGREES = {
    "data_parallel_replicate_degree": "dp_replicate",
    "tensor_parallel_degree": "tp",
    "context_parallel_degree": "cp",
    "pipeline_parallel_degree": "pp",
    "expert_parallel_degree": "ep",
}
_DISPATCHERS = {word: kind for kind, word in BACKENDS.items()} | {"hybridep": "deduplicated"}
_EXCHANGES = {word: kind for kind, word in ROTATIONS.items()}
_OPTIMIZERS = {"AdamW": "adamw", "Adam": "adam"}
_LOCAL_BATCH, _SEQ_LEN = 8, 2048
"""What torchtitan takes where nothing is said: TrainingConfig."""


def read(text: str) -> Read:
    """What a TOML file, a recipe or a command line says.

    Raises:
        UnreadableFile: it is none of them.
        InvalidInput: its quotes don't match, or a value can't be what its setting is about.
    """
    source = source_of(text)
    old = [name for name in source.settings if name in _KEYS.old]
    keys = Notebook(_KEYS.renamed(source.settings), NAME)
    if old:
        keys.note(f"{', '.join(old)}: names of torchtitan 0.1, read as today's")
    for name, why in source.unread.items():
        keys.unread(name, why)
    version = "0.2" if source.is_toml else "0.3"
    keys.says("framework", NAME, "the settings are torchtitan's")
    keys.says("framework_version", version, "TOML" if source.is_toml else "a recipe")
    model = _model(keys, source)
    local = whole_number(dict(keys.items()).get("training.local_batch_size"))
    for part in (_mesh, _experts, _sharding, _batch, _context, _precision, _rest):
        part(keys, source)
    stages.read_stages(keys, model)
    _recompute(keys, source, model)
    keys.leave(_KEYS.ignored, _KEYS.unread)
    found = keys.found(model)
    return found if local is None else replace(found, batch_per_replica=local)


def _model(keys: Notebook, source: Source) -> ModelSpec | None:
    module, name = keys.word("model.name") or source.module, keys.word("model.flavor")
    name = keys.word("model_registry.flavor") or name
    mtp = keys.number("model_registry.num_mtp_layers") or 0
    if source.recipe is not None:
        keys.note(f"what torchtitan's {source.recipe} sets by itself is not in this text, and not read")
    flavour = flavour_named(module, name, source.recipe)
    if flavour is None:
        if name or source.recipe:
            keys.note(f"{module or ''} {name or source.recipe} is no flavour that is known here: give --model")
        return None
    return load_model(flavour.model).model_copy(update={"num_mtp_layers": mtp})


def _mesh(keys: Notebook, source: Source) -> None:
    for word, field in _DEGREES.items():
        name = f"parallelism.{word}"
        if keys.count(name, field) is None and source.recipe is None and name not in source.unread:
            keys.says(field, 1, f"{name}, 1 by default")
    shard = "parallelism.data_parallel_shard_degree"
    if (shard, -1) in keys.items():  # what the other degrees leave
        keys.drop(shard)
    keys.count(shard, "dp_shard")
    parallel = keys.switch("parallelism.enable_sequence_parallel") is not False
    components = _names(keys, "compile.components") or ["model"]
    compiled = bool(keys.switch("compile.enable")) and "model" in components
    name = f"{'parallelism' if source.is_toml else 'compile'}.enable_async_tensor_parallel"
    overlapped = bool(keys.switch(name))
    if keys.plan.get("tp", 1) > 1:
        keys.says("sequence_parallel", parallel, f"enable_sequence_parallel {parallel}")
        keys.says("tp_overlap", overlapped and compiled, f"{name} {overlapped}, compile.enable {compiled}")
    if not compiled and source.recipe is None:
        keys.note("without compile.enable norms and activations take longer than is predicted here")


def _sharding(keys: Notebook, _: Source) -> None:
    plan, name = keys.plan, "parallelism.fsdp_reshard_after_forward"
    pipeline = plan.get("pp", 1) > 1
    policy = keys.word(name) or "default"
    if policy not in ("default", "always", "never"):
        keys.unread(name, f"{policy!r} is none of default, always, never")
        return
    # Experts are cut over ranks of tp that expert parallelism leaves.
    of_experts = plan.get("tp", 1) // plan.get("ep", 1) if plan.get("ep", 1) > 1 and plan.get("etp", 1) == 1 else 1
    if plan.get("dp_shard") == 1 and plan.get("cp", 1) == 1 and of_experts <= 1:
        return
    again = policy == "always" or (policy == "default" and not pipeline)
    meaning = f"{name} {policy}"
    keys.says("zero_stage", 3 if again or pipeline else 2, meaning)
    if again or pipeline:
        keys.says("reshard_after", "forward" if again else "step", meaning)


def _batch(keys: Notebook, source: Source) -> None:
    plan, pipeline = keys.plan, keys.plan.get("pp", 1) > 1
    default = None if source.recipe or "training.local_batch_size" in source.unread else _LOCAL_BATCH
    local = keys.number("training.local_batch_size") or default
    micro = keys.number("parallelism.pipeline_parallel_microbatch_size") or 1
    size = micro if pipeline else local
    if size is not None:
        word = "parallelism.pipeline_parallel_microbatch_size" if pipeline else "training.local_batch_size"
        keys.says("micro_batch_size", size, f"{word} {size}")
    total = "training.global_batch_size"
    if (total, -1) in keys.items():
        keys.drop(total)
    batch = keys.count(total, "global_batch_size")
    replicas = plan["dp_replicate"] * plan["dp_shard"] if {"dp_replicate", "dp_shard"} <= set(plan) else None
    if replicas is not None and local is not None:
        if batch is None:
            batch = local * replicas
            keys.says("global_batch_size", batch, f"local_batch_size {local} * {replicas} replicas")
        elif pipeline and batch != local * replicas:
            runs = f"{batch / (local * replicas):g}"
            keys.note(f"the pipeline runs {runs} times a step (gradient accumulation), which is read as one run")
    silent = source.recipe is None and "training.seq_len" not in source.unread
    if keys.count("training.seq_len", "seq_len") is None and silent:
        keys.says("seq_len", _SEQ_LEN, f"training.seq_len, {_SEQ_LEN} by default")
    if plan.get("zero_stage", 0) >= 2 or replicas is None or replicas > 1:
        keys.says("gradient_sync", "step" if pipeline else "microbatch", f"pp {plan.get('pp', 1)}")


def _context(keys: Notebook, source: Source) -> None:
    rotation, balancer = "parallelism.context_parallel_rotate_method", "parallelism.context_parallel_load_balancer"
    method, balance = keys.word(rotation), keys.word(balancer) or "headtail"
    if keys.plan.get("cp", 1) == 1:
        return
    method = (method if source.is_toml else None) or "allgather"
    if method in _EXCHANGES:
        keys.says("cp_comm_type", _EXCHANGES[method], f"keys and values by {method}")
    else:
        keys.unread(rotation, f"{method!r} is none of {', '.join(_EXCHANGES)}")
    if balance.lower() in ("headtail", "none"):
        keys.says("cp_balanced", balance == "headtail", f"{balancer} {balance}")
    else:
        keys.unread(balancer, f"{balance!r} is no balance that is priced here")


def _names(keys: Notebook, name: str) -> list[str]:
    """A list of words, also with commas on a command line."""
    value: Any = keys.pop(name) or []
    if isinstance(value, str):
        return value.split(",")
    if not isinstance(value, list):
        raise InvalidInput(f"{NAME}: {name}", value, "a list of names is expected")
    return [str(one) for one in value]


def _experts(keys: Notebook, source: Source) -> None:
    plan, parallel = keys.plan, keys.plan.get("ep", 1) > 1
    cut = keys.number("parallelism.expert_tensor_parallel_degree") or 1
    if parallel:
        keys.says("etp", cut if source.is_toml else 1, f"expert_tensor_parallel_degree {cut}")
    backend = keys.word("parallelism.expert_parallel_comm_backend") or keys.word("model_registry.moe_comm_backend")
    backend = backend or ("standard" if parallel else None)
    if backend in _DISPATCHERS:
        keys.says("moe_dispatcher", _DISPATCHERS[backend], f"experts reached by {backend}")
    elif backend is not None:
        keys.unread("moe_comm_backend", f"{backend!r} is none of {', '.join(_DISPATCHERS)}")
    overlap = "parallelism.pipeline_parallel_expert_parallel_overlap"
    overlapped = keys.switch(overlap) is not False
    # The schedule is read later.
    v = str(dict(keys.items()).get(stages.SCHEDULE, "")).lower() == "dualpipev"
    if source.is_toml and parallel and v and plan.get("pp", 1) > 1:
        keys.says("ep_overlap", overlapped, f"{overlap} {overlapped}")


def _precision(keys: Notebook, _: Source) -> None:
    dtype, mixed = keys.word("training.dtype"), keys.word("training.mixed_precision_param")
    names = _names(keys, "model.converters")
    float8 = "quantize.linear.float8."
    gathered = keys.switch(f"{float8}enable_fsdp_float8_all_gather")
    precision = precision_of(dtype, mixed, [n.lower() for n in names], keys.word(f"{float8}recipe_name"), gathered)
    what = f"converters {', '.join(names)}" if names else f"dtype {dtype or 'float32'}, mixed {mixed or 'bfloat16'}"
    if precision is None:
        keys.unread("model.converters" if names else "training.dtype", f"{what}: no precision that is known here")
        return
    keys.says("precision", precision, what)
    keys.says("gradient_dtype", "bf16" if precision == "bf16-pure" else "fp32", what)


def _rest(keys: Notebook, source: Source) -> None:
    offloaded = bool(keys.switch("training.enable_cpu_offload"))
    keys.says("offload", "parameters" if offloaded else "none", f"training.enable_cpu_offload {offloaded}")
    name = "optimizer.name" if source.is_toml else "optimizer.param_groups.optimizer_name"
    optimizer = keys.word(name) or "AdamW"
    narrow = keys.word("optimizer.implementation") == OF_BF16_STATES
    if narrow and optimizer == "AdamW":
        keys.says("optimizer", "adamw-bf16-moments", f"optimizer.implementation {OF_BF16_STATES}")
    elif optimizer in _OPTIMIZERS and not narrow:
        keys.says("optimizer", _OPTIMIZERS[optimizer], f"{name} {optimizer}")
    else:
        keys.unread(name, f"{optimizer!r} is no optimizer that is known here")


def _recompute(keys: Notebook, source: Source, model: ModelSpec | None) -> None:
    mode = keys.word("activation_checkpoint.mode")
    policy = keys.word("activation_checkpoint") or mode
    option = str(keys.pop("activation_checkpoint.selective_ac_option") or "2") if source.is_toml else "op"
    if policy is None:
        if source.recipe is not None:
            return
        policy = "selective"
    if policy == "selective" and option != "op":
        _every_nth(keys, model, option)
    elif policy in ("none", "full", "selective"):
        keys.says("recompute", policy, f"activation_checkpoint {policy}")
    else:
        keys.unread("activation_checkpoint", f"{policy}: it is none of none, selective, full")


def _every_nth(keys: Notebook, model: ModelSpec | None, option: str) -> None:
    layers = keys.plan.get("layers_per_stage")
    if layers is None and model is not None and keys.plan.get("pp", 1) == 1:
        layers = (model.num_layers,)
    name = "activation_checkpoint.selective_ac_option"
    every = whole_number(option)
    if every is None or layers is None:
        keys.unread(name, f"{option}: every so many layers are recomputed, and how many layers there are is not said")
        return
    n, meaning = max(every, 1), f"{name} {option}"
    keys.says("recompute", "full", meaning)
    keys.says("recomputed_layers_per_stage", tuple(count // n for count in layers), meaning)
