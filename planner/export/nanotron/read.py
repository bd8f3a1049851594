"""What a nanotron YAML file says of a plan and of the model."""

from __future__ import annotations

from typing import Any

from costmodel.catalog.documents import mapping_of
from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import native_model
from planner.export.dotted import dotted
from planner.export.known_keys import known_keys
from planner.export.nanotron.model import RINGS
from planner.export.nanotron.write import DTYPES, ENGINES, layers_by_cost
from planner.export.notebook import Notebook
from planner.export.reading import Read

_WHERE = "nanotron config"
_KEYS = known_keys("planner.export.nanotron")
_CONFIG = "model.model_config."
_MOST_STAGES = 1000


def read(text: str) -> Read:
    """The plan's fields that the file states, and its model.

    Raises:
        UnreadableFile: it is no YAML mapping.
        InvalidInput: a value can't be what its key is about.
    """
    data = mapping_of(text, is_json=False, shown=_WHERE, field="from")
    keys = Notebook(dotted(data), _WHERE)
    keys.says("framework", "nanotron", "the file is nanotron's")
    model = _model(keys, data)
    _parallelism(keys)
    _pipeline(keys, model)
    _tokens(keys)
    _optimizer(keys)
    keys.leave(_KEYS.ignored, _KEYS.unread)
    return keys.found(model)


def _model(keys: Notebook, data: dict[str, Any]) -> ModelSpec | None:
    """The model's shape; None where it can't be read, which is told."""
    attention = keys.word(f"{_CONFIG}_attn_implementation")
    rings = {name: kind for kind, name in RINGS.items()} | {"ring_flash_triton": "p2p"}
    if attention in rings:
        keys.says("cp_comm_type", rings[attention], f"model_config._attn_implementation {attention}")
    if not keys.drop_all(_CONFIG, read=True):
        return None
    try:
        return native_model(data, name="the file's model")
    except InvalidInput as error:
        keys.unread("model.model_config", str(error))
        return None


def _parallelism(keys: Notebook) -> None:
    keys.count("parallelism.dp", "dp")
    tp = keys.count("parallelism.tp", "tp")
    keys.count("parallelism.pp", "pp")
    keys.count("parallelism.context_parallel_size", "cp")
    keys.count("parallelism.expert_parallel_size", "ep")
    mode = keys.word("parallelism.tp_mode") or "ALL_REDUCE"
    overlap = keys.switch("parallelism.tp_linear_async_communication") or False
    if mode.upper() not in ("ALL_REDUCE", "REDUCE_SCATTER"):
        raise InvalidInput(f"{_WHERE}: parallelism.tp_mode", mode, "ALL_REDUCE or REDUCE_SCATTER is expected")
    if tp is not None and tp > 1:
        keys.says("sequence_parallel", mode.upper() == "REDUCE_SCATTER", f"parallelism.tp_mode {mode}")
        keys.says("tp_overlap", overlap, f"parallelism.tp_linear_async_communication {str(overlap).lower()}")


def _pipeline(keys: Notebook, model: ModelSpec | None) -> None:
    engine = keys.word("parallelism.pp_engine")
    schedules = {name: schedule for schedule, name in ENGINES.items()}
    pp = keys.plan.get("pp", 1)
    if engine is not None and engine.lower() not in schedules:
        raise InvalidInput(f"{_WHERE}: parallelism.pp_engine", engine, f"{' or '.join(schedules)} is expected")
    if pp > 1:
        name = (engine or "afab").lower()
        keys.says("schedule", schedules[name], f"parallelism.pp_engine {name}")
    full = keys.switch("parallelism.recompute_layer") or False
    keys.says("recompute", "full" if full else "none", f"parallelism.recompute_layer {str(full).lower()}")
    if model is not None and pp <= min(_MOST_STAGES, model.num_layers):
        keys.says("layers_per_stage", layers_by_cost(model, pp), "nanotron lays layers over stages by their cost")


def _tokens(keys: Notebook) -> None:
    keys.count("tokens.sequence_length", "seq_len")
    size = keys.count("tokens.micro_batch_size", "micro_batch_size")
    count = keys.count("tokens.batch_accumulation_per_replica", "num_microbatches")
    if size and count and keys.plan.get("dp"):
        batch = size * count * keys.plan["dp"]
        keys.says("global_batch_size", batch, "micro_batch_size * batch_accumulation_per_replica * dp")


def _optimizer(keys: Notebook) -> None:
    stage = keys.number("optimizer.zero_stage")
    if stage is not None:
        # optim/zero.py asks whether it is above 0, and shards the optimizer alone.
        keys.says("zero_stage", min(max(stage, 0), 1), f"optimizer.zero_stage {stage}")
        if stage > 0:
            keys.says("dp_replicate", 1, "the optimizer is sharded over all of dp")
    name = keys.word("optimizer.optimizer_factory.name") or "adamW"
    if name.lower() == "adamw":
        keys.says("optimizer", "adamw", f"optimizer.optimizer_factory.name {name}")
    else:
        keys.unread("optimizer.optimizer_factory.name", f"{name} is no recipe known here")
    dtype = keys.word("model.dtype") or "bfloat16"
    recipes = {torch: ours for ours, torch in DTYPES.items()}
    if dtype in recipes:
        keys.says("precision", recipes[dtype], f"model.dtype {dtype}")
    else:
        keys.unread("model.dtype", f"{dtype} is no recipe known here")
    wide = keys.switch("optimizer.accumulate_grad_in_fp32")
    if wide or dtype == "float32":
        keys.says("gradient_dtype", "fp32", f"optimizer.accumulate_grad_in_fp32 {str(bool(wide)).lower()}")
    if wide is False and dtype in ("bfloat16", "float16"):
        why = "without it no 32-bit copy of the parameters is kept, and the plan is priced with one"
        keys.unread("optimizer.accumulate_grad_in_fp32", why)
    elif wide and dtype == "float32":
        why = "32-bit parameters are kept twice, and the plan is priced without"
        keys.unread("optimizer.accumulate_grad_in_fp32", why)
