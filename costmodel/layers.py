"""From term outputs to what one layer, and each end of the model, costs in the forward and the backward pass.

Named parts stay apart here: the ranking form adds them up per layer, the breakdown keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.kernels import BACKWARD_OVER_FORWARD
from costmodel.terms.activations import RECOMPUTE_FULL, RECOMPUTE_SELECTIVE
from costmodel.terms.term import Outputs

Parts = dict[str, Num]

COMMUNICATION = "_comm"
"""Ending of the names of all parts that are communication."""

OFFLOADED = "offload_comm"
"""The part of a pass that waits for the hosts' links."""

QUANTISATION = "quantisation"
"""The part of a pass that casts inputs of products to a narrower format."""

POINTWISE_BACKWARD = 2.0
"""An elementwise pass reads its saved input and a gradient and writes one: about twice the forward's traffic."""
RING_BACKWARD = 2.0
"""Keys, values and their gradients go round in the backward pass: twice the forward's bytes."""
_FORWARD_LAUNCHES = 1.0 / (1.0 + BACKWARD_OVER_FORWARD)
"""Share of a layer's launches that its forward pass makes."""


@dataclass(frozen=True, kw_only=True)
class PassCost:
    """Seconds by part, for one micro-batch: of one dense layer, one MoE layer, and what first and last stage add.

    ``mtp`` is what one multi-token-prediction layer needs beside a layer and a head.
    """

    dense: Parts
    moe: Parts
    embedding: Parts
    head: Parts
    mtp: Parts


def total(parts: Mapping[str, Num]) -> Num:
    """The sum of all parts."""
    return sum(parts.values(), start=np.zeros(()))


def hiding_cost(cost: PassCost, o: Outputs, *, backward: bool, traffic: str = "dp") -> PassCost:
    """The same pass as data-parallel traffic (or of experts, ``ep``) sees it: the seconds that it can hide under.

    Compute hides it, less the compute that already hides other traffic on the same links. Exposed tensor, context and
    expert parallelism hide it too where they stay in the scale-up domain and it leaves; so do waits for the hosts.
    """
    leaves = o[f"{traffic}_leaves_domain"]
    tp_apart = o["tp_in_domain"] * leaves
    cp_apart = (1.0 - o["cp_leaves_domain"]) * leaves
    core = o["attention_core_backward_s"] if backward else o["attention_core_s"]
    ring_hidden = np.minimum(o["cp_hideable_s"] * (RING_BACKWARD if backward else 1.0), core)
    sent = {"dense": 2.0 * o["tp_block_s"], "moe": o["tp_block_s"] + o["tp_expert_s"]}
    kinds: dict[str, Parts] = {}
    for field in fields(cost):
        parts: Parts = getattr(cost, field.name)
        left = {name: time for name, time in parts.items() if name == OFFLOADED or not name.endswith(COMMUNICATION)}
        if field.name in sent:
            hidden = sent[field.name] - parts["tp_comm"]
            left["tp_comm"] = tp_apart * parts["tp_comm"] - (1.0 - tp_apart) * hidden
            left["cp_comm"] = cp_apart * parts["cp_comm"] - (1.0 - cp_apart) * ring_hidden
        if field.name == "moe":
            # What overlaps with another micro-batch fills the links while this much is computed.
            ep_apart = (1.0 - o["ep_leaves_domain"]) * leaves
            hidden = np.maximum(o["ep_exchange_s"] - parts["ep_comm"], 0.0)
            left["ep_comm"] = ep_apart * parts["ep_comm"] - (1.0 - ep_apart) * hidden
        kinds[field.name] = left
    return PassCost(**kinds)


