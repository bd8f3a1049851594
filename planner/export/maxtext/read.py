"""What a MaxText YAML file says of a plan and of the model.

An axis of -1 takes what is left, so it says nothing. A file names a model or has its sizes; only the latter are read.
"""

from __future__ import annotations

from math import prod
from typing import Any

from costmodel.catalog.documents import mapping_of
from costmodel.errors import InvalidInput
from costmodel.spec.base import MOST_LAYERS
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import native_model
from planner.export.known_keys import known_keys
from planner.export.maxtext.mesh import AXES
from planner.export.maxtext.write import DTYPES, MINIMAL, OPTIMIZERS, PRECISIONS, STRATEGIES
from planner.export.notebook import Notebook
from planner.export.numbers import factor as number_from
from planner.export.reading import Read

_WHERE = "maxtext config"
_KEYS = known_keys("planner.export.maxtext")
_REST = -1
# base.yml: these take what is left unless they are said.
_DEFAULTS = {"ici_fsdp_parallelism": _REST}
_POLICIES = {"none": "none", "minimal": "selective", "minimal_offloaded": "selective", "full": "full"}


def read(text: str) -> Read:
    """The plan's fields that the file states, and its model.

    Raises:
        UnreadableFile: it is no YAML mapping.
        InvalidInput: a value can't be what its key is about.
    """
    data = mapping_of(text, is_json=False, shown=_WHERE, field="from")
    keys = Notebook(data, _WHERE)
    keys.says("framework", "maxtext", "the file is MaxText's")
    model = _model(keys, data)
    _context(keys)
    axes = _axes(keys)
    _sharding(keys, axes)
    _batch(keys, axes)
    _recompute(keys, model)
    _numbers(keys)
    _experts(keys)
    keys.leave(_KEYS.ignored, _KEYS.unread)
    return keys.found(model)


def _model(keys: Notebook, data: dict[str, Any]) -> ModelSpec | None:
    name = keys.pop("model_name")
    if "base_emb_dim" not in data:
        keys.note(f"the model is {name or 'that of base.yml'}: give --model" if name != "default" else "give --model")
        return None
    for key in _KEYS.model:
        keys.drop(key)
    # Modules of multi-token prediction are counted apart, by no key of the sizes.
    layers = keys.number("mtp_num_layers") or 0
    sizes = {key: value for key, value in data.items() if key != "mtp_num_layers"}
    try:
        found = native_model(sizes, name=str(name or "the file's model"))
    except InvalidInput as error:
        keys.unread("decoder_block", str(error))
        return None
    return found.model_copy(update={"num_mtp_layers": layers}) if found is not None else None


def _axes(keys: Notebook) -> dict[str, int | None]:
    """The size of every axis; None where it takes what is left."""
    found: dict[str, int | None] = {}
    for axis in AXES:
        sizes = []
        for net in ("ici", "dcn"):
            key = f"{net}_{axis}_parallelism"
            size = keys.number(key)
            size = _DEFAULTS.get(key, 1) if size is None else size
            if size < 1 and size != _REST:
                raise InvalidInput(f"{_WHERE}: {key}", size, "at least 1, or -1 for what is left, is expected")
            sizes.append(size)
        found[axis] = None if _REST in sizes else prod(sizes)
    _degrees(keys, found)
    return found


def _degrees(keys: Notebook, axes: dict[str, int | None]) -> None:
    tensor, sequence = axes["tensor"], axes["tensor_sequence"]
    if tensor is not None and sequence is not None:
        keys.says("tp", tensor * sequence, f"tensor axis {tensor}, tensor_sequence axis {sequence}")
        if tensor > 1 and sequence > 1:
            keys.unread("ici_tensor_parallelism", "norms are cut over a part of tp, planned over all of it")
        if tensor * sequence > 1:
            keys.says("sequence_parallel", sequence > 1, f"tensor_sequence axis {sequence}")
    ring, ulysses = axes["context"], axes["context_usp_ulysses"]
    if ring is not None and ulysses is not None:
        keys.says("cp", ring * ulysses, f"context axis {ring}, context_usp_ulysses axis {ulysses}")
        if ulysses > 1:
            keys.says("cp_a2a_degree", ulysses, f"context_usp_ulysses axis {ulysses}")
    for field, axis in (("pp", "pipeline"), ("ep", "expert")):
        if (size := axes[axis]) is not None:
            keys.says(field, size, f"{axis} axis {size}")


