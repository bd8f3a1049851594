"""Step 1: one replica, whole, on one device."""

from __future__ import annotations

from itertools import product

import numpy as np

from costmodel.spec.options import OFFLOADS, usual_options
from costmodel.spec.plan import RECOMPUTES, SCHEDULES
from costmodel.table import AXES
from planner.explain import told
from planner.explain.shapes import Found, Pricer, Shape
from planner.explain.step import Number, Step, step
from planner.search.choices import offloads
from planner.search.rule_words import STATE_TERMS
from planner.search.space import legal_zero_stages, recompute_policies

_NONE = OFFLOADS.index("none")
_ALL_HERE = (_NONE, 0)


Kept = tuple[int, int]
"""What is offloaded, and the ZeRO stage: gradients leave only where a rank owns its share, be it of one."""


def one_replica(pricer: Pricer) -> Step:
    """What the whole model needs on a single device at micro-batch 1, recomputing nothing and as much as it can.

    Where no plan may keep everything on the devices, that is what an offload leaves there.
    """
    policies, kinds = recompute_policies(pricer.request), offloads(pricer.request)
    leanest = _leanest(pricer, policies[-1], [kind for kind in kinds if kind != _NONE])
    kept = _ALL_HERE if _NONE in kinds or leanest is None else leanest
    plain, lean = (_priced(pricer, policy, kept) for policy in (policies[0], policies[-1]))
    state, left = _state(_priced(pricer, policies[0], _ALL_HERE)), _state(plain)
    word = RECOMPUTES[policies[-1]]
    verdict = "yes" if plain.fits else "with_recompute" if lean.fits else "no"
    needs = f"state {told.gib(state)} GiB{_left(plain)}"
    needs += f", activations and buffers {told.gib(plain.peak_bytes - left)} GiB"
    if policies[-1] != policies[0]:
        needs += f" ({told.gib(lean.peak_bytes - left)} GiB with {word} recompute)"
    ends = {
        "yes": "it fits: data parallelism alone is enough",
        "with_recompute": f"it fits with {word} recompute: data parallelism alone is enough",
        "no": lean.need.verdict,
    }[verdict]
    if leanest is not None and kept == _ALL_HERE:
        spared = _priced(pricer, policies[-1], leanest)
        ends += f"; offload {OFFLOADS[leanest[0]]} would leave {told.gib(spared.peak_bytes)} GiB in all"
        ends += f" ({spared.need.hosts})"
    usable = plain.need.usable_bytes
    offloaded: dict[str, Number] = (
        {"offload": OFFLOADS[kept[0]], "state_left_bytes": round(left)} if kept != _ALL_HERE else {}
    )
    return step(
        1,
        verdict,
        f"{needs} on one device, {told.gib(usable)} GiB usable: {ends}.",
        state_bytes=round(state),
        activation_bytes=round(plain.peak_bytes - left),
        activation_bytes_recomputed=round(lean.peak_bytes - left),
        needed_bytes=round(plain.peak_bytes),
        least_bytes=round(lean.peak_bytes),
        usable_bytes=usable,
        **offloaded,
        **told.host_numbers(lean.need),
    )


def _leanest(pricer: Pricer, policy: int, kinds: list[int]) -> Kept | None:
    """The offload that leaves the least on the device, with its ZeRO stage; None of none."""
    pairs = product(kinds, legal_zero_stages(pricer.request))
    return min(pairs, key=lambda kept: _priced(pricer, policy, kept).peak_bytes, default=None)


def _left(found: Found) -> str:
    kind = found.row["offload"]
    if kind == _NONE:
        return ""
    return (
        f", {told.gib(_state(found))} GiB of it left on the device with offload {OFFLOADS[kind]} ({found.need.hosts})"
    )


def _state(found: Found) -> float:
    return sum(found.memory.get(term, 0.0) for term in STATE_TERMS)


def _priced(pricer: Pricer, recompute: int, kept: Kept) -> Found:
    return pricer.priced(Shape(), _row(pricer, recompute, kept))


def _row(pricer: Pricer, recompute: int, kept: Kept) -> dict[str, int]:
    row = dict.fromkeys(AXES, 1) | {
        "cp_comm_type": 0,
        "layout": 0,
        "zero_stage": kept[1],
        "num_microbatches": pricer.request.scenario.workload.global_batch_size,
        "recompute": recompute,
        "recompute_modules": 0,
        "schedule": SCHEDULES.index("1f1b"),
    }
    columns = {axis: np.asarray(value) for axis, value in row.items()}
    return row | {name: int(code) for name, code in usual_options(columns).items()} | {"offload": kept[0]}
