"""FLOPs that a model needs, and what utilisation is counted against them.

Model FLOPs: a multiply and an add for every parameter in a matrix product and token, forward once and backward
twice, which is ``6 N`` (Kaplan 2020, arXiv 2001.08361, section 2.1); plus attention scores and weighted sum over the
causal half, forward once and backward twice. The input embedding is a look-up and counts for nothing; the head is a
product and counts. MoE models count the parameters that a token visits. Multi-token prediction is trained beside the
model and counts for nothing. Hardware FLOPs add what recomputation runs again, so full recompute gives
``HFU = 8/6 MFU`` (Chowdhery 2022, arXiv 2204.02311, appendix B). ``costmodel.utilisation`` divides by the peak.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from costmodel.arrays import Num, num
from costmodel.spec.model import ModelSpec


def matmul_params(model: ModelSpec) -> int:
    """Parameters that one token multiplies with: the active ones, without the input embedding, with the head."""
    params = model.params
    visited = params.active - params.embedding - params.position_embedding
    return visited + (params.embedding if model.tie_word_embeddings else 0)


def mean_attended_tokens(seq_len: Num, window: Num, window_share: Num) -> Num:
    """Keys that one query attends to on average under a causal mask, over full and sliding-window layers.

    A causal layer averages s/2. With a window w < s the first w queries average w/2 and the rest attend to w.

    Args:
        window_share: share of the layers that have the window.
    """
    seen = np.minimum(window, seq_len)
    windowed = (seen * seen / 2.0 + (seq_len - seen) * seen) / seq_len
    return window_share * windowed + (1.0 - window_share) * seq_len / 2.0


def attention_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward FLOPs of scores and weighted sum of all layers, causal half only."""
    share = model.num_sliding_layers / model.num_attention_layers
    keys = float(mean_attended_tokens(num(seq_len), num(model.sliding_window or seq_len), num(share)))
    return keys * _flops_per_attended_token(model)


def full_attention_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """The same over the whole score matrix, without mask and windows: ``4 L h s`` where a heads of width h/a are used.

    What PaLM (Chowdhery 2022, arXiv 2204.02311, appendix B: ``12 L H Q T`` with both passes) and Megatron (Narayanan
    2021, arXiv 2104.04473, appendix) count.
    """
    return seq_len * _flops_per_attended_token(model)


def _flops_per_attended_token(model: ModelSpec) -> int:
    """Forward FLOPs of all layers for one query and one key: a product of the key's width and one of the value's."""
    v_dim = model.mla.v_head_dim if model.mla else model.head_dim
    return model.num_attention_layers * 2 * model.num_heads * (model.head_dim + v_dim)


def model_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward: ``6 N`` plus three times the attention core."""
    return 6 * matmul_params(model) + 3 * attention_flops_per_token(model, seq_len)


def recomputed_flops_per_token(model: ModelSpec, seq_len: int, share: float) -> float:
    """What running ``share`` of the decoder layers forward again costs: ``2 N`` and their attention core."""
    params = model.params
    head = params.head or params.embedding
    return share * (2 * (matmul_params(model) - head) + attention_flops_per_token(model, seq_len))


def selectively_recomputed_flops_per_token(model: ModelSpec, seq_len: int, modules: Collection[str]) -> float:
    """What running these modules of every layer forward again costs; words as in ``FrameworkSpec.selective_modules``.

    Norms, activation functions and other elementwise work are no matrix products and count for nothing, as everywhere
    in utilisation; so selective recompute of these alone leaves ``HFU = MFU``.
    """
    params = model.params
    products = {
        "core_attn": attention_flops_per_token(model, seq_len),
        "mla_up_proj": 2 * params.num_attention_layers * _latent_up_params(model),
        "mlp": 2 * params.num_dense_layers * params.dense_mlp_per_layer,
        "moe": 2 * params.num_moe_layers * params.expert_mlp(params.top_k),
        "shared_experts": 2 * params.num_moe_layers * params.shared_expert_per_layer,
    }
    # The shared experts are a part of the experts' block.
    again = set(modules) - ({"shared_experts"} if "moe" in modules else set())
    return sum(products.get(module, 0.0) for module in again)


def _latent_up_params(model: ModelSpec) -> int:
    """Parameters of latent attention's up-projections to queries, keys and values (DeepSeek-V2, arXiv 2405.04434)."""
    mla = model.mla
    if mla is None:
        return 0
    query = (mla.q_lora_rank or model.hidden_size) * mla.qk_head_dim
    return model.num_heads * (query + mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim))
