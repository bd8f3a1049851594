"""The plans of a comparison, and the scale on which their times can be held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from api.dashboard.plans.figures import headline
from api.dashboard.plans.stored import StoredPlan
from api.dashboard.words import gib, number, percent, seconds
from planner.wording import mesh_in_words

Json = dict[str, Any]

_TOKENS = 1e6


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What times are counted in.

    Attributes:
        factors: by which each plan's seconds are multiplied; empty for a scale of no plans in particular.
    """

    unit: str
    meaning: str
    factors: tuple[float, ...] = ()


SECONDS = Scale(unit="s", meaning="seconds of a step")
"""For plans that do the same step."""
PER_TOKEN = Scale(unit="device s", meaning="seconds of one device for a million tokens")
"""For plans that don't."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the plans.

    Attributes:
        number: its place, from 1; how texts call it.
        apart: what it takes against the first plan, in per cent of that.
        without, first: addresses of the page without it, and with it as the first.
    """

    number: int
    id: str
    headline: str
    mesh: str
    step: str
    interval: str
    tokens: str
    mfu: str
    peak: str
    usable: str
    apart: str
    without: str
    first: str


def address(ids: Sequence[str]) -> str:
    """The page with these plans."""
    return f"/compare?{urlencode([('plan', identifier) for identifier in ids])}" if ids else "/compare"


def scale_of(plans: Sequence[StoredPlan]) -> Scale:
    """Seconds of the step, where all plans do the same step; else what a million tokens take of one device."""
    if len({plan.work for plan in plans}) == 1:
        return replace(SECONDS, factors=(1.0,) * len(plans))
    return replace(PER_TOKEN, factors=tuple(map(per_token, plans)))


def per_token(plan: StoredPlan) -> float:
    """What a second of its step is for ``PER_TOKEN``."""
    return float(plan.plan["devices_used"] * _TOKENS / plan.tokens)


def scaled(prediction: Json, factor: float) -> Json:
    """A prediction with its times on a scale."""
    return prediction | {
        "step_time_s": prediction["step_time_s"] * factor,
        "step_time_interval_s": [end * factor for end in prediction["step_time_interval_s"]],
        "time": {term: value * factor for term, value in prediction["time"].items()},
    }


def sides_of(plans: Sequence[StoredPlan], predictions: Sequence[Json]) -> list[Side]:
    """The plans with their figures; ``predictions`` are on one scale."""
    ids = [plan.id for plan in plans]
    first = predictions[0]["step_time_s"]
    return [
        Side(
            number=place + 1,
            id=plan.id,
            headline=headline(plan.about, plan.plan),
            mesh=mesh_in_words(plan.plan),
            step=seconds(predictions[place]["step_time_s"]),
            interval=" to ".join(map(seconds, predictions[place]["step_time_interval_s"])),
            tokens=number(plan.prediction["tokens_per_s_per_device"]),
            mfu=percent(plan.prediction["mfu"]),
            peak=gib(plan.prediction["memory"]["peak_bytes"]),
            usable=gib(plan.prediction["memory"]["usable_bytes"]),
            apart=signed(100 * (predictions[place]["step_time_s"] / first - 1), 1) if place else "",
            without=address([other for other in ids if other != plan.id]),
            first=address([plan.id, *(other for other in ids if other != plan.id)]) if place else "",
        )
        for place, plan in enumerate(plans)
    ]


def unlike(plans: Sequence[StoredPlan]) -> list[tuple[str, list[str]]]:
    """What was given otherwise: a name, and its value for each plan."""
    told = [
        ("model", [plan.about.model.name for plan in plans]),
        ("cluster", [plan.about.cluster.name for plan in plans]),
        ("accelerator", [plan.about.cluster.accelerator for plan in plans]),
        ("devices", [number(plan.about.devices) for plan in plans]),
        ("batch, sequences", [number(plan.plan["global_batch_size"]) for plan in plans]),
        ("sequence, tokens", [number(plan.plan["seq_len"]) for plan in plans]),
        ("precision", [plan.about.precision for plan in plans]),
        ("optimizer", [plan.about.optimizer for plan in plans]),
        ("framework", [f"{plan.about.framework} {plan.about.framework_version}" for plan in plans]),
        ("calibration", [f"{plan.calibration} ({plan.document['calibration_id'][:8]})" for plan in plans]),
        ("cost model", [plan.document["cost_model"] for plan in plans]),
    ]
    found = [(name, values) for name, values in told if len(set(values)) > 1]
    ids = [plan.document["scenario_id"][:8] for plan in plans]
    if len(set(ids)) > 1 and not any(name not in ("calibration", "cost model") for name, _ in found):
        # Something that has no line of its own: a model or a cluster of the same name that was described otherwise.
        found.insert(0, ("what was asked, by its fingerprint", ids))
    return found


def signed(value: float, digits: int) -> str:
    """With its sign, and none where nothing is left of it."""
    text = f"{value:+,.{digits}f}"
    return f"{0:.{digits}f}" if float(text.replace(",", "")) == 0 else text.replace("-", "\N{MINUS SIGN}")
