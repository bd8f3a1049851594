"""What a plan is and what it comes to: the headline, the figures that matter first, and its axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.dashboard.plans.stored import StoredPlan
from api.dashboard.words import EXCHANGES, gib, number, percent, seconds
from costmodel.fingerprint import cost_model_version
from costmodel.stages import shortened
from db import records
from planner.wording import sharding

Json = dict[str, Any]

_FIT = {
    "fits": ("good", "fits"),
    "at_risk": ("fair", "fits, at risk: the upper end of the interval does not"),
    "too_big": ("bad", "too big"),
}
_PROVENANCE = {
    "analytic": "from formulas and data sheets",
    "calibrated": "fitted to measured runs",
    "measured": "measured on this very plan",
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure with its name.

    Attributes:
        below: what makes it readable: an interval, what it is held against.
        tone: of what is below; empty for none.
    """

    name: str
    value: str
    unit: str = ""
    below: str = ""
    tone: str = ""


def headline(about: records.Scenario, plan: Json) -> str:
    """Model and devices; those that idle apart."""
    idle = about.devices - plan["devices_used"]
    left = f" ({number(idle)} idle)" if idle else ""
    return f"{about.model.name} on {number(about.devices)} × {about.cluster.accelerator}{left}"


def facts(stored: StoredPlan) -> list[tuple[str, str]]:
    """What the plan is for, as names and values."""
    about = stored.about
    found = [
        ("Cluster", about.cluster.name),
        ("Batch", _batch(about, stored.plan)),
        ("Precision", f"{about.precision}, {about.optimizer}"),
        ("Framework", f"{about.framework} {about.framework_version}"),
        ("Calibration", f"{stored.calibration} ({stored.document['calibration_id'][:8]})"),
        ("Cost model", stored.document["cost_model"]),
    ]
    return found


def _batch(about: records.Scenario, plan: Json) -> str:
    """The plan's own; where a tolerance was given, it may be another than the one that was asked for."""
    size, asked = plan["global_batch_size"], about.global_batch_size
    instead = "" if size == asked else f" ({number(asked)} were asked for)"
    return f"{number(size)} sequences of {number(plan['seq_len'])} tokens{instead}"


def is_of_today(stored: StoredPlan) -> bool:
    """Whether today's cost model priced it."""
    return bool(stored.document["cost_model"] == cost_model_version())


def figures(prediction: Json) -> list[Figure]:
    """The figures that people look for first."""
    low, high = prediction["step_time_interval_s"]
    memory = prediction["memory"]
    tone, fit = _FIT.get(memory.get("verdict"), ("", ""))
    usable = f"of {gib(memory['usable_bytes'])} usable"
    return [
        Figure(
            name="Step time",
            value=seconds(prediction["step_time_s"]),
            unit="s",
            below=f"expected {seconds(low)} to {seconds(high)}",
        ),
        Figure(name="Tokens", value=number(prediction["tokens_per_s_per_device"]), unit="/s/device"),
        Figure(
            name="MFU",
            value=percent(prediction["mfu"]),
            unit="%",
            below=f"HFU {percent(prediction['hfu'])}, with what is recomputed",
        ),
        Figure(
            name="Peak memory",
            value=gib(memory["peak_bytes"]),
            unit="GiB",
            below=f"{usable}; {fit}" if fit else usable,
            tone=tone,
        ),
        Figure(name="Prediction", value=prediction["provenance"], below=_PROVENANCE[prediction["provenance"]]),
    ]


def conventions(prediction: Json) -> list[tuple[str, str, str]]:
    """``(name, value, meaning)``: the same speed as others count it; empty where an earlier version stored none."""
    told = prediction.get("utilisation")
    if not told:
        return []
    peak = told["peak_flops_per_s"] / 1e12
    found = [
        ("MFU", told["mfu"], f"causal attention, against {peak:,.0f} TFLOP/s of {told['peak']}, as everywhere here"),
        ("HFU", told["hfu"], "the same with what is computed again"),
        ("MFU, full attention", told["mfu_full_attention"], "with the whole score matrix, as PaLM and Megatron count"),
        ("MFU, parameters only", told["mfu_parameters_only"], "6 N, without attention"),
    ]
    if told["mfu_bf16_peak"] is not None and told["peak"] != "bf16":
        found.append(("MFU, bf16 peak", told["mfu_bf16_peak"], "against the peak of bf16"))
    rate = told["model_flops_per_s_per_device"] / 1e12
    shares = [(name, f"{percent(share)} %", meaning) for name, share, meaning in found]
    return [
        *shares,
        ("model FLOP/s", f"{rate:,.0f} TFLOP/s", "of a device"),
        ("tokens", f"{number(told['tokens_per_s'])} /s", "of the whole job"),
    ]


def warnings(prediction: Json) -> list[str]:
    """What makes the figures less sure."""
    beyond = (prediction.get("calibrated_range") or {}).get("beyond")
    return (
        [f"Beyond what the calibration's runs were like, so intervals are wider: {'; '.join(beyond)}."]
        if beyond
        else []
    )


def axes(plan: Json, options: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    """``(name, value, meaning)`` of every axis that does something, in the order in which people say them."""
    found = [("tp", plan["tp"], "devices that share out a layer")]
    if plan["cp"] > 1:
        found.append(("cp", plan["cp"], f"devices that share out a sequence, by {EXCHANGES[plan['cp_comm_type']]}"))
    stages = f"stages of {shortened(plan['layers_per_stage'])} layers" if plan["pp"] > 1 else "no pipeline"
    found.append(("pp", plan["pp"], stages))
    if plan["vpp"] > 1:
        found.append(("vpp", plan["vpp"], "chunks of layers per stage, visited in turn"))
    if plan["pp"] > 1:
        found.append(("schedule", plan["schedule"], "of the pipeline"))
    found.append(("dp", plan["dp"], "replicas, each with its share of the batch"))
    if plan["ep"] > 1 or plan["etp"] > 1:
        found.append(("ep", plan["ep"], "devices that share out the experts of a layer"))
        found.append(("etp", plan["etp"], "devices that share out one expert"))
    found.append(("ZeRO", sharding(plan), _sharded(plan)))
    found.append(("micro-batch", plan["micro_batch_size"], "sequences that pass at once"))
    found.append(("micro-batches", plan["num_microbatches"], "per step and replica"))
    found.append(("recompute", plan["recompute"], _again(plan)))
    found += [("option", option, "not what is usual here") for option in options]
    return [(name, str(value), meaning) for name, value, meaning in found]


def _sharded(plan: Json) -> str:
    what = ("nothing is sharded", "optimizer state", "optimizer state and gradients", "all state (FSDP)")
    stage = plan["zero_stage"]
    return what[stage] if stage == 0 else f"{what[stage]} sharded over {plan['dp_shard']} replicas"


def _again(plan: Json) -> str:
    if plan["recompute"] == "none":
        return "every activation is kept"
    if plan["recompute"] == "selective":
        return f"{', '.join(plan['recompute_modules']) or 'no module'} computed again in every layer"
    again, layers = sum(plan["recomputed_layers_per_stage"]), sum(plan["layers_per_stage"])
    return f"activations computed again in {again} of {layers} layers"
