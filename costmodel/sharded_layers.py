"""What data parallelism adds to the passes of every micro-batch: gathers before a layer, its reduction behind it."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Num
from costmodel.facts import Facts
from costmodel.layers import QUANTISATION, Parts, PassCost, hiding_cost, total
from costmodel.sharding import Sharding
from costmodel.terms.data_parallel import exchanged_s
from costmodel.terms.quantisation import weights_s
from costmodel.terms.term import Outputs
from costmodel.terms.zero_plus import quantised_gather_s, quantised_reduction_s

_LEAST = 1e-9  # divides where nothing overlaps, so that nothing is hidden


def with_sharded_parameters(
    f: Facts, o: Outputs, forward: PassCost, backward: PassCost, sharding: Sharding
) -> tuple[PassCost, PassCost]:
    """Add what is exchanged for every micro-batch, less what the layer's own compute hides.

    ZeRO-3 gathers a layer's parameters before its forward and again before its backward pass; gradients that are
    reduced after every micro-batch are so behind the layer's backward pass (Rajbhandari 2019, section 7; PyTorch FSDP's
    schedule). Without prefetch a layer waits for its own parameters.
    """
    if not sharding.works_by_layer:
        return forward, backward
    never = np.zeros_like(sharding.gathers_ahead)
    none = np.zeros_like(o["dense_layer_params"])
    table = o["table_params"]
    kinds = {
        "dense": (o["dense_layer_params"], none),
        "moe": (o["moe_layer_params"], o["expert_layer_params"]),
        "embedding": (table, none),
        "head": (table, none),
    }
    under, under_back = hiding_cost(forward, o, backward=False), hiding_cost(backward, o, backward=True)
    ahead: dict[str, Parts] = {}
    back: dict[str, Parts] = {}
    exchanges = {kind: _exchanges(f, o, sharding, *kinds[kind]) for kind in ("dense", "moe", "head")}
    exchanges["embedding"] = exchanges["head"]
    for kind, (params, experts) in kinds.items():
        going: Parts = getattr(forward, kind)
        returning: Parts = getattr(backward, kind)
        # The embedding's backward pass needs its gradient only, not the table.
        again = never if kind == "embedding" else sharding.gathers_again
        gather, gather_again, reduction = exchanges[kind]
        hides, hides_back = total(getattr(under, kind)), total(getattr(under_back, kind))
        ahead[kind] = going | {
            "dp_comm": _exposed(f, sharding, np.where(sharding.gathers_ahead, gather, 0.0), np.zeros(()), hides)
        }
        back[kind] = returning | {
            "dp_comm": _exposed(
                f,
                sharding,
                np.where(again, gather_again, 0.0),
                np.where(sharding.reduces_each, reduction, 0.0),
                hides_back,
            )
        }
        for parts, gathers, reduces in (
            (ahead[kind], sharding.gathers_ahead, never),
            (back[kind], sharding.gathers_again, sharding.reduces_each),
        ):
            casts = _casts(f, o, sharding, params, experts, gathers, reduces)
            if QUANTISATION in parts:  # what is gathered is quantised for the products every time
                casts = casts + parts[QUANTISATION] + np.where(gathers, weights_s(f, params + experts), 0.0)
            if QUANTISATION in parts or casts.any():
                parts[QUANTISATION] = casts
    return PassCost(**ahead, mtp=forward.mtp), PassCost(**back, mtp=backward.mtp)


def hiding_gathers(
    f: Facts, o: Outputs, forward: PassCost, backward: PassCost, sharding: Sharding
) -> tuple[PassCost, PassCost]:
    """Compute of both passes that hides gathers of every layer already, where gradients are reduced once a step.

    What comes at the end of the step can't hide under it once more.
    """
    once = ~sharding.reduces_each
    share = np.maximum(np.where(sharding.zero_stage >= 2, f.cal.fsdp_overlap_share, f.cal.dp_overlap_share), _LEAST)
    none, table = np.zeros_like(o["dense_layer_params"]), o["table_params"]
    kinds = {
        "dense": (o["dense_layer_params"], none),
        "moe": (o["moe_layer_params"], o["expert_layer_params"]),
        "embedding": (table, none),
        "head": (table, none),
    }
    found: list[PassCost] = []
    for cost, which, gathers in (
        (forward, "gather", sharding.gathers_ahead),
        (backward, "gather_again" if sharding.second_copy.any() else "gather", sharding.gathers_again),
    ):
        hidden: dict[str, Parts] = {}
        for kind, (params, experts) in kinds.items():
            exchanged = _exchanged(f, o, which, params, experts, sharding.parameter_bytes)
            waited = getattr(cost, kind)["dp_comm"]
            used = np.where(gathers & once, np.maximum(exchanged - waited, 0.0) / share, 0.0)
            hidden[kind] = {"dp_comm": used}
        if cost is backward:  # needs no table for the embedding's gradient
            hidden["embedding"] = {"dp_comm": np.zeros_like(used)}
        found.append(PassCost(**hidden, mtp={}))
    return found[0], found[1]


def _exchanges(f: Facts, o: Outputs, sharding: Sharding, params: Num, experts: Num) -> tuple[Num, Num, Num]:
    """Seconds of gathering a layer, of gathering it once more, and of reducing its gradients."""
    gather = gather_again = _exchanged(f, o, "gather", params, experts, sharding.parameter_bytes)
    if sharding.second_copy.any():
        gather_again = _exchanged(f, o, "gather_again", params, experts, sharding.parameter_bytes)
    return gather, gather_again, _exchanged(f, o, "reduce", params, experts, sharding.gradient_bytes)


def _exchanged(f: Facts, o: Outputs, kind: str, params: Num, experts: Num, wire_bytes: Num) -> Num:
    """Seconds of one exchange of a layer: its dense parameters, and its experts over their own mesh."""
    seconds = exchanged_s(f, o, kind, params * wire_bytes)
    if not experts.any():
        return seconds
    return seconds + exchanged_s(f, o, f"expert_{kind}", experts * wire_bytes)


def _exposed(f: Facts, sharding: Sharding, gather: Num, reduction: Num, compute: Num) -> Num:
    """What neither a layer's own compute hides nor, for gathers that nobody starts ahead, any other's."""
    share = np.where(sharding.zero_stage >= 2, f.cal.fsdp_overlap_share, f.cal.dp_overlap_share)
    waited = np.where(sharding.prefetch > 0, 0.0, gather)
    beside: Num = np.maximum(gather + reduction - waited - share * np.maximum(compute, 0.0), 0.0)
    return waited + beside


def _casts(f: Facts, o: Outputs, sharding: Sharding, params: Num, experts: Num, gathers: Bools, reduces: Bools) -> Num:
    """Seconds of the passes around quantised exchanges."""
    if not (sharding.quantised_gathers.any() or sharding.quantised_reduction.any()):
        return np.zeros(())
    gathered = np.where(sharding.quantised_gathers & gathers, quantised_gather_s(f, params + experts), 0.0)
    reduced = quantised_reduction_s(f, params, o["shards_in_domain"])
    reduced = reduced + quantised_reduction_s(f, experts, o["expert_shards_in_domain"])
    return gathered + np.where(sharding.quantised_reduction & reduces, reduced, 0.0)
