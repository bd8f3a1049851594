"""What a stage's device does once a step beside the reduction and the elementwise optimizer: seconds per stage."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num, num, per_stage
from costmodel.facts import Facts
from costmodel.memory import layers_of_kinds
from costmodel.sharding import Sharding
from costmodel.table import StageTable
from costmodel.terms.data_parallel import exchanged_s
from costmodel.terms.matrix_optimizer import MOMENTUM_WIRE_BYTES
from costmodel.terms.quantisation import weights_s
from costmodel.terms.state import shard_share
from costmodel.terms.term import Outputs


def whole_matrices_s(f: Facts, o: Outputs, stages: StageTable, zero_stage: Num) -> Num:
    """What an optimizer takes that works on whole matrices: gathering their momentum, and its products.

    A rank works on the matrices that it owns, at least on one where what it owns is less (Liu 2025, arXiv 2502.16982,
    section 2.3: what the update needs is gathered over data parallelism).
    """
    dense, moe = layers_of_kinds(f, stages)

    def seconds(shards: Num, work_s: Num, largest_s: Num, params: Num, prefix: str) -> Num:
        sharded = per_stage((zero_stage >= 1) & (shards > 1)) > 0
        own = np.maximum(work_s * per_stage(shard_share(zero_stage, 1, shards)), per_stage(largest_s) * (work_s > 0))
        size = params * per_stage(MOMENTUM_WIRE_BYTES * (f.work.newton_schulz > 0))
        return np.where(sharded, own + exchanged_s(f, o, f"{prefix}gather", size), work_s)

    mixing = dense * per_stage(o["matrices_dense_s"]) + moe * per_stage(o["matrices_moe_s"])
    params = dense * per_stage(o["dense_layer_params"]) + moe * per_stage(o["moe_layer_params"])
    whole = seconds(o["shards"], mixing, o["largest_matrix_s"], params, "")
    experts, expert_params = moe * per_stage(o["matrices_experts_s"]), moe * per_stage(o["expert_layer_params"])
    return whole + seconds(o["expert_shards"], experts, o["largest_expert_matrix_s"], expert_params, "expert_")


def kept_weights_s(f: Facts, o: Outputs, stages: StageTable, sharding: Sharding) -> Num:
    """Weights that stay on the device are quantised once a step; what a micro-batch gathers, whenever it is."""
    if not (f.work.quantise_weight_bytes > 0).any():
        return num(0.0)
    dense, moe = layers_of_kinds(f, stages)
    params = dense * per_stage(o["dense_layer_params"])
    params = params + moe * per_stage(o["moe_layer_params"] + o["expert_layer_params"])
    return per_stage(~sharding.gathers_ahead) * params * per_stage(weights_s(f, num(1.0)))
