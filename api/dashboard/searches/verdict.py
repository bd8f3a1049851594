"""What an answer says, in words: the verdict with its proof, the question, and what the numbers rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from api.dashboard.plans.memory import held
from api.dashboard.searches.objective_columns import MONEY, OBJECTIVES, money
from api.dashboard.words import GIB, best, gap, gib, number, percent, seconds
from planner.wording import mesh_in_words

Json = dict[str, Any]

_PROVENANCE = {
    "analytic": "from formulas and data sheets; nothing like it was measured",
    "calibrated": "from formulas whose parameters were fitted to measured runs",
    "measured": "from a measurement of this very plan",
}


Tone = Literal["good", "fair", "bad", "waiting"]

# Of searches without an answer, and of answers without a plan.
_IN_WORDS: dict[str, tuple[Tone, str, str]] = {
    "queued": ("waiting", "Waiting", "The search starts as soon as a slot is free."),
    "running": (
        "waiting",
        "Searching",
        "If the deadline comes before the proof, the best plan so far is the answer.",
    ),
    "cancelled": ("fair", "Cancelled", "The search was stopped before it had an answer; ask again to start it anew."),
    "infeasible": (
        "bad",
        "Nothing fits",
        "No plan of the space searched is legal and fits; that is proven.",
    ),
    "unknown": (
        "fair",
        "No plan was found before the deadline",
        "That is no proof that there is none: give it more seconds.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a search stands.

    Attributes:
        tone: how it is coloured; the words say the same.
        figure: the best plan's value, with its unit.
    """

    tone: Tone
    title: str
    text: str
    figure: str = ""


def verdict(answer: Json) -> Verdict:
    """Of a search in any state; ``answer`` is the API's."""
    state = answer["state"]
    if state == "failed":
        detail = (answer["problem"] or {}).get("detail")
        return Verdict(tone="bad", title="The search failed", text=str(detail or "The server's log says why."))
    known = _IN_WORDS.get(answer["status"] if state == "done" else state)
    if known is not None:
        tone, title, text = known
        return Verdict(tone=tone, title=title, text=text)
    return _proven(answer) if answer["status"] == "optimal" else _cut(answer)


def _proven(answer: Json) -> Verdict:
    text = _best_plan(answer)
    if not answer["proven_top_k"]:
        text += " The list below the best plan was cut by the deadline."
    figure = _value(answer, "best")
    return Verdict(tone="good", title="Proven best of the space searched", text=text, figure=figure)


def _cut(answer: Json) -> Verdict:
    far, text = "how far from the best is not known", ""
    if answer["gap"] is not None:
        far = f"at most {gap(answer['gap'])} from the best"
        text = f"No plan can be below {_value(answer, 'bound')}. "
    text = f"{_best_plan(answer)} {text}More seconds may find a better one, or the proof."
    figure = _value(answer, "best")
    return Verdict(tone="fair", title=f"Cut by the deadline: {far}", text=text, figure=figure)


def _value(answer: Json, name: str) -> str:
    """The best plan's value or the bound, per sequence where several batches were searched."""
    return best(answer[name], answer["objective"], (answer.get("batches") or {}).get("per", "step"))


def _best_plan(answer: Json) -> str:
    plan, prediction = answer["plans"][0]["plan"], answer["plans"][0]["prediction"]
    speed = f"{number(prediction['tokens_per_s_per_device'])} tokens/s/device at {percent(prediction['mfu'])} % MFU"
    return f"{mesh_in_words(plan)}: {speed}."


def _memory(memory: Json) -> str:
    low, high = (end / GIB for end in memory["peak_interval_bytes"])
    told = f"{gib(memory['peak_bytes'])} GiB allocated on the fullest device, {low:.1f} to {high:.1f}; {held(memory)}"
    risk = "; at risk: the upper end lies beyond what is usable, so it may run out of memory"
    return told + (risk if memory["verdict"] == "at_risk" else "")


def _batches(batches: Json) -> str:
    searched = ", ".join(number(size) for size in sorted(batches["searched"]))
    may = f"{number(batches['asked'])} may change by {100 * batches['tolerance']:.4g} %"
    return f"{searched} sequences were searched, as {may}"


def headline(scenario: Json) -> str:
    """Model, devices and cluster."""
    return f"{scenario['model']} on {number(scenario['devices'])} × {scenario['accelerator']}"


