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


def state_bytes(
    params: Num, shards: Num, zero_stage: Num, *, param_bytes: Num, gradient_bytes: Num, optimizer_bytes: Num
) -> Num:
    """Bytes of ``params`` parameters with what ``zero_stage`` names cut over ``shards`` ranks.

    Stage 1 cuts the optimizer state, 2 the gradients too, 3 the parameters too (Rajbhandari 2019, section 5).
    """

    def cut(since: int) -> Num:
        return np.where(zero_stage >= since, 1.0 / shards, 1.0)

    return params * (param_bytes * cut(3) + gradient_bytes * cut(2) + optimizer_bytes * cut(1))


def _evaluate(f: Facts, x: Axes) -> Outputs:
    model = f.model
    # Multi-head latent attention keeps its down-projections whole on every rank; grouped KV heads are copied past
    # one a rank.
    whole = model.is_mla * model.hidden * (model.q_latent + model.kv_latent + model.kv_rope_width)
    kv_width = model.kv_heads * (model.qk_head_dim + model.v_head_dim) * (1.0 - model.is_mla)
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


PARAMETERS = Term(name="parameters", axes=("tp", "ep", "etp"), evaluate=_evaluate)
