"""What lives in host memory: what leaves the device for it, and the seconds of moving it and working on it there.

``optimizer`` keeps the optimizer's state with the hosts, whose processors run its step (ZeRO-Offload, Ren 2021, arXiv
2101.06840); where a framework lets them follow, gradients leave as they are made. ``parameters`` keeps parameters,
gradients and optimizer there; each rank fetches its own shard of a layer before it is gathered (ZeRO-Infinity,
Rajbhandari 2021, arXiv 2104.07857, section 5.1.1; PyTorch FSDP's CPUOffloadPolicy). ``activations`` moves what layers
keep for the backward pass, hot experts included, but for the layer at work and the one on its way.

Transfers run beside compute: ``host_overlap_share`` of a pass hides them. The hosts' step takes the longest of its own
traffic in host memory, of gradients on their way down and of parameters on their way up; what does not overlap adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Bools, Num, num, per_stage
from costmodel.facts import Facts
from costmodel.layers import OFFLOADED, Parts, PassCost, total
from costmodel.memory import hot_buffer_bytes, optimizer_step_bytes, owned_params, visiting_bytes
from costmodel.saved import kept_hot_of_layer, kept_of_layer
from costmodel.sharding import Sharding
from costmodel.spec.options import OFFLOADS
from costmodel.table import PlanTable, StageTable
from costmodel.terms.term import Outputs

_OPTIMIZER, _ACTIVATIONS, _PARAMETERS = (OFFLOADS.index(name) for name in ("optimizer", "activations", "parameters"))
_LAYERS_ON_DEVICE = 2.0
"""Layers whose activations a device holds at a time: one at work, one on its way."""


@dataclass(frozen=True, kw_only=True)
class Offload:
    """Which tensors of each plan live in host memory.

    Attributes:
        host_step: whether the hosts' processors run the optimizer's step; else its state visits the device for it.
    """

    optimizer: Bools
    gradients: Bools
    parameters: Bools
    activations: Bools
    host_step: Bools

    @classmethod
    def of(cls, f: Facts, table: PlanTable, sharding: Sharding) -> Offload | None:
        """What each plan of a table keeps with its hosts; None where no plan does.

        Gradients follow only where a rank keeps its share of them: whole ones are summed up on the device.
        """
        kind = table["offload"]
        if not kind.any():
            return None
        parameters, alone = kind == _PARAMETERS, f.work.offloads_parameters_alone > 0
        optimizer = (kind == _OPTIMIZER) | (parameters & ~alone)
        follow = f.work.gradients_follow_optimizer > 0
        return cls(
            optimizer=optimizer,
            gradients=((optimizer & follow) | (parameters & ~alone)) & sharding.cuts_gradients,
            parameters=parameters,
            activations=kind == _ACTIVATIONS,
            host_step=optimizer & (f.work.host_runs_optimizer > 0),
        )


def link_s(f: Facts, size_bytes: Num) -> Num:
    """Seconds to move bytes between every device and its host at once: over its link, and through the hosts' memory."""
    link = f.hardware.host_bandwidth * f.cal.host_link_efficiency
    return size_bytes / np.minimum(link, _memory_share(f))


def _memory_share(f: Facts) -> Num:
    """Bytes/s of a node's memory for each of its devices."""
    return f.cal.host_memory_bandwidth / f.hardware.devices_per_node


def with_offload(
    f: Facts,
    o: Outputs,
    passes: tuple[PassCost, PassCost],
    offload: Offload | None,
    sharding: Sharding,
    recompute: Num,
    interval: Num,
) -> tuple[PassCost, PassCost]:
    """Add what the passes of every micro-batch wait for the hosts."""
    if offload is None:
        return passes
    forward, backward = passes
    activations, parameters = num(offload.activations), num(offload.parameters)
    gradients = num(offload.gradients & sharding.reduces_each)
    none = np.zeros_like(o["dense_layer_params"])
    kinds = {
        "dense": (o["dense_layer_params"], none, kept_of_layer(o, "dense", recompute, interval)),
        "moe": (o["moe_layer_params"], o["expert_layer_params"], kept_of_layer(o, "moe", recompute, interval)),
        "embedding": (o["table_params"], none, none),
        "head": (o["table_params"], none, none),
    }
    ahead: dict[str, Parts] = {}
    back: dict[str, Parts] = {}
    for kind, (dense, experts, kept) in kinds.items():
        own = _shard(o, sharding.cuts_parameters, dense, experts)
        made = _shard(o, sharding.cuts_gradients, dense, experts)
        fetched = parameters * own * f.work.kept_param_bytes
        again = np.where(sharding.keeps_whole | (kind == "embedding"), 0.0, fetched)
        down = gradients * made * f.work.gradient_bytes
        going: Parts = getattr(forward, kind)
        returning: Parts = getattr(backward, kind)
        # Up and down have a link each: what is fetched for a pass and what leaves behind it run beside each other.
        ahead[kind] = going | {OFFLOADED: _exposed(f, np.maximum(activations * kept, fetched), going)}
        back[kind] = returning | {OFFLOADED: _exposed(f, np.maximum(activations * kept + again, down), returning)}
    return PassCost(**ahead, mtp=forward.mtp), PassCost(**back, mtp=backward.mtp)