def question(answer: Json) -> list[tuple[str, str]]:
    """The rest of the question, as names and values."""
    scenario, asked = answer["scenario"], answer["question"]
    found = [
        ("Cluster", scenario["cluster"]),
        ("Parameters", f"{scenario['params'] / 1e9:.1f} B"),
        ("Batch", f"{number(scenario['global_batch_size'])} sequences of {number(scenario['seq_len'])} tokens"),
        ("Precision", ", ".join(_recipes(scenario))),
        ("Framework", f"{scenario['framework_title']} {scenario['framework_version']}"),
        ("Objective", OBJECTIVES.get(asked["objective"], asked["objective"])),
    ]
    if asked["objective"] == "cost" and asked["price_per_device_hour"] is not None:
        found.append(("Price", f"{asked['price_per_device_hour']:g} per device and hour; costs are {MONEY}"))
    for name, conditions in (("Pins", asked["pins"]), ("Forbids", asked["forbids"]), ("Allowed", asked.get("allow"))):
        if conditions:
            found.append((name, ", ".join(conditions)))
    if asked["min_free_bytes"]:
        found.append(("Kept free", f"{gib(asked['min_free_bytes'])} GiB per device"))
    if asked.get("min_devices"):
        found.append(("Devices used", f"at least {number(asked['min_devices'])}"))
    elif asked["objective"] != "fewest_devices":
        found.append(("Devices used", f"at least {asked['min_used']:.0%}"))
    found += _beyond(asked)
    found.append(("Asked for", f"{asked['top']} plans within {asked['max_seconds']:g} s"))
    return found


def _recipes(scenario: Json) -> list[str]:
    gradients = scenario.get("gradient_dtype")  # not stored by an earlier version
    return [scenario["precision"], scenario["optimizer"], *([f"{gradients} gradients"] if gradients else [])]


def _beyond(asked: Json) -> list[tuple[str, str]]:
    """What only some questions ask; older ones say nothing of it."""
    found: list[tuple[str, str]] = []
    if (longest := asked.get("max_step_time_s")) is not None:
        found.append(("Step", f"at most {longest:g} s"))
    if tolerance := asked.get("batch_tolerance"):
        found.append(("Other batches", f"up to {100 * tolerance:.4g} % more or fewer sequences"))
    if (probability := asked.get("shortlist")) is not None:
        found.append(("Short list", f"holds the fastest with probability {probability:.4g}"))
    wanted = [name for name, key in (("Pareto front", "pareto"), ("explanation", "explain")) if asked.get(key)]
    return [*found, ("Also wanted", ", ".join(wanted))] if wanted else found


def basis(answer: Json) -> list[tuple[str, str]]:
    """What an answer's numbers rest on, as names and values."""
    facts, scenario = answer["search"], answer["scenario"]
    found: list[tuple[str, str]] = []
    if answer["plans"]:
        prediction = answer["plans"][0]["prediction"]
        low, high = prediction["step_time_interval_s"]
        count = answer["plans_within"]
        lie = "1 plan lies" if count == 1 else f"at least {number(count)} plans lie"
        memory = prediction["memory"]
        found = [
            ("Best plan", f"{seconds(low)} to {seconds(high)} s per step; {lie} within that interval"),
            ("Prediction", f"{prediction['provenance']}: {_PROVENANCE[prediction['provenance']]}"),
        ]
        if (cost := answer.get("cost_per_1e9_tokens")) is not None:
            found.append(("1e9 tokens", f"{money(cost)} {MONEY}, with the best plan on the devices that it uses"))
        if batches := answer.get("batches"):
            found.append(("Batches", _batches(batches)))
        if memory.get("peak_interval_bytes"):
            found.append(("Memory of the best plan", _memory(memory)))
        if beyond := (prediction.get("calibrated_range") or {}).get("beyond"):
            found.append(("Beyond the calibrated range", f"{'; '.join(beyond)}. Intervals are wider for it."))
    found.append(("Calibration", f"{facts['calibration']} ({facts['calibration_id'][:8]})"))
    if rests_on := facts.get("calibrated_on"):
        found.append(("Calibrated on", rests_on["text"]))
    elif scenario["not_calibrated"]:
        general = ", ".join(scenario["not_calibrated"])
        found.append(("Not calibrated", f"general values, none of {scenario['accelerator']}, for {general}"))
    found.append(("Cost model", f"{facts['cost_model']}, search {facts['search_version']}"))
    work = f"{number(facts['meshes'])} meshes, {number(facts['plans_considered'])} plans priced"
    return [*found, ("Search", f"{work} in {facts['elapsed_s']:.2f} s, seed {facts['seed']}")]
