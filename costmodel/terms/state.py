"""Model state per device: how many parameters live there, and the bytes that each carries.

Published anchors (tests): 7.5B parameters on 64-way data parallelism take 120 / 31.4 / 16.6 / 1.9 GB with ZeRO 0 / 1
/ 2 / 3 (Rajbhandari 2019, arXiv 1910.02054, figure 1).
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.terms import shapes
from costmodel.terms.term import Axes, Outputs, Term


def shard_share(zero_stage: Num, since: int, shards: Num) -> Num:
    """Share of a buffer that one rank keeps when stages from ``since`` on cut it over ``shards`` ranks.

    Optimizer state is cut from stage 1, gradients from 2, parameters from 3 (Rajbhandari 2019, section 5).
    """
    return np.where(zero_stage >= since, 1.0 / shards, 1.0)


def state_bytes(
    params: Num, shards: Num, zero_stage: Num, *, param_bytes: Num, gradient_bytes: Num, optimizer_bytes: Num
) -> Num:
    """Bytes of state of ``params`` parameters on one rank, with what ``zero_stage`` names cut over ``shards`` ranks."""
    return params * (
        param_bytes * shard_share(zero_stage, 3, shards)
        + gradient_bytes * shard_share(zero_stage, 2, shards)
        + optimizer_bytes * shard_share(zero_stage, 1, shards)
    )


def _evaluate(f: Facts, x: Axes) -> Outputs:
    model = f.model
    # Multi-head latent attention keeps its down-projections whole on every rank; grouped KV heads are copied past
    # one a rank.
    whole = model.is_mla * model.hidden * (model.q_latent + model.kv_latent + model.kv_rope_width)
    whole = whole * model.attention_share
    kv_width = model.kv_heads * (model.qk_head_dim + model.v_head_dim) * (1.0 - model.is_mla) * model.attention_share
    copied = np.maximum(x.tp / model.kv_heads, 1.0)
    cut = model.attention_params - whole - model.hidden * kv_width + model.hidden * kv_width * copied
    attention = whole + cut / x.tp + model.norm_params
    table = shapes.padded_vocab(f, x) * model.hidden
    return {
        "dense_layer_params": attention + model.dense_mlp_params / x.tp,
        "moe_layer_params": attention + model.moe_shared_params / x.tp,
        "expert_layer_params": model.expert_params * model.experts / (x.ep * x.etp),
        "table_params": table,
        "mtp_projection_params": 2.0 * model.hidden * model.hidden / x.tp,
    }


PARAMETERS = Term(
    name="parameters",
    axes=("tp", "ep", "etp"),
    gives=("dense_layer_params", "moe_layer_params", "expert_layer_params", "table_params", "mtp_projection_params"),
    evaluate=_evaluate,
)
