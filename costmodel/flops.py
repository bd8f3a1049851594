"""FLOPs that a model needs, and what utilisation is counted against them.

Model FLOPs: a multiply and an add for every parameter in a matrix product and token, forward once and backward
twice, which is ``6 N`` (Kaplan 2020, arXiv 2001.08361, section 2.1); plus attention scores and weighted sum over the
causal half, forward once and backward twice. The input embedding is a look-up and counts for nothing; the head is a
product and counts. MoE models count the parameters that a token visits. Hardware FLOPs add what recomputation runs
again, so full recompute gives ``HFU = 8/6 MFU`` (Chowdhery 2022, arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

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
    v_dim = model.mla.v_head_dim if model.mla else model.head_dim
    layers = model.num_attention_layers
    share = model.num_sliding_layers / layers
    keys = float(mean_attended_tokens(num(seq_len), num(model.sliding_window or seq_len), num(share)))
    return layers * 2 * keys * model.num_heads * (model.head_dim + v_dim)


def model_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward: ``6 N`` plus three times the attention core."""
    return 6 * matmul_params(model) + 3 * attention_flops_per_token(model, seq_len)


def recomputed_flops_per_token(model: ModelSpec, seq_len: int, share: float) -> float:
    """What running ``share`` of the decoder layers forward again costs: ``2 N`` and their attention core."""
    params = model.params
    head = params.head or params.embedding
    return share * (2 * (matmul_params(model) - head) + attention_flops_per_token(model, seq_len))
