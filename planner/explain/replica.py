"""Step 1: one replica, whole, on one device."""

from __future__ import annotations

import numpy as np

from costmodel.spec.options import usual_options
from costmodel.spec.plan import RECOMPUTES, SCHEDULES
from costmodel.table import AXES
from planner.explain.shapes import Found, Pricer, Shape
from planner.explain.step import Step, step
from planner.search.space import recompute_policies

_GIB = 2**30
_STATE = ("parameters", "weight_copies", "gradients", "optimizer")


def one_replica(pricer: Pricer) -> Step:
    """What the whole model needs on a single device at micro-batch 1, recomputing nothing and as much as it can."""
    usable = pricer.request.scenario.usable_bytes
    policies = recompute_policies(pricer.request)
    plain, lean = (pricer.priced(Shape(), _row(pricer, policy)) for policy in (policies[0], policies[-1]))
    state = sum(plain.memory.get(term, 0.0) for term in _STATE)
    word = RECOMPUTES[policies[-1]]
    verdict = "yes" if plain.fits else "with_recompute" if lean.fits else "no"
    needs = f"state {state / _GIB:.1f} GiB, activations and buffers {_rest(plain, state):.1f} GiB"
    if policies[-1] != policies[0]:
        needs += f" ({_rest(lean, state):.1f} GiB with {word} recompute)"
    ends = {
        "yes": "it fits: data parallelism alone is enough",
        "with_recompute": f"it fits with {word} recompute: data parallelism alone is enough",
        "no": "it does not fit",
    }
    return step(
        1,
        verdict,
        f"{needs} on one device, {usable / _GIB:.1f} GiB usable: {ends[verdict]}.",
        state_bytes=round(state),
        activation_bytes=round(plain.peak_bytes - state),
        activation_bytes_recomputed=round(lean.peak_bytes - state),
        needed_bytes=round(plain.peak_bytes),
        least_bytes=round(lean.peak_bytes),
        usable_bytes=usable,
    )


def _rest(found: Found, state: float) -> float:
    return (found.peak_bytes - state) / _GIB


def _row(pricer: Pricer, recompute: int) -> dict[str, int]:
    row = dict.fromkeys(AXES, 1) | {
        "cp_comm_type": 0,
        "layout": 0,
        "zero_stage": 0,
        "num_microbatches": pricer.request.scenario.workload.global_batch_size,
        "recompute": recompute,
        "recompute_modules": 0,
        "schedule": SCHEDULES.index("1f1b"),
    }
    columns = {axis: np.asarray(value) for axis, value in row.items()}
    return row | {name: int(code) for name, code in usual_options(columns).items()}
