"""A model as MaxText's decoder blocks and sizes."""

from __future__ import annotations

from costmodel.spec.model import ModelSpec
from planner.export.shapes import Shape
from planner.export.sheet import Sheet


def block_of(model: ModelSpec) -> str:
    """The decoder block whose layers are the model's, as far as any is."""
    if model.mla is not None:
        return "deepseek"
    if model.moe is not None:
        return "qwen3_moe" if model.qk_norm == "head" else "mixtral"
    if model.qk_norm == "head":
        return "qwen3"
    return "qwen2" if model.qkv_bias else "llama2"


def put_model(sheet: Sheet) -> None:
    """Write the shape, or refuse what MaxText has no block for."""
    shape, model = Shape(sheet), sheet.job.model
    block = block_of(model)
    shape.put("decoder_block", block)
    for key, field in (
        ("base_emb_dim", "hidden_size"),
        ("base_num_query_heads", "num_heads"),
        ("base_num_kv_heads", "num_kv_heads"),
        ("base_mlp_dim", "ffn_hidden_size"),
        ("base_num_decoder_layers", "num_layers"),
        ("vocab_size", "vocab_size"),
        ("logits_via_embedding", "tie_word_embeddings"),
        ("mtp_num_layers", "num_mtp_layers"),
    ):
        shape.put(key, getattr(model, field), field)
    if model.max_position_embeddings is not None:
        shape.put("max_position_embeddings", model.max_position_embeddings, "max_position_embeddings")
    shape.follows("max_position_embeddings", "head_dim", "mla", "moe")
    _attention(shape, block)
    _experts(shape, block)
    shape.only("gated_mlp", True, why="the MLP of these blocks has a gate")
    shape.only("norms_per_layer", 2, why="attention and MLP are normalised at their inputs alone")
    shape.only("norm_weight", True, why="norms have weights")
    shape.finish()


def _attention(shape: Shape, block: str) -> None:
    model = shape.model
    shape.only("qkv_bias", block == "qwen2", why=f"{block} has {'' if block == 'qwen2' else 'no '}biases there")
    if block == "qwen2":
        shape.put("attention_bias", True, "qkv_bias")
    normed = block in ("qwen3", "qwen3_moe")
    shape.only("qk_norm", "head" if normed else "none", why=f"{block} has {'one for each head' if normed else 'none'}")
    if normed:
        shape.put("use_qk_norm", True, "qk_norm")
    if model.mla is None:
        shape.put("head_dim", model.head_dim, "head_dim")
        return
    shape.put("attention_type", "mla", "mla")
    shape.put("q_lora_rank", model.mla.q_lora_rank or 0, "mla.q_lora_rank")
    for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        shape.put(name, getattr(model.mla, name), f"mla.{name}")


def _experts(shape: Shape, block: str) -> None:
    moe = shape.model.moe
    if moe is None:
        return
    shape.put("num_experts", moe.num_experts, "moe.num_experts")
    shape.put("num_experts_per_tok", moe.top_k, "moe.top_k")
    width, shared = moe.expert_ffn_hidden_size, moe.shared_expert_ffn_hidden_size
    shape.put("base_moe_mlp_dim", width, "moe.expert_ffn_hidden_size")
    shape.only("moe.layer_step", 1, why="every layer after the dense ones has experts")
    if block != "deepseek":
        why = f"the block {block} has routed experts in every layer, and no others"
        shape.only("moe.shared_expert_ffn_hidden_size", 0, why=why)
        shape.only("moe.num_dense_layers", 0, why=why)
        return
    shape.put("shared_experts", shared // width, "moe.shared_expert_ffn_hidden_size")
    if shared % width:
        shape.refuse("moe.shared_expert_ffn_hidden_size", f"shared experts are {width} wide each, as the routed ones")
    shape.put("first_num_dense_layers", moe.num_dense_layers, "moe.num_dense_layers")
    shape.put("routed_bias", moe.score_correction_bias, "moe.score_correction_bias")
    if moe.num_groups is not None:
        shape.put("n_routing_groups", moe.num_groups, "moe.num_groups")
        shape.put("topk_routing_group", moe.max_groups_per_token or moe.num_groups, "moe.max_groups_per_token")
