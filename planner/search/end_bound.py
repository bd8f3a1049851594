"""What comes once a step on the device with the most layers, at least: gradients, parameters, and the optimizer.

Of p devices one has an even share of the layers or more. More of anything on it never makes its step shorter: what it
adds to a pass is no less than what it lets an exchange hide, and an exchange of more bytes takes longer. So the device
takes no less than one with an even share, without the ends of the model, would take.

Where that isn't certain nothing is counted: of exchanges layer by layer the last one, whose size is the mean over kinds
of layers; of those that were measured, which need not grow evenly with their bytes; of an optimizer that runs on hosts.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Num, per_stage
from costmodel.end_of_step import Exchange, bucket_params, exchanges_s, hiding_shares, optimizer_s
from costmodel.facts import Facts
from costmodel.once_a_step import kept_weights_s
from costmodel.sharding import Sharding
from costmodel.table import StageTable
from costmodel.terms.term import Outputs


def least_end_s(
    f: Facts, o: Outputs, sharding: Sharding, layers: Num, *, ahead_s: Num, back_s: Num, offloads: bool
) -> Num:
    """Seconds by row, beyond the passes of all micro-batches.

    Args:
        layers: of the kind that fills most of the model.
        ahead_s, back_s: of so many layers in a forward and a backward pass what exchanges may hide under, at most.
        offloads: whether anything is kept with the hosts.
    """
    stages = _without_ends(f, layers)
    share, share_ahead = hiding_shares(f, sharding)
    bucketed = bucket_params(f, sharding) > 0
    found = np.zeros(len(layers))
    exchanges: tuple[tuple[Exchange, Bools, Num], ...] = (
        ("reduce", ~sharding.reduces_each, share * np.maximum(back_s, 0.0)),
        ("gather", sharding.gathers_once, share_ahead * np.maximum(ahead_s, 0.0)),
    )
    for kind, happens, hides in exchanges:
        seconds, last = (values[:, 0] for values in exchanges_s(f, o, stages, sharding, kind))
        exposed = np.maximum(seconds - hides, np.where(bucketed, last, 0.0))
        measured = (o[f"{kind}_curve"] >= 0) | (o[f"expert_{kind}_curve"] >= 0)
        found = found + np.where(happens & ~measured, exposed, 0.0)
    if (np.maximum(share, share_ahead) > 1.0).any():
        found = np.zeros(len(layers))
    if not offloads:
        found = found + np.broadcast_to(optimizer_s(f, o, stages, sharding.zero_stage), (len(layers), 1))[:, 0]
    return found + np.broadcast_to(kept_weights_s(f, o, stages, sharding), (len(layers), 1))[:, 0]


def _without_ends(f: Facts, layers: Num) -> StageTable:
    """One device in the middle, with so many layers of the kind that fills most of the model."""
    held, none = per_stage(layers), np.zeros((len(layers), 1))
    of_moe = float(f.model.moe_layers) > 0
    return StageTable(
        index=none,
        dense_layers=none if of_moe else held,
        moe_layers=held if of_moe else none,
        has_embedding=none,
        has_head=none,
        work_share=np.ones((1, 1)),
    )