def _tensor_exposed(f: Facts, o: Outputs, comm: Num, compute: Num) -> Num:
    """What of a tensor-parallel exchange is not hidden under the products beside it.

    At least the share that no framework has hidden, all of it where the exchange leaves the switched scale-up domain or
    the plan has no overlap, and what is longer than the products in any case.
    """
    alone = np.where(o["tp_in_domain"] > 0, np.maximum(f.cal.tp_exposed_share, 1.0), 1.0)
    share = np.where(o["tp_can_overlap"] > 0, f.cal.tp_exposed_share, alone)
    return np.maximum(comm * share, comm - compute)


def model_body_s(f: Facts, cost: PassCost) -> Num:
    """Seconds of one micro-batch in all decoder layers, whatever stage they lie on."""
    return f.model.dense_layers * total(cost.dense) + f.model.moe_layers * total(cost.moe)


def model_ends_s(f: Facts, cost: PassCost) -> Num:
    """Seconds of one micro-batch in embedding, head, and multi-token prediction, which lives with the head."""
    head, last = total(cost.head), np.where(f.model.moe_layers > 0, total(cost.moe), total(cost.dense))
    return total(cost.embedding) + head + f.model.mtp_layers * (f.model.mtp_depth * last + head + total(cost.mtp))


def weights_cost(o: Outputs) -> PassCost:
    """What of the backward pass makes the gradients of weights: half of its products, and nothing but products.

    Schedules that split the backward pass put it off (Qi 2023, arXiv 2401.10241, section 2).
    """
    return PassCost(
        dense={"weights": o["attention_linear_s"] + o["dense_mlp_s"]},
        moe={"weights": o["attention_linear_s"] + o["expert_mlp_s"]},
        embedding={},
        head={"weights": o["head_backward_s"] / BACKWARD_OVER_FORWARD},
        mtp={"weights": o["mtp_projection_s"]},
    )


def forward_cost(f: Facts, o: Outputs) -> PassCost:
    """Forward pass: compute, and the communication that stays exposed."""
    cal = f.cal
    tp = _tensor_exposed(f, o, o["tp_block_s"], o["attention_linear_s"])
    tp_mlp = _tensor_exposed(f, o, o["tp_block_s"], o["dense_mlp_s"])
    tp_experts = _tensor_exposed(f, o, o["tp_expert_s"], o["expert_mlp_s"])
    cp = o["cp_exposed_s"] * cal.cp_exposed_share + np.maximum(o["cp_hideable_s"] - o["attention_core_s"], 0.0)
    cp = cp + o["cp_merge_s"]
    attention: Parts = {
        "attention": o["attention_linear_s"] + o["attention_core_s"],
        "norms": o["norm_s"] + o["residual_s"],
        "cp_comm": cp,
    }
    dense: Parts = attention | {"mlp": o["dense_mlp_s"] + o["dense_activation_s"], "tp_comm": tp + tp_mlp}
    moe: Parts = attention | {
        "experts": o["expert_mlp_s"] + o["expert_activation_s"],
        "tp_comm": tp + tp_experts,
        "ep_comm": o["ep_exchange_s"] * cal.ep_exposed_share,
    }
    return PassCost(
        dense=_launched(o, dense | _quantised(o, "quantise_dense_s"), _FORWARD_LAUNCHES),
        moe=_launched(o, moe | _quantised(o, "quantise_moe_s"), _FORWARD_LAUNCHES),
        embedding={"embedding": o["embedding_s"]},
        # Softmax and cross entropy run in the forward pass and leave the gradient of the logits behind.
        head={"head": o["head_s"] + o["loss_s"]},
        mtp={"mtp": o["mtp_projection_s"]},
    )