def _context(keys: Notebook) -> None:
    strategy, balanced = keys.word("context_parallel_strategy"), keys.switch("context_parallel_load_balance")
    kinds = {name: kind for kind, name in STRATEGIES.items()}
    if strategy in kinds:
        keys.says("cp_comm_type", kinds[strategy], f"context_parallel_strategy {strategy}")
    elif strategy is not None:
        keys.unread("context_parallel_strategy", f"{strategy} is not known: {', '.join(kinds)} are")
    if balanced is not None:
        keys.says("cp_balanced", balanced, f"context_parallel_load_balance {str(balanced).lower()}")


def _sharding(keys: Notebook, axes: dict[str, int | None]) -> None:
    over_data = keys.switch("shard_optimizer_over_data") or False
    data, fsdp, expert, context = axes["data"], axes["fsdp"], axes["expert"], axes["context"]
    cut = fsdp is None or fsdp > 1 or (expert or 1) * (context or 1) * (axes["context_usp_ulysses"] or 1) > 1
    stage = 3 if cut else int(over_data)
    keys.says("zero_stage", stage, f"fsdp axis {'what is left' if fsdp is None else fsdp}, data axis {data}")
    if data is None or expert is None:
        return
    if stage == 3:
        keys.says("dp_replicate", data, f"data axis {data}")
        if fsdp is not None:
            keys.says("dp_shard", fsdp * expert, f"fsdp axis {fsdp} * expert axis {expert}")
    elif stage == 1:
        keys.says("dp_replicate", 1, "shard_optimizer_over_data")
        keys.says("dp_shard", data, f"data axis {data}")
    else:
        keys.says("dp", data, f"data axis {data}")


def _batch(keys: Notebook, axes: dict[str, int | None]) -> None:
    keys.count("max_target_length", "seq_len")
    steps = keys.number("gradient_accumulation_steps") or 1
    pieces = keys.number("num_pipeline_microbatches") or _REST
    per_device = keys.factor("per_device_batch_size")
    layers, repeats = keys.number("num_layers_per_pipeline_stage"), keys.number("num_pipeline_repeats")
    stages = axes["pipeline"] or 1
    if (repeats is not None and repeats > 1) or (repeats in (None, _REST) and stages > 1):
        keys.unread("num_pipeline_repeats", "a circular pipeline has no schedule of its own here")
    if stages > 1:
        keys.says("schedule", "gpipe", "all micro-batches go forward before any goes backward")
        if layers is not None and not 0 < layers * stages <= MOST_LAYERS:
            expected = f"at most {MOST_LAYERS} layers in all stages are expected"
            raise InvalidInput(f"{_WHERE}: num_layers_per_pipeline_stage", layers, expected)
        if layers is not None and repeats in (None, 1):
            keys.says("layers_per_stage", (layers,) * stages, f"num_layers_per_pipeline_stage {layers}")
        if steps > 1:
            keys.unread("gradient_accumulation_steps", "steps of a pipeline are planned as one")
        pieces = stages if pieces == _REST else pieces
    else:
        pieces = steps
    keys.says("num_microbatches", pieces, "num_pipeline_microbatches, gradient_accumulation_steps")
    if per_device is None:
        return
    size = per_device * prod(
        axes[axis] or 1 for axis in ("tensor", "tensor_sequence", "context", "context_usp_ulysses")
    )
    size = size * stages / pieces if stages > 1 else size
    if abs(size - round(size)) < 1e-6 * size and round(size) >= 1:
        keys.says("micro_batch_size", round(size), f"per_device_batch_size {per_device:g} of the devices of a replica")
    else:
        keys.unread("per_device_batch_size", f"{size:g} sequences for each replica: a whole number is expected")
    plan = keys.plan
    if "micro_batch_size" in plan and ("dp" in plan or "dp_shard" in plan):
        dp = plan.get("dp", plan.get("dp_replicate", 1) * plan.get("dp_shard", 1))
        batch = plan["micro_batch_size"] * pieces * dp
        keys.says("global_batch_size", batch, "per_device_batch_size of all devices, and its repetitions")