def _shard(o: Outputs, cut: Bools, dense: Num, experts: Num) -> Num:
    """Parameters of a layer that one rank moves: its share where they are cut, else all."""
    return np.where(cut, dense / o["shards"] + experts / o["expert_shards"], dense + experts)


def _exposed(f: Facts, size_bytes: Num, beside: Parts) -> Num:
    """Seconds of a transfer that the pass beside it does not hide."""
    hidden = f.cal.host_overlap_share * total(beside)
    return np.where(size_bytes > 0, np.maximum(link_s(f, size_bytes) - hidden, 0.0), 0.0)


def host_step_s(
    f: Facts, o: Outputs, stages: StageTable, sharding: Sharding, offload: Offload, on_device: Num
) -> tuple[Num, Num]:
    """(seconds of the optimizer's own pass, seconds that it waits for transfers) per stage.

    Args:
        on_device: seconds of the pass where a device runs it.
    """
    owned = owned_params(f, o, stages, sharding.zero_stage)
    traffic = f.cal.optimizer_traffic_bytes * f.work.optimizer_traffic
    step = np.where(per_stage(offload.host_step) > 0, owned * per_stage(traffic / _memory_share(f)), on_device)
    # Gradients that went down after every micro-batch are there; parameters that live there need not go up.
    gone = offload.gradients & sharding.reduces_each
    down = np.where(offload.host_step, np.where(gone, 0.0, f.work.gradient_bytes), f.work.optimizer_bytes)
    up = np.where(offload.host_step, np.where(offload.parameters, 0.0, f.work.param_bytes), f.work.optimizer_bytes)
    moved = [owned * per_stage(link_s(f, size * offload.optimizer)) for size in (down, up)]
    longest = np.maximum(step, np.maximum(*moved))
    apart = per_stage(1.0 - f.cal.host_overlap_share) * (step + moved[0] + moved[1] - longest)
    return step, longest - step + apart


def _staying(o: Outputs, stages: StageTable, kept: tuple[Num, Num], recompute: Num, interval: Num) -> tuple[Num, Num]:
    """(without hot experts, what these add) of the layers that a device holds while the others are with the host.

    Args:
        kept: the same of all layers.
    """
    dense, moe = (kept_of_layer(o, kind, recompute, interval) for kind in ("dense", "moe"))
    dense, moe = per_stage(dense) * (stages.dense_layers > 0), per_stage(moe) * (stages.moe_layers > 0)
    hot = np.where(moe >= dense, per_stage(kept_hot_of_layer(o, recompute)) * (stages.moe_layers > 0), 0.0)
    return (
        np.minimum(kept[0], _LAYERS_ON_DEVICE * (np.maximum(dense, moe) - hot)),
        np.minimum(kept[1], _LAYERS_ON_DEVICE * hot),
    )


def onto_hosts(
    f: Facts,
    o: Outputs,
    stages: StageTable,
    terms: Mapping[str, Num],
    offload: Offload,
    *,
    zero_stage: Num,
    prefetch: Num,
    recompute: Num,
    interval: Num,
    overlaps_experts: Bools,
) -> tuple[dict[str, Num], Num]:
    """(what stays on each stage's device by term, bytes that each device keeps with its host).

    Args:
        terms: by term, as if nothing were offloaded.
    """
    left = dict(terms)
    host = np.zeros_like(terms["activations"])
    for name, gone in (
        ("parameters", offload.parameters),
        ("gradients", offload.gradients),
        ("optimizer", offload.optimizer),
    ):
        away = np.where(per_stage(gone) > 0, terms[name], 0.0)
        left[name], host = terms[name] - away, host + away
    # Parameters that live there visit the device as gathered ones do, cut or not.
    visiting = per_stage(offload.parameters) * visiting_bytes(f, o, stages, prefetch)
    left["gathered_parameters"] = np.maximum(terms["gathered_parameters"], visiting)
    hot_buffers = hot_buffer_bytes(o, stages, overlaps_experts)
    kept = terms["activations"], terms["hot_experts"] - hot_buffers
    stays = _staying(o, stages, kept, recompute, interval)
    leave = per_stage(offload.activations) > 0
    even, hot = (np.where(leave, whole - some, 0.0) for whole, some in zip(kept, stays, strict=True))
    left["activations"], left["hot_experts"] = terms["activations"] - even, terms["hot_experts"] - hot
    away = even + hot
    # The hosts work on gradients of their own, where these stay on the device too.
    copied = per_stage(offload.host_step & ~offload.gradients) > 0
    copies = owned_params(f, o, stages, zero_stage) * per_stage(f.work.gradient_bytes)
    temporaries = owned_params(f, o, stages, zero_stage) * per_stage(
        f.cal.optimizer_temporary_share * f.work.moment_bytes
    )
    on_device = np.where(per_stage(offload.host_step) > 0, 0.0, temporaries)
    left["optimizer_step"] = optimizer_step_bytes(left, on_device)
    return left, host + away + np.where(copied, copies, 0.0)