def backward_cost(f: Facts, o: Outputs, recompute: Num) -> PassCost:
    """Backward pass, with what the recompute policy runs again."""
    cal = f.cal
    forward = forward_cost(f, o)
    tp = _tensor_exposed(f, o, o["tp_block_s"], o["attention_linear_s"] * BACKWARD_OVER_FORWARD)
    tp_mlp = _tensor_exposed(f, o, o["tp_block_s"], o["dense_mlp_s"] * BACKWARD_OVER_FORWARD)
    tp_experts = _tensor_exposed(f, o, o["tp_expert_s"], o["expert_mlp_s"] * BACKWARD_OVER_FORWARD)
    cp = o["cp_exposed_backward_s"] * cal.cp_exposed_share
    cp = cp + np.maximum(RING_BACKWARD * o["cp_hideable_s"] - o["attention_core_backward_s"], 0.0) + o["cp_merge_s"]
    attention: Parts = {
        "attention": o["attention_linear_s"] * BACKWARD_OVER_FORWARD + o["attention_core_backward_s"],
        "norms": (o["norm_s"] + o["residual_s"]) * POINTWISE_BACKWARD,
        "cp_comm": cp,
    }
    full, selective = recompute == RECOMPUTE_FULL, recompute == RECOMPUTE_SELECTIVE
    again = o["again_layernorm"] * o["norm_s"] + o["again_core_attn"] * o["attention_core_s"]
    again = again + o["again_mla_up_proj"] * o["latent_up_s"]
    moe_again, rest_again = _block_again(f, o, forward.moe, "experts", o["again_moe"]), 1.0 - o["again_moe"]
    again_moe = again + moe_again + rest_again * o["again_moe_act"] * o["expert_activation_s"]
    again_moe = again_moe + rest_again * o["again_shared_experts"] * o["shared_mlp_s"]
    again_dense = again + _block_again(f, o, forward.dense, "mlp", o["again_mlp"])

    def recomputed(whole: Parts, cheap: Num) -> Num:
        whole = {name: seconds for name, seconds in whole.items() if name != "host"}
        return np.where(full, total(whole), np.where(selective, cheap, 0.0))

    mlp = o["dense_mlp_s"] * BACKWARD_OVER_FORWARD + o["dense_activation_s"] * POINTWISE_BACKWARD
    experts = o["expert_mlp_s"] * BACKWARD_OVER_FORWARD + o["expert_activation_s"] * POINTWISE_BACKWARD
    dense: Parts = attention | {"mlp": mlp, "tp_comm": tp + tp_mlp} | _quantised(o, "quantise_dense_backward_s")
    moe: Parts = attention | {
        "experts": experts,
        "tp_comm": tp + tp_experts,
        "ep_comm": o["ep_exchange_s"] * cal.ep_exposed_share,
    }
    moe = moe | _quantised(o, "quantise_moe_backward_s")
    return PassCost(
        dense=_launched(o, dense, 1.0 - _FORWARD_LAUNCHES) | {"recompute": recomputed(forward.dense, again_dense)},
        moe=_launched(o, moe, 1.0 - _FORWARD_LAUNCHES) | {"recompute": recomputed(forward.moe, again_moe)},
        embedding={"embedding": o["embedding_s"]},
        head={"head": o["head_backward_s"]},
        mtp={"mtp": o["mtp_projection_s"] * BACKWARD_OVER_FORWARD},
    )


def _block_again(f: Facts, o: Outputs, forward: Parts, name: str, named: Num) -> Num:
    """Seconds to run the feed-forward block of a layer again, its exchanges among them, where it is named."""
    of_attention = _tensor_exposed(f, o, o["tp_block_s"], o["attention_linear_s"])
    exchanges = forward["tp_comm"] - of_attention + forward.get("ep_comm", np.zeros(()))
    return named * (forward[name] + exchanges)


def _quantised(o: Outputs, passes: str) -> Parts:
    """The passes that cast inputs of products, where a recipe has such."""
    return {QUANTISATION: o[passes]} if passes in o else {}


def _launched(o: Outputs, parts: Parts, share: float) -> Parts:
    """One pass through a layer with what the device waits for launches, where its framework is known to be slow."""
    floor = share * o["host_layer_s"]
    return parts | {"host": np.maximum(floor - total(parts), 0.0)} if (floor > 0).any() else parts
