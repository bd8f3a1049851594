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
from costmodel.terms.data_parallel import exchanged_s
from costmodel.terms.quantisation import weights_s
from costmodel.terms.term import Outputs

Parts = dict[str, Num]

COMMUNICATION = "_comm"
"""Ending of the names of all parts that are communication."""

QUANTISATION = "quantisation"
"""The part of a pass that casts inputs of products to a narrower format."""

POINTWISE_BACKWARD = 2.0
"""An elementwise pass reads its saved input and a gradient and writes one: about twice the forward's traffic."""
RING_BACKWARD = 2.0
"""Keys, values and their gradients go round in the backward pass: twice the forward's bytes."""


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


def hiding_cost(cost: PassCost, o: Outputs, *, backward: bool) -> PassCost:
    """The same pass as data-parallel traffic sees it: the seconds that it can hide under.

    Compute hides it, less the compute that already hides other traffic on the same links. Exposed tensor and context
    parallelism hide it too where they stay in the scale-up domain and it leaves.
    """
    tp_apart = o["tp_can_overlap"] * o["dp_leaves_domain"]
    cp_apart = (1.0 - o["cp_leaves_domain"]) * o["dp_leaves_domain"]
    core = o["attention_core_backward_s"] if backward else o["attention_core_s"]
    ring_hidden = np.minimum(o["cp_hideable_s"] * (RING_BACKWARD if backward else 1.0), core)
    sent = {"dense": 2.0 * o["tp_block_s"], "moe": o["tp_block_s"] + o["tp_expert_s"]}
    kinds: dict[str, Parts] = {}
    for field in fields(cost):
        parts: Parts = getattr(cost, field.name)
        left = {name: seconds for name, seconds in parts.items() if not name.endswith(COMMUNICATION)}
        if field.name in sent:
            hidden = sent[field.name] - parts["tp_comm"]
            left["tp_comm"] = tp_apart * parts["tp_comm"] - (1.0 - tp_apart) * hidden
            left["cp_comm"] = cp_apart * parts["cp_comm"] - (1.0 - cp_apart) * ring_hidden
        kinds[field.name] = left
    return PassCost(**kinds)


def _tensor_exposed(f: Facts, o: Outputs, comm: Num, compute: Num) -> Num:
    """What of a tensor-parallel exchange is not hidden under the products beside it.

    At least the share that no framework has hidden, all of it where the exchange leaves the switched scale-up domain,
    and what is longer than the products in any case.
    """
    share = np.where(o["tp_can_overlap"] > 0, f.cal.tp_exposed_share, 1.0)
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
    return PassCost(
        dense=attention
        | {"mlp": o["dense_mlp_s"] + o["dense_activation_s"], "tp_comm": tp + tp_mlp}
        | _quantised(o, "quantise_dense_s"),
        moe=attention
        | {
            "experts": o["expert_mlp_s"] + o["expert_activation_s"],
            "tp_comm": tp + tp_experts,
            "ep_comm": o["ep_exchange_s"] * cal.ep_exposed_share,
        }
        | _quantised(o, "quantise_moe_s"),
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
    again = f.work.recompute_norms * o["norm_s"] + f.work.recompute_attention * o["attention_core_s"]
    again = again + f.work.recompute_latent * o["latent_up_s"]
    again_moe = again + f.work.recompute_activation * o["expert_activation_s"]

    def recomputed(whole: Parts, cheap: Num) -> Num:
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
        dense=dense | {"recompute": recomputed(forward.dense, again)} | _host_bound(o, forward.dense, dense),
        moe=moe | {"recompute": recomputed(forward.moe, again_moe)} | _host_bound(o, forward.moe, moe),
        embedding={"embedding": o["embedding_s"]},
        head={"head": o["head_backward_s"]},
        mtp={"mtp": o["mtp_projection_s"] * BACKWARD_OVER_FORWARD},
    )


def _quantised(o: Outputs, passes: str) -> Parts:
    """The passes that cast inputs of products, where a recipe has such."""
    return {QUANTISATION: o[passes]} if passes in o else {}


def _host_bound(o: Outputs, forward: Parts, backward: Parts) -> Parts:
    """What the device waits for launches in one layer, where its framework is known to be that slow."""
    floor = o["host_layer_s"]
    return {"host": np.maximum(floor - total(forward) - total(backward), 0.0)} if (floor > 0).any() else {}


def with_sharded_parameters(
    f: Facts, o: Outputs, forward: PassCost, backward: PassCost, zero_stage: Num
) -> tuple[PassCost, PassCost]:
    """Add what ZeRO-2/3 communicate for every micro-batch, less what the layer's own compute hides.

    ZeRO-3 gathers a layer's parameters before its forward and again before its backward pass; both reduce its gradients
    after the backward pass of every micro-batch (Rajbhandari 2019, section 7; PyTorch FSDP's schedule).
    """
    sharded_grads, sharded_params = zero_stage >= 2, zero_stage >= 3

    def exposed(params: Num, expert_params: Num, compute: Num, gather: bool, reduce: bool) -> Num:
        comm = np.zeros_like(compute)
        if gather:
            wire_bytes = f.cal.parameter_wire_bytes * f.work.parameter_wire
            gathered = exchanged_s(f, o, "gather", params * wire_bytes)
            gathered = gathered + exchanged_s(f, o, "expert_gather", expert_params * wire_bytes)
            comm = comm + np.where(sharded_params, gathered, 0.0)
        if reduce:
            wire_bytes = f.cal.gradient_wire_bytes * f.work.gradient_wire
            reduced = exchanged_s(f, o, "reduce", params * wire_bytes)
            reduced = reduced + exchanged_s(f, o, "expert_reduce", expert_params * wire_bytes)
            comm = comm + np.where(sharded_grads, reduced, 0.0)
        return np.maximum(comm - f.cal.fsdp_overlap_share * np.maximum(compute, 0.0), 0.0)

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
    for kind, (params, experts) in kinds.items():
        going: Parts = getattr(forward, kind)
        returning: Parts = getattr(backward, kind)
        # The embedding's backward pass needs its gradient only, not the table.
        again = kind != "embedding"
        hides, hides_back = total(getattr(under, kind)), total(getattr(under_back, kind))
        ahead[kind] = going | {"dp_comm": exposed(params, experts, hides, gather=True, reduce=False)}
        back[kind] = returning | {"dp_comm": exposed(params, experts, hides_back, gather=again, reduce=True)}
        if QUANTISATION in going:  # what is gathered is quantised every time
            weights = np.where(sharded_params, weights_s(f, params + experts), 0.0)
            ahead[kind] = ahead[kind] | {QUANTISATION: going[QUANTISATION] + weights}
            back[kind] = back[kind] | {QUANTISATION: returning[QUANTISATION] + weights}
    return PassCost(**ahead, mtp=forward.mtp), PassCost(**back, mtp=backward.mtp)
