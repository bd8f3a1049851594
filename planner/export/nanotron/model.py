"""A model as nanotron's ``model_config``: Llama's, or Qwen 2's where there is more to say."""

from __future__ import annotations

from planner.export.shapes import Shape
from planner.export.sheet import Sheet

_CONFIG = "model.model_config."
_EXPERTS = f"{_CONFIG}moe_config."
# models/qwen.py hands the group of context parallelism to them; the window goes to the first.
RINGS = {"p2p": "ring", "all_gather": "llama3_ring_attention"}
_WINDOWED = "flash_attention_2"


def put_model(sheet: Sheet) -> None:
    """Write the shape, or refuse what nanotron builds otherwise."""
    shape, plan, model = Shape(sheet), sheet.plan, sheet.job.model
    windowed = model.sliding_window is not None
    if model.moe is not None or model.qkv_bias or windowed or plan.cp > 1:
        shape.put(f"{_CONFIG}is_qwen2_config", True, *_needs_qwen2(sheet))
        if sheet.has(f"{_CONFIG}attention_bias"):
            shape.put(f"{_CONFIG}attention_bias", model.qkv_bias, "qkv_bias")
    else:
        shape.put(f"{_CONFIG}is_llama_config", True)
    shape.follows("qkv_bias")
    for key, field in (
        ("hidden_size", "hidden_size"),
        ("intermediate_size", "ffn_hidden_size"),
        ("num_hidden_layers", "num_layers"),
        ("num_attention_heads", "num_heads"),
        ("num_key_value_heads", "num_kv_heads"),
        ("vocab_size", "vocab_size"),
        ("tie_word_embeddings", "tie_word_embeddings"),
    ):
        shape.put(_CONFIG + key, getattr(model, field), field)
    shape.put(
        f"{_CONFIG}max_position_embeddings", model.max_position_embeddings or plan.seq_len, "max_position_embeddings"
    )
    # A table of positions is refused by its own name.
    even = model.hidden_size // model.num_heads
    shape.only("head_dim", even, why=f"a head is hidden_size / num_heads = {even} wide")
    _attention(shape, sheet)
    _experts(shape)
    shape.only("gated_mlp", True, why="the MLP has a gate")
    shape.only("norms_per_layer", 2, why="attention and MLP are normalised at their inputs alone")
    shape.only("norm_weight", True, why="norms have weights")
    shape.finish()


def _needs_qwen2(sheet: Sheet) -> tuple[str, ...]:
    model = sheet.job.model
    parts = {"moe": model.moe, "qkv_bias": model.qkv_bias, "sliding_window": model.sliding_window}
    return tuple(name for name, value in parts.items() if value)


def _attention(shape: Shape, sheet: Sheet) -> None:
    model, plan = sheet.job.model, sheet.plan
    if plan.cp > 1 and plan.cp_comm_type in RINGS:
        sheet.put(f"{_CONFIG}_attn_implementation", RINGS[plan.cp_comm_type], "cp_comm_type")
    shape.follows("sliding_window")
    if model.sliding_window is None:
        return
    shape.put(f"{_CONFIG}sliding_window_size", model.sliding_window, "sliding_window")
    shape.only("num_sliding_layers", model.num_layers, why="every layer has the window")
    if plan.cp > 1:
        shape.refuse("sliding_window", f"a ring over cp {plan.cp} has no window")
    elif sheet.has(f"{_CONFIG}_attn_implementation"):
        sheet.put(f"{_CONFIG}_attn_implementation", _WINDOWED)


def _experts(shape: Shape) -> None:
    moe = shape.model.moe
    shape.follows("moe")
    if moe is None:
        return
    shape.put(f"{_EXPERTS}num_experts", moe.num_experts, "moe.num_experts")
    shape.put(f"{_EXPERTS}top_k", moe.top_k, "moe.top_k")
    shape.put(f"{_EXPERTS}moe_intermediate_size", moe.expert_ffn_hidden_size, "moe.expert_ffn_hidden_size")
    shared = moe.shared_expert_ffn_hidden_size
    shape.put(f"{_EXPERTS}enable_shared_expert", shared > 0, "moe.shared_expert_ffn_hidden_size")
    if shared:
        width = f"{_EXPERTS}shared_expert_intermediate_size"
        shape.put(width, shared, "moe.shared_expert_ffn_hidden_size")
    shape.only("moe.shared_expert_gate", shared > 0, why="the shared expert has a gate")
    shape.only("moe.num_dense_layers", 0, why="every layer has experts")
    shape.only("moe.layer_step", 1, why="every layer has experts")
