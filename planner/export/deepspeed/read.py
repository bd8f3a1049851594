"""What a DeepSpeed JSON file says of a plan.

``auto`` (Hugging Face's Trainer, Accelerate) means that arguments elsewhere decide, so it says nothing here. Files are
read as DeepSpeed reads them: with comments, commas at the end and unquoted keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.catalog.documents import mapping_of
from costmodel.errors import InvalidInput, UnreadableFile
from planner.export.deepspeed.write import OPTIMIZERS, ZERO
from planner.export.dotted import dotted
from planner.export.known_keys import known_keys
from planner.export.notebook import Notebook
from planner.export.reading import Read

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*|#[^\n]*', re.DOTALL)
_AUTO = "auto"
_EXPERTS = "expert_parallel."
_CHECKPOINTS = "activation_checkpointing."
_WHERE = "deepspeed config"
_KEYS = known_keys("planner.export.deepspeed")


def read(text: str) -> Read:
    """The plan's fields that the file states.

    Raises:
        UnreadableFile: it is no JSON object.
        InvalidInput: a value can't be what its key is about.
    """
    keys = Notebook(_renamed(dotted(_parsed(text))), _WHERE)
    keys.says("framework", "deepspeed", "the file is DeepSpeed's")
    automatic = [name for name, value in keys.items() if value == _AUTO]
    for name in automatic:
        keys.drop(name)
    if automatic:
        keys.note(f"{', '.join(automatic)}: auto, so arguments elsewhere say it; give what they say as flags")
    for part in (_batch, _precision, _optimizer, _mesh, _experts, _sharding, _offload, _pipeline, _recompute):
        part(keys, automatic)
    keys.leave(_KEYS.ignored, _KEYS.unread)
    return keys.found()


def _parsed(text: str) -> dict[str, Any]:
    """As JSON; else without comments as YAML, which takes the rest of what people write."""
    try:
        return mapping_of(text, is_json=True, shown=_WHERE, field="from")
    except UnreadableFile as error:
        # A comment leaves its place as a blank, so that lines and columns stay.
        plain = _COMMENT.sub(lambda found: found.group(1) or " ", text)
        try:
            return mapping_of(plain.replace("\t", " "), is_json=False, shown=_WHERE, field="from")
        except UnreadableFile:
            raise error from None


def _renamed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Under today's names; a bare ``zero_optimization: true`` was stage 1."""
    found = dict(settings)
    if isinstance(found.get("zero_optimization"), bool):
        found[f"{ZERO}stage"] = int(found.pop("zero_optimization"))
    return _KEYS.renamed(found)


def _batch(keys: Notebook, _: list[str]) -> None:
    keys.count("train_batch_size", "global_batch_size")
    keys.count("train_micro_batch_size_per_gpu", "micro_batch_size")
    keys.count("gradient_accumulation_steps", "num_microbatches")


def _precision(keys: Notebook, automatic: list[str]) -> None:
    bf16, fp16 = keys.switch("bf16.enabled"), keys.switch("fp16.enabled")
    pure = keys.switch("bf16.bf16_master_weights_and_grads")
    states = keys.switch("bf16.bf16_optimizer_states")
    if bf16 and fp16:
        raise InvalidInput(f"{_WHERE}: bf16.enabled", True, "fp16.enabled is true as well; one of them is expected")
    if bf16 and pure and not states:
        keys.unread("bf16.bf16_master_weights_and_grads", "without bf16_optimizer_states it is no recipe known here")
    if bf16:
        name = "bf16-pure" if pure and states else "bf16"
        keys.says("precision", name, "bf16.enabled true")
    elif fp16:
        keys.says("precision", "fp16", "fp16.enabled true")
    elif not {"bf16.enabled", "fp16.enabled"} & set(automatic):
        keys.says("precision", "fp32", "neither bf16 nor fp16 is enabled")
    if (dtype := keys.word("data_types.grad_accum_dtype")) is not None:
        known = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
        name = dtype.removeprefix("torch.")
        keys.says("gradient_dtype", known.get(name, name), f"data_types.grad_accum_dtype {dtype}")


def _optimizer(keys: Notebook, _: list[str]) -> None:
    name = keys.word("optimizer.type")
    adam_w = keys.switch("optimizer.params.adam_w_mode")
    keys.drop_all("optimizer.params.")
    if name is None:
        return
    recipe = {written.lower(): ours for ours, written in OPTIMIZERS.items()} | {"sgd": "sgd"}
    if name.lower() not in recipe:
        keys.unread("optimizer.type", f"{name} is no recipe known here")
        return
    found = recipe[name.lower()]
    if found == "adam" and adam_w is not False:
        found = "adamw"
    keys.says("optimizer", found, f"optimizer.type {name}")


def _mesh(keys: Notebook, _: list[str]) -> None:
    tp = keys.number("tensor_parallel.autotp_size")
    overlap = keys.switch("tensor_parallel.tp_overlap_comm")
    if tp is not None:
        keys.says("tp", max(tp, 1), f"tensor_parallel.autotp_size {tp}")
        if tp > 1:
            keys.says("sequence_parallel", False, "AutoTP leaves norms and residuals whole")
            keys.says("tp_overlap", bool(overlap), f"tensor_parallel.tp_overlap_comm {str(bool(overlap)).lower()}")
            keys.says("etp", tp, "AutoTP cuts experts as it cuts the rest")
    if (cp := keys.count("sequence_parallel_size", "cp")) and cp > 1:
        keys.says("cp_comm_type", "a2a", "sequence_parallel_size: Ulysses exchanges heads")


