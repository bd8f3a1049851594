"""The columns of the ranked table, in groups: what each means and what a plan has in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from api.dashboard.words import SHORT_EXCHANGES, gib, number, percent, seconds
from costmodel.layers import COMMUNICATION
from costmodel.stages import shortened
from planner.wording import sharding

Json = dict[str, Any]
Value = float | str

_FITS = {"fits": "fits", "at_risk": "at risk", "too_big": "too big", None: ""}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        slug: what a query string sorts by.
        meaning: explains its header.
        text: what a plan has in it, from an entry of an answer's plans.
        value: the same to sort by; what is not known is an infinity.
        most_first: more is better, so that the first click puts the largest on top.
        beneath: what stands under that, smaller.
    """

    slug: str
    name: str
    meaning: str
    text: Callable[[Json], str]
    value: Callable[[Json], Value]
    unit: str = ""
    words: bool = False
    most_first: bool = False
    beneath: Callable[[Json], str] | None = None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Columns that belong together."""

    name: str
    columns: tuple[Column, ...]


def exposed_s(prediction: Json) -> float:
    """Seconds of a step in which communication is not hidden."""
    return sum((float(part) for term, part in prediction["time"].items() if term.endswith(COMMUNICATION)), 0.0)


def _axis(name: str, meaning: str, axis: str = "") -> Column:
    """A column of a count that the plan has."""
    key = axis or name
    return Column(
        slug=name.lower(),
        name=name,
        meaning=meaning,
        text=lambda entry: str(entry["plan"][key]),
        value=lambda entry: entry["plan"][key],
    )


def _figure(
    name: str, figure: Callable[[Json], float], meaning: str, shown: Callable[[float], str], **how: Any
) -> Column:
    """A column of a number of the prediction."""
    return Column(
        slug=name.lower(),
        name=name,
        meaning=meaning,
        text=lambda entry: shown(figure(entry["prediction"])),
        value=lambda entry: figure(entry["prediction"]),
        **how,
    )


def _words(
    name: str, text: Callable[[Json], str], meaning: str, value: Callable[[Json], Value] | None = None
) -> Column:
    slug = name.lower().replace(" ", "_")
    return Column(slug=slug, name=name, meaning=meaning, text=text, value=value or text, words=True)


def _interval(entry: Json) -> str:
    low, high = entry["prediction"]["step_time_interval_s"]
    return f"{seconds(low)}–{seconds(high)}"


def _exchange(entry: Json) -> str:
    return "" if entry["plan"]["cp"] == 1 else SHORT_EXCHANGES[entry["plan"]["cp_comm_type"]]


def _held(prediction: Json) -> float:
    """Below all others for what an earlier version did not store."""
    held = prediction["memory"].get("reserved_bytes")
    return float("-inf") if held is None else held


def _gib(count: float) -> str:
    return "" if count == float("-inf") else gib(count)


RANK = Column(
    slug="rank",
    name="#",
    meaning="Place by the objective.",
    text=lambda entry: str(entry["rank"]),
    value=lambda entry: entry["rank"],
)

OPTIONS = _words(
    "options",
    lambda entry: ", ".join(entry.get("options", ())),  # not stored by an earlier version
    "Options of the plan that are not the usual ones.",
)

STEP = _figure(
    "step",
    lambda p: p["step_time_s"],
    "Predicted time of one optimizer step; beneath it where that is expected to lie.",
    seconds,
    unit="s",
    beneath=_interval,
)

INTERVAL = Column(
    slug="interval",
    name="interval",
    unit="s",
    meaning="Where the step time is expected to lie; sorted by its upper end.",
    text=_interval,
    value=lambda entry: entry["prediction"]["step_time_interval_s"][1],
)
"""No column of its own: it stands beneath the step, and addresses may sort by it."""

DEVICES = Column(
    slug="devices",
    name="devices",
    meaning="Devices that the plan uses.",
    text=lambda entry: number(entry["plan"]["devices_used"]),
    value=lambda entry: entry["plan"]["devices_used"],
)

BATCH = Column(
    slug="batch",
    name="batch",
    meaning="Sequences per step, over all devices.",
    text=lambda entry: number(entry["plan"]["global_batch_size"]),
    value=lambda entry: entry["plan"]["global_batch_size"],
)

GROUPS = (
    Group(
        name="Speed",
        columns=(
            STEP,
            _figure(
                "tokens",
                lambda p: p["tokens_per_s_per_device"],
                "Tokens per second and device.",
                number,
                unit="/s/device",
                most_first=True,
            ),
            _figure(
                "MFU",
                lambda p: p["mfu"],
                "The model's FLOPs over the accelerators' peak; recomputation not counted.",
                percent,
                unit="%",
                most_first=True,
            ),
        ),
    ),
    Group(
        name="Mesh",
        columns=(
            _axis("tp", "Tensor parallel: a layer is split over so many devices."),
            _axis("cp", "Context parallel: a sequence is."),
            _words("cp by", _exchange, "How cp exchanges keys and values: ring, all-gather, all-to-all."),
            _axis("pp", "Pipeline stages."),
            _axis("vpp", "Chunks of layers per stage (interleaving)."),
            _axis("dp", "Data parallel replicas."),
            _axis("ep", "Expert parallel: the experts are spread over so many devices."),
            _axis("etp", "Tensor parallel inside an expert."),
        ),
    ),
    Group(
        name="Batch and state",
        columns=(
            BATCH,
            _axis("mbs", "Sequences of a micro-batch.", "micro_batch_size"),
            _axis("m", "Micro-batches per step and replica.", "num_microbatches"),
            _words(
                "ZeRO",
                lambda entry: sharding(entry["plan"]),
                "Sharding stage over dp; '2 over 8' shards within groups of 8.",
            ),
            _words(
                "layers",
                lambda entry: shortened(entry["plan"]["layers_per_stage"]),
                "Layers of each pipeline stage; 8x14 is 14 stages of 8. Sorted by the most.",
                lambda entry: max(entry["plan"]["layers_per_stage"]),
            ),
            _words("recompute", lambda entry: str(entry["plan"]["recompute"]), "Activations that are computed again."),
            OPTIONS,
        ),
    ),
    Group(
        name="Costs",
        columns=(
            _figure(
                "bubble",
                lambda p: p["time"].get("bubble", 0.0) / p["step_time_s"],
                "Share of the step in which the pipeline waits.",
                percent,
                unit="%",
            ),
            _figure(
                "exposed",
                lambda p: exposed_s(p) / p["step_time_s"],
                "Share of the step in which communication is not hidden.",
                percent,
                unit="%",
            ),
            _figure(
                "peak", lambda p: p["memory"]["peak_bytes"], "Memory allocated on the fullest device.", _gib, unit="GiB"
            ),
            _figure("held", _held, "What the process then holds of it, with its allocator's pool.", _gib, unit="GiB"),
            _words(
                "fit",
                lambda entry: _FITS[entry["prediction"]["memory"].get("verdict")],
                "At risk: it fits, but the upper end of the memory's interval does not.",
            ),
            DEVICES,
        ),
    ),
)
