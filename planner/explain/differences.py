"""What two plans of one scenario differ in: axis by axis, and in the parts of their time and memory.

Works on plans and predictions as answers hold them, so whatever axes and parts there are take part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodel.spec.options import BY_NAME, OPTION_NAMES
from costmodel.spec.plan import CP_COMM_TYPES
from planner.search.request import ObjectiveKind

Json = dict[str, Any]

# What the scenario says, what follows from other axes, and lists of layers: none is a choice of its own.
_NO_CHOICE = frozenset(
    {
        *("global_batch_size", "seq_len", "precision", "optimizer", "framework", "framework_version"),
        *("devices_used", "sequence_parallel", "num_microbatches", "dp_replicate", "dp_shard", "recompute_modules"),
        *("layers_per_stage", "layers_per_chunk", "recomputed_layers_per_stage"),
    }
)
_SHORT = {"micro_batch_size": "micro-batch", "zero_stage": "ZeRO"}
_NOTHING_WITHOUT = {
    "cp": ("cp_comm_type", "cp_a2a_degree", "cp_balanced"),
    "pp": ("vpp", "schedule"),
    "ep": ("ep_overlap", "moe_dispatcher"),
}
"""What says nothing of a plan any more that has a degree of one."""
_LEAST_SHARE = 0.003
"""Of the longer step: parts that differ by less are not told."""
_MOST_PARTS = 6
_OTHER_LAYERS = "other layers on the stages, or others that run again"
_GIB = 2**30


def axis_differences(ours: Json, theirs: Json) -> list[Json]:
    """The choices in which two plans differ: ``{axis, ours, theirs}`` in the order of the plan's fields.

    Options that both leave as is usual for their other axes are no choices.
    """
    usual = {name for name in OPTION_NAMES if _is_usual(name, ours) and _is_usual(name, theirs)}
    axes = [axis for axis in ours if axis not in _NO_CHOICE and axis not in usual]
    shards = "dp_shard" if ours["zero_stage"] and theirs["zero_stage"] and ours["dp"] == theirs["dp"] else None
    return [
        {"axis": axis, "ours": ours[axis], "theirs": theirs.get(axis)}
        for axis in [*axes, *([shards] if shards else [])]
        if ours[axis] != theirs.get(axis)
    ]


def _is_usual(name: str, plan: Json) -> bool:
    option = BY_NAME[name]
    codes = {axis: CP_COMM_TYPES.index(plan[axis]) if axis == "cp_comm_type" else plan[axis] for axis in option.reads}
    usual = option.usual_of({axis: np.asarray(code, dtype=np.int64) for axis, code in codes.items()})
    return name not in plan or option.encode(plan[name]) == int(usual)


def time_differences(ours: Json, theirs: Json) -> dict[str, float]:
    """Seconds of ``theirs`` less those of ``ours`` by part, largest first; small ones are left out."""
    parts = dict.fromkeys([*ours["time"], *theirs["time"]])
    found = {part: theirs["time"].get(part, 0.0) - ours["time"].get(part, 0.0) for part in parts}
    least = _LEAST_SHARE * max(ours["step_time_s"], theirs["step_time_s"])
    kept = sorted((part for part in found if abs(found[part]) >= least), key=lambda part: -abs(found[part]))
    return {part: found[part] for part in kept[:_MOST_PARTS]}


def memory_difference_bytes(ours: Json, theirs: Json) -> int:
    """Peak bytes of ``theirs`` less those of ``ours``."""
    return int(theirs["memory"]["peak_bytes"] - ours["memory"]["peak_bytes"])


def host_difference_bytes(ours: Json, theirs: Json) -> int:
    """Bytes in the memory of a node that ``theirs`` offloads less those of ``ours``."""
    # What was stored before offload was told has nothing in the memory of its hosts.
    before, after = (prediction["memory"].get("host_bytes_per_node", 0) for prediction in (ours, theirs))
    return int(after - before)


def in_unit(kind: ObjectiveKind, difference: float) -> str:
    """``8 devices fewer``, ``0.012 less a step``; empty for what is no difference, and for seconds: parts say these."""
    if kind == "step_time" or difference == 0.0:
        return ""
    size = abs(difference)
    if kind == "fewest_devices":
        return f"{size:.0f} device{'s' if size != 1 else ''} {'fewer' if difference < 0 else 'more'}"
    return f"{size:.3g} {'less' if difference < 0 else 'more'} a step in cost"


def in_words(
    axes: list[Json], time: dict[str, float], memory_bytes: int, host_bytes: int = 0, in_unit: str = ""
) -> str:
    """``pp 8 instead of 4, micro-batch 2 instead of 1: 1.2 s less dp_comm, 0.4 s more bubble, 3.1 GiB less memory``.

    Args:
        in_unit: the change in the objective's unit, which comes first.
    """
    parts = [in_unit] if in_unit else []
    parts += [f"{seconds_in_words(abs(by))} {'less' if by < 0 else 'more'} {part}" for part, by in time.items()]
    for by_bytes, what in ((memory_bytes, "memory"), (host_bytes, "host memory per node")):
        if abs(by_bytes) >= _GIB / 10:
            parts.append(f"{abs(by_bytes) / _GIB:.1f} GiB {'less' if by_bytes < 0 else 'more'} {what}")
    return f"{choices_in_words(axes)}: {', '.join(parts) or 'about the same time and memory'}"


def choices_in_words(axes: list[Json], ours: Json | None = None, theirs: Json | None = None) -> str:
    """``pp 8 instead of 4, micro-batch 2 instead of 1``, of differences as ``axis_differences`` gives them.

    Args:
        ours, theirs: the plans, so that layers that run again are counted where these are not all.
    """

    def without(side: str) -> set[str]:
        return {other for entry in axes if entry[side] == 1 for other in _NOTHING_WITHOUT.get(entry["axis"], ())}

    gone, new = without("theirs"), without("ours")
    choices = []
    for entry in axes:
        axis = entry["axis"]
        if axis not in gone:
            found = f"{_SHORT.get(axis, axis)} {_value(entry['theirs'])}{_layers_again(axis, theirs)}"
            before = f" instead of {_value(entry['ours'])}{_layers_again(axis, ours)}"
            choices.append(found if axis in new else found + before)
    return ", ".join(choices) or _OTHER_LAYERS


def _layers_again(axis: str, plan: Json | None) -> str:
    """`` (14 of 80 layers)`` of a plan that recomputes some of its layers."""
    again = plan.get("recomputed_layers_per_stage") if plan is not None and axis == "recompute" else None
    if plan is None or not again or plan["recompute"] != "full":
        return ""
    layers = sum(plan["layers_per_stage"])
    return f" ({sum(again)} of {layers} layers)" if sum(again) < layers else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "/".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def seconds_in_words(seconds: float, of: str = "") -> str:
    """``0.21 s``, ``19.7 ms``; of a device, ``0.21 device s``."""
    whose = f"{of} " if of else ""
    return f"{seconds:.2f} {whose}s" if seconds >= 0.1 else f"{seconds * 1000:.1f} {whose}ms"