def _experts(keys: Notebook, _: list[str]) -> None:
    enabled = keys.switch(f"{_EXPERTS}enabled")
    size = keys.number(f"{_EXPERTS}autoep_size")
    etp = keys.number(f"{_EXPERTS}expert_tensor_parallel_size")
    backend = keys.word(f"{_EXPERTS}comm_backend")
    keys.drop_all(_EXPERTS)
    if not enabled:
        return
    keys.says("ep", max(size or 1, 1), f"expert_parallel.autoep_size {size or 1}")
    keys.says("etp", max(etp or 1, 1), f"expert_parallel.expert_tensor_parallel_size {etp or 1}")
    if (size or 1) > 1:
        kinds = {None: "all_to_all", "comm": "all_to_all", "deepep": "deduplicated"}
        if backend in kinds:
            keys.says("moe_dispatcher", kinds[backend], f"expert_parallel.comm_backend {backend or 'comm'}")
        else:
            keys.unread(f"{_EXPERTS}comm_backend", f"{backend} is not known: comm and deepep are")


def _sharding(keys: Notebook, automatic: list[str]) -> None:
    stage = keys.number(f"{ZERO}stage")
    if stage is None and f"{ZERO}stage" not in automatic:
        keys.says("zero_stage", 0, "no zero_optimization.stage")
    elif stage is not None:
        if not 0 <= stage <= 3:
            raise InvalidInput(f"{_WHERE}: {ZERO}stage", stage, "0, 1, 2 or 3 is expected")
        keys.says("zero_stage", stage, f"zero_optimization.stage {stage}")
    if keys.switch(f"{ZERO}overlap_comm") is False and stage:
        keys.unread(f"{ZERO}overlap_comm", "false, and reductions are priced as overlapped with the backward pass")
    shard = keys.number(f"{ZERO}mics_shard_size")
    if shard is not None and shard > 0:
        keys.says("dp_shard", shard, f"zero_optimization.mics_shard_size {shard}")
    elif stage:
        keys.says("dp_replicate", 1, "without MiCS all of dp is sharded over")
    ahead, near = keys.number(f"{ZERO}stage3_prefetch_bucket_size"), keys.number(f"{ZERO}stage3_max_reuse_distance")
    if stage == 3 and ahead is not None and (ahead == 0 or (near and ahead % near == 0)):
        layers = ahead // near if near else 0
        keys.says("fsdp_prefetch", layers, f"stage3_prefetch_bucket_size is {layers} times stage3_max_reuse_distance")
    _zero_plus(keys)


def _zero_plus(keys: Notebook) -> None:
    found = {"qwz": keys.switch(f"{ZERO}zero_quantized_weights")}
    found["hpz"] = (keys.number(f"{ZERO}zero_hpz_partition_size") or 1) > 1
    found["qgz"] = keys.switch(f"{ZERO}zero_quantized_gradients")
    parts = tuple(part for part, on in found.items() if on)
    if parts:
        keys.says("zero_plus", parts, "zero_quantized_weights, zero_hpz_partition_size, zero_quantized_gradients")


def _offload(keys: Notebook, _: list[str]) -> None:
    held: dict[str, bool] = {}
    for block in ("offload_optimizer", "offload_param"):
        device = keys.word(f"{ZERO}{block}.device") or "none"
        ratio = keys.factor(f"{ZERO}{block}.ratio")
        keys.drop_all(f"{ZERO}{block}.")
        held[block] = device != "none"
        if device == "nvme":
            keys.unread(f"{ZERO}{block}.device", "nvme is planned as host memory, which is faster")
        elif device not in ("none", "cpu"):
            keys.unread(f"{ZERO}{block}.device", f"{device} is not known: none, cpu and nvme are")
        if held[block] and ratio is not None and ratio < 1:
            keys.unread(f"{ZERO}{block}.ratio", f"{ratio:g} of the state is on the host, planned as all of it")
    if held["offload_param"]:
        keys.says("offload", "parameters", "zero_optimization.offload_param.device")
        if not held["offload_optimizer"]:
            keys.unread(f"{ZERO}offload_param.device", "the optimizer's state stays on the device, planned on the host")
    elif held["offload_optimizer"]:
        keys.says("offload", "optimizer", "zero_optimization.offload_optimizer.device")


def _pipeline(keys: Notebook, automatic: list[str]) -> None:
    stages, how = keys.number("pipeline.stages"), keys.word("pipeline.partition")
    if stages is not None:
        keys.says("pp", max(stages, 1), f"pipeline.stages {stages}")
        if stages > 1:
            keys.says("schedule", "1f1b", "PipelineModule runs 1f1b")
    elif "pipeline.stages" not in automatic:
        keys.note("pipelines are made in code (PipelineModule): without pipeline.stages there is none here")
    if how is not None and not how.startswith("type:"):
        keys.unread("pipeline.partition", f"{how}: layers are planned as even as possible")


def _recompute(keys: Notebook, automatic: list[str]) -> None:
    configured = keys.drop_all(_CHECKPOINTS, but=(f"{_CHECKPOINTS}cpu_checkpointing",))
    to_host = keys.switch(f"{_CHECKPOINTS}cpu_checkpointing")
    interval = keys.number("pipeline.activation_checkpoint_interval") or 0
    if not (configured or to_host or interval):
        keys.note(
            "activation checkpointing is switched on in code (gradient_checkpointing), of which the file says nothing"
        )
        return
    why = "pipeline.activation_checkpoint_interval" if interval else "activation_checkpointing is configured"
    keys.says("recompute", "full", why)
    if interval:
        keys.says("recompute_interval", interval, f"pipeline.activation_checkpoint_interval {interval}")
    if to_host and "offload" not in keys.plan:
        keys.says("offload", "activations", "activation_checkpointing.cpu_checkpointing")
    elif to_host:
        keys.unread(f"{_CHECKPOINTS}cpu_checkpointing", "one thing at a time is planned in host memory")
