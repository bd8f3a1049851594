"""FLOPs that a model needs, and what utilisation is counted against them.

Model FLOPs: a multiply and an add for every parameter in a matrix product and token, forward once and backward
twice, which is ``6 N`` (Kaplan 2020, arXiv 2001.08361, section 2.1); plus attention scores and weighted sum over the
causal half, forward once and backward twice. The input embedding is a look-up and counts for nothing; the head is a
product and counts. MoE models count the parameters that a token visits. Hardware FLOPs add what recomputation runs
again, so full recompute gives ``HFU = 8/6 MFU`` (Chowdhery 2022, arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

from costmodel.spec.model import ModelSpec


def matmul_params(model: ModelSpec) -> int:
    """Parameters that one token multiplies with: active ones less the input embedding, plus the head when it is
    tied.
    """
    params = model.params
    visited = params.active - params.embedding - params.position_embedding
    return visited + (params.embedding if model.tie_word_embeddings else 0)


def mean_attended_tokens(model: ModelSpec, seq_len: int) -> float:
    """Keys that a query sees on average under a causal mask, over full and sliding-window layers."""
    share = model.num_sliding_layers / model.num_layers
    window = min(model.sliding_window or seq_len, seq_len)
    windowed = (window * window / 2 + (seq_len - window) * window) / seq_len
    return share * windowed + (1 - share) * seq_len / 2


def attention_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward FLOPs of scores and weighted sum of all layers, causal half only."""
    v_dim = model.mla.v_head_dim if model.mla else model.head_dim
    per_layer = 2 * mean_attended_tokens(model, seq_len) * model.num_heads * (model.head_dim + v_dim)
    return model.num_layers * per_layer


def model_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward: ``6 N`` plus three times the attention core."""
    return 6 * matmul_params(model) + 3 * attention_flops_per_token(model, seq_len)


def recomputed_flops_per_token(model: ModelSpec, seq_len: int, share: float) -> float:
    """What running ``share`` of the decoder layers forward again costs: ``2 N`` of those layers and their attention
    core.
    """
    params = model.params
    head = params.head or params.embedding
    return share * (2 * (matmul_params(model) - head) + attention_flops_per_token(model, seq_len))
