"""Expert parallelism: what dispatch and combine of one MoE layer send and hold, by dispatcher.

Of the n = T/t tokens of h features that a device starts from, each goes to k of the experts on N = ep ranks:

| dispatcher | crosses to other units of U, of l ranks each | inside a unit | buffers, n h |
|---|---|---|---|
| deduplicated | one copy to each unit that it reaches (``remote_units``) | R (l - 1)/l, R ranks reached | 4 k |
| all_to_all | k (1 - 1/U): every copy | k (l - 1)/l | 4 k |
| all_gather | all tokens to all ranks: an all-gather of N etp n, and a reduce-scatter back | the same | 2 etp (k + N) |

The copies of ``deduplicated`` and ``all_to_all`` are as many as the fullest device has: the mean times
*expert_imbalance*, or the capacity. DeepEP and HybridEP send a token once to each node (deepseek-ai/DeepEP, README:
asymmetric-domain forwarding); NCCL's all-to-all takes every copy on its own way; Megatron's allgather dispatcher
gathers over tp x ep of the expert mesh (megatron/core/transformer/moe/token_dispatcher.py).
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num, num
from costmodel.collectives import all_gather, all_to_all, reduce_scatter
from costmodel.facts import Facts
from costmodel.spec.options import MOE_DISPATCHERS
from costmodel.terms import groups, shapes
from costmodel.terms.term import Axes, Outputs, Term

DEDUPLICATED, ALL_TO_ALL, ALL_GATHER = (
    MOE_DISPATCHERS.index(word) for word in ("deduplicated", "all_to_all", "all_gather")
)


def gathers_tokens(x: Axes) -> Num:
    """Where all tokens of the expert-parallel group come to every rank of it."""
    return np.asarray((x.moe_dispatcher == ALL_GATHER) & (x.ep > 1.0))


def _evaluate(f: Facts, x: Axes) -> Outputs:
    """Two exchanges of the forward pass, and the bytes that both hold; the backward pass does the same."""
    own = shapes.tokens(f, x) / x.tp * f.model.expert_hidden * f.work.activation_bytes
    load, ranks = shapes.expert_load(f, x), x.ep * x.etp
    sent = all_to_all(
        f,
        *groups.experts(x),
        f.model.top_k,
        f.model.group_limit,
        f.model.groups,
        once_per_unit=x.moe_dispatcher != ALL_TO_ALL,
    ).seconds(own * load)
    group = (f, ranks, np.ones_like(ranks))
    gathered = all_gather(*group).seconds(own * ranks) + reduce_scatter(*group).seconds(own * ranks)
    gathers = gathers_tokens(x)
    exchange = np.where(gathers, gathered, 2.0 * sent) * f.model.mlp_share
    copies = f.model.top_k * load
    # A send and a receive buffer of all copies for either exchange; or the gathered tokens before and after, and the
    # copies in the order of the experts.
    of_copies = np.where(gathers, 2.0 * x.etp, 4.0) * copies
    of_all = np.where(gathers, 2.0 * ranks, 0.0)
    layers = f.model.moe_layers > 0
    return {
        "ep_exchange_s": np.where(x.ep > 1.0, exchange, 0.0),
        "ep_leaves_domain": num(ranks > f.hardware.tier_devices[0]),
        "dispatch_bytes": layers * (of_copies + of_all) * own,
        # What uneven routing adds to them.
        "dispatch_hot_bytes": layers * of_copies * own * shapes.uneven_share(f, x),
    }


EXPERT_PARALLEL = Term(
    name="expert_parallel",
    axes=("tp", "cp", "ep", "etp", "micro_batch_size", "moe_dispatcher", "moe_capacity_factor"),
    gives=("ep_exchange_s", "ep_leaves_domain", "dispatch_bytes", "dispatch_hot_bytes"),
    evaluate=_evaluate,
)
