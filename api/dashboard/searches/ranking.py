"""The ranked table of an answer: its columns in groups, and a row of texts for every plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from api.dashboard.words import number, percent, seconds
from costmodel.layers import COMMUNICATION
from costmodel.stages import shortened
from planner.wording import sharding

Json = dict[str, Any]

_GIB = 2**30
_OPTIONS = "options"
_FITS = {"fits": "fits", "at_risk": "at risk", "too_big": "too big", None: ""}
_EXCHANGES = {"p2p": "ring", "all_gather": "gather", "a2a": "a2a", "a2a+p2p": "a2a+ring"}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; ``meaning`` explains its header."""

    name: str
    meaning: str
    unit: str = ""
    words: bool = False


@dataclass(frozen=True, kw_only=True)
class Group:
    """Columns that belong together."""

    name: str
    columns: tuple[Column, ...]


_GROUPS = (
    Group(
        name="Speed",
        columns=(
            Column(name="step", unit="s", meaning="Predicted time of one optimizer step."),
            Column(name="interval", unit="s", meaning="Where the step time is expected to lie."),
            Column(name="tokens", unit="/s/device", meaning="Tokens per second and device."),
            Column(
                name="MFU",
                unit="%",
                meaning="The model's FLOPs over the accelerators' peak; recomputation not counted.",
            ),
        ),
    ),
    Group(
        name="Mesh",
        columns=(
            Column(name="tp", meaning="Tensor parallel: a layer is split over so many devices."),
            Column(name="cp", meaning="Context parallel: a sequence is."),
            Column(name="cp by", meaning="How cp exchanges keys and values: ring, all-gather, all-to-all.", words=True),
            Column(name="pp", meaning="Pipeline stages."),
            Column(name="vpp", meaning="Chunks of layers per stage (interleaving)."),
            Column(name="dp", meaning="Data parallel replicas."),
            Column(name="ep", meaning="Expert parallel: the experts are spread over so many devices."),
            Column(name="etp", meaning="Tensor parallel inside an expert."),
        ),
    ),
    Group(
        name="Batch and state",
        columns=(
            Column(name="mbs", meaning="Sequences of a micro-batch."),
            Column(name="m", meaning="Micro-batches per step and replica."),
            Column(name="ZeRO", meaning="Sharding stage over dp; '2 over 8' shards within groups of 8.", words=True),
            Column(name="layers", meaning="Layers of each pipeline stage; 8x14 is 14 stages of 8.", words=True),
            Column(name="recompute", meaning="Activations that are computed again.", words=True),
            Column(name=_OPTIONS, meaning="Options of the plan that are not the usual ones.", words=True),
        ),
    ),
    Group(
        name="Costs",
        columns=(
            Column(name="bubble", unit="%", meaning="Share of the step in which the pipeline waits."),
            Column(name="exposed", unit="%", meaning="Share of the step in which communication is not hidden."),
            Column(name="peak", unit="GiB", meaning="Memory allocated on the fullest device."),
            Column(name="held", unit="GiB", meaning="What the process then holds of it, with its allocator's pool."),
            Column(
                name="fit",
                meaning="At risk: it fits, but the upper end of the memory's interval does not.",
                words=True,
            ),
            Column(name="devices", meaning="Devices that the plan uses."),
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A plan: cells in the order of the columns."""

    rank: int
    plan_id: str
    cells: tuple[str, ...]


def groups_of(plans: list[Json]) -> list[Group]:
    """The columns that say something of an answer's plans: options where any plan has some."""
    told = any(entry.get("options") for entry in plans)
    return [
        replace(group, columns=tuple(column for column in group.columns if told or column.name != _OPTIONS))
        for group in _GROUPS
    ]


def rows_of(plans: list[Json]) -> list[Row]:
    """A row for every plan of an answer."""
    names = [column.name for group in groups_of(plans) for column in group.columns]
    found: list[Row] = []
    for entry in plans:
        cells = _cells(entry["plan"], entry["prediction"])
        cells[_OPTIONS] = ", ".join(entry.get("options", ()))  # not stored by an earlier version
        found.append(Row(rank=entry["rank"], plan_id=entry["id"], cells=tuple(cells[name] for name in names)))
    return found


def usable_gib(plans: list[Json]) -> str:
    """What a device has for a plan: the same for all of them."""
    return f"{plans[0]['prediction']['memory']['usable_bytes'] / _GIB:.1f}"


def _gib(count: int | None) -> str:
    """Empty for what an earlier version did not store."""
    return "" if count is None else f"{count / _GIB:.1f}"


def _cells(plan: Json, prediction: Json) -> dict[str, str]:
    step = prediction["step_time_s"]
    low, high = prediction["step_time_interval_s"]
    exposed = sum(part for term, part in prediction["time"].items() if term.endswith(COMMUNICATION))
    return {
        "step": seconds(step),
        "interval": f"{seconds(low)}–{seconds(high)}",
        "tokens": number(prediction["tokens_per_s_per_device"]),
        "MFU": percent(prediction["mfu"]),
        "cp by": "" if plan["cp"] == 1 else _EXCHANGES[plan["cp_comm_type"]],
        **{axis: str(plan[axis]) for axis in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")},
        "mbs": str(plan["micro_batch_size"]),
        "m": str(plan["num_microbatches"]),
        "ZeRO": sharding(plan),
        "layers": shortened(plan["layers_per_stage"]),
        "recompute": plan["recompute"],
        "bubble": percent(prediction["time"].get("bubble", 0.0) / step),
        "exposed": percent(exposed / step),
        "peak": f"{prediction['memory']['peak_bytes'] / _GIB:.1f}",
        "held": _gib(prediction["memory"].get("reserved_bytes")),
        "fit": _FITS[prediction["memory"].get("verdict")],
        "devices": number(plan["devices_used"]),
    }
