"""What a stage's layers keep for the backward pass, and what lies beside it while they run forward again.

Every tensor of a layer, what selective recompute leaves of them, or the layer's input alone (Korthikanti 2022, arXiv
2205.05198, section 5). Under ``recompute_interval`` n one input is kept for every n layers, and all of their tensors
are back at once: L/n inputs and n layers, least where n is about the square root of L (Chen 2016, arXiv 1604.06174).
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Ints, Num, per_stage
from costmodel.facts import Facts
from costmodel.table import StageTable
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_SELECTIVE
from costmodel.terms.term import Outputs


def mtp_layers_of_kind(f: Facts, *, moe: bool) -> Num:
    """Layers of multi-token prediction by kind, beside the last stage's axis: they are of the model's last kind."""
    has_moe = f.model.moe_layers > 0
    return per_stage(np.where(has_moe == moe, f.model.mtp_layers * f.model.mtp_depth, 0.0))


def kept_of_layer(o: Outputs, kind: str, recompute: Ints | Num, interval: Num) -> Num:
    """Bytes that a layer of a kind keeps for one micro-batch, its share of an input that several share."""
    selective = np.where(recompute == RECOMPUTE_SELECTIVE, o[f"{kind}_selective_bytes"], o[f"{kind}_saved_bytes"])
    return np.where(recompute == RECOMPUTE_FULL, o["boundary_bytes"] / interval, selective)


def recomputed_layers(stages: StageTable, recompute: Ints) -> tuple[Num, Num]:
    """(dense, MoE) layers of each stage whose forward pass runs again."""
    if stages.recomputed_dense is not None and stages.recomputed_moe is not None:
        return stages.recomputed_dense, stages.recomputed_moe
    full = per_stage(np.where(recompute == RECOMPUTE_FULL, 1.0, 0.0))
    return stages.dense_layers * full, stages.moe_layers * full


def hot_bytes(o: Outputs, stages: StageTable, recompute: Ints) -> Num:
    """What uneven routing adds to the activations of each stage's layers for one micro-batch.

    Layers that run again as a whole keep their inputs alone, which no routing makes larger.
    """
    _, moe_again = recomputed_layers(stages, recompute)
    hot: Num = (stages.moe_layers - moe_again) * per_stage(_hot_of_layer(o, recompute))
    return hot


def kept_hot_of_layer(o: Outputs, recompute: Ints | Num) -> Num:
    """What uneven routing adds to ``kept_of_layer`` of a layer with experts."""
    return np.where(recompute == RECOMPUTE_FULL, 0.0, _hot_of_layer(o, recompute))


def _hot_of_layer(o: Outputs, recompute: Ints | Num) -> Num:
    """The same of a layer that does not run again as a whole."""
    return np.where(recompute == RECOMPUTE_SELECTIVE, o["moe_selective_hot_bytes"], o["moe_saved_hot_bytes"])


def kept_activations(
    f: Facts, o: Outputs, stages: StageTable, recompute: Ints, interval: Num, vpp: Num
) -> tuple[Num, Num, Num]:
    """(bytes of all layers for one micro-batch, of the layers of multi-token prediction, and the workspace) by stage.

    These layers follow the policy, however many of the others run again.
    """
    full, selective = recompute == RECOMPUTE_FULL, recompute == RECOMPUTE_SELECTIVE

    def own(kind: str) -> Num:
        return np.where(selective, o[f"{kind}_selective_bytes"], o[f"{kind}_saved_bytes"])

    def extra(kind: str, again: Num, spared: Num, together: Num) -> Num:
        """What comes back at once: the tensors of the layers between two inputs, or a module of one layer."""
        whole = together * per_stage(o[f"{kind}_saved_bytes"]) - per_stage(o["boundary_bytes"])
        module = per_stage(np.where(selective, o[f"{kind}_back_bytes"], 0.0))
        return np.maximum((again > 0) * whole, (spared > 0) * module)

    dense_again, moe_again = recomputed_layers(stages, recompute)
    dense, moe = stages.dense_layers - dense_again, stages.moe_layers - moe_again
    inputs, together = dense_again + moe_again, np.ones(())
    if (interval > 1).any():
        of_chunk = inputs / per_stage(vpp)
        together = np.clip(of_chunk, 1.0, per_stage(interval))
        inputs = np.ceil(of_chunk / per_stage(interval)) * per_stage(vpp)
    kept = dense * per_stage(own("dense")) + moe * per_stage(own("moe")) + inputs * per_stage(o["boundary_bytes"])
    of_head = stages.has_head * (mtp_layers_of_kind(f, moe=False) + mtp_layers_of_kind(f, moe=True))
    mtp = np.where(full, o["boundary_bytes"], np.where(f.model.moe_layers > 0, own("moe"), own("dense")))
    workspace = np.maximum(extra("dense", dense_again, dense, together), extra("moe", moe_again, moe, together))
    return kept, of_head * per_stage(mtp), workspace