def _recompute(keys: Notebook, model: ModelSpec | None) -> None:
    policy = (keys.word("remat_policy") or "full").lower()
    on_host = [part for part in ("optimizer", "parameter") if keys.switch(f"{part}_memory_host_offload")]
    if policy not in _POLICIES:
        keys.unread("remat_policy", f"{policy} keeps what no plan here says: {', '.join(_POLICIES)} are read")
    else:
        keys.says("recompute", _POLICIES[policy], f"remat_policy {policy}")
        if _POLICIES[policy] == "selective" and model is not None:
            modules = tuple(module for module in MINIMAL if model.moe is not None or module != "moe_act")
            keys.says("recompute_modules", modules, f"remat_policy {policy}")
    offloads = {"optimizer": "optimizer", "parameter": "parameters"}
    found = [offloads[part] for part in on_host] + (["activations"] if policy == "minimal_offloaded" else [])
    if found:
        keys.says("offload", found[0], "optimizer_memory_host_offload, parameter_memory_host_offload, remat_policy")
    if len(found) > 1:
        keys.unread("parameter_memory_host_offload", "one thing at a time is planned in host memory")


def _numbers(keys: Notebook) -> None:
    dtype, weights = keys.word("dtype") or "bfloat16", keys.word("weight_dtype") or "float32"
    products, quantization = keys.word("matmul_precision") or "default", keys.word("quantization") or ""
    same = {"high": "default", "float32": "highest", "bfloat16": "default"}
    told = (
        dtype,
        weights,
        same.get(products, products),
        {"fp8": "te_fp8_delayedscaling"}.get(quantization, quantization),
    )
    recipe = next((name for name, how in PRECISIONS.items() if how == told), None)
    if recipe is None:
        keys.unread(
            "dtype", f"dtype {dtype}, weight_dtype {weights}, quantization {quantization}: no recipe known here"
        )
    else:
        keys.says("precision", recipe, f"dtype {dtype}, weight_dtype {weights}, quantization {quantization or 'none'}")
    gradients = {name: ours for ours, name in DTYPES.items()}
    if (name := keys.word("grad_dtype")) in gradients:
        keys.says("gradient_dtype", gradients[name], f"grad_dtype {name}")
    optimizer = keys.word("opt_type")
    if optimizer in OPTIMIZERS:
        keys.says("optimizer", optimizer, f"opt_type {optimizer}")
    elif optimizer is not None:
        keys.unread("opt_type", f"{optimizer} is no recipe known here")


def _experts(keys: Notebook) -> None:
    ring, sparse = keys.switch("use_ring_of_experts"), keys.switch("sparse_matmul")
    given = keys.pop("capacity_factor")
    factor = number_from(given)
    if given is not None and factor is None and given != -1:
        keys.unread("capacity_factor", "a number is expected")
    if keys.plan.get("tp"):
        keys.says("etp", keys.plan["tp"], "the tensor axes cut experts as well")
    if keys.plan.get("ep", 1) > 1:
        keys.says(
            "moe_dispatcher", "all_gather" if ring else "all_to_all", f"use_ring_of_experts {str(bool(ring)).lower()}"
        )
    if factor and sparse is False:
        keys.says("moe_capacity_factor", factor, f"capacity_factor {factor:g}")
