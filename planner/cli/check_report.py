"""The answer of ``check`` as people read it: the verdict first, then its reasons, then what would be better."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from math import floor, log10
from textwrap import wrap
from typing import Any

from costmodel.scenario import Scenario
from costmodel.stages import shortened
from planner.check.check import FITTING, Checked
from planner.cli.check_memory import memory_lines
from planner.cli.report import AT_RISK_MEANS, BEYOND_RANGE, headline, held_in_words
from planner.cli.why_not import why_not
from planner.options_in_words import options_in_words
from planner.search.answer import scenario_in_words
from planner.wording import sharding

Json = dict[str, Any]

GIB = 2**30
_LABEL = 10
_WIDTH = 140
_LEAST_SHARE = 0.005
_MOST_VALUES = 8


def print_check(checked: Checked) -> None:
    """The report on stdout."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    lines = [headline(scenario_in_words(checked.scenario)), _verdict(checked.answer), ""]
    for label, text in _entries(checked.answer, checked.scenario):
        first = f"{label:<{_LABEL}}"
        if "\n" in text:
            lines += [first + text.split("\n")[0], *(" " * _LABEL + line for line in text.split("\n")[1:])]
        else:
            indent = " " * _LABEL
            lines += wrap(text, max(width, 60), initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    sys.stdout.write("\n".join(lines) + "\n")


def _verdict(answer: Json) -> str:
    status, stages = answer["status"], answer["memory"]["stages"]
    if status == "illegal":
        return _illegal(answer["violations"])
    fullest = max(stages, key=lambda stage: stage["most_bytes"])
    usable = answer["memory"]["usable_bytes"] / GIB
    where = f"stage {fullest['stage']}" if len(stages) > 1 else "every device"
    if status == "too_big":
        return _too_big(answer["memory"])
    need = fullest["most_bytes"] / GIB
    if status == "unknown":
        return f"NOT KNOWN TO FIT: {where} needs up to {need:.1f} GiB of {usable:.1f} usable"
    word = "FITS" if status == "fits" else "FITS, AT RISK"
    legal = "legal"
    if not answer["rules_known"]:
        legal = f"legal as far as arithmetic goes (no rules of {answer['plan']['framework']} are known here)"
    return f"{word}: {legal}, and {where} needs {need:.1f} GiB of {usable:.1f} usable ({need / usable:.0%})"


def _too_big(memory: Json) -> str:
    """By how much, and which memory: the devices', the hosts' or both."""
    stages, usable = memory["stages"], memory["usable_bytes"] / GIB
    fullest = max(stages, key=lambda stage: stage["least_bytes"])
    where = f"stage {fullest['stage']}" if len(stages) > 1 else "every device"
    need, largest = fullest["least_bytes"] / GIB, fullest["largest_term"]
    device = f"{where} needs {need:.1f} GiB of {usable:.1f} usable"
    term = f", {fullest['terms'][largest] / GIB:.1f} of it {largest}"
    if memory["short_of"] == ["device"]:
        return f"TOO BIG by {need - usable:.1f} GiB: {device}{term}"
    host = memory["host"]
    over = -host["free_bytes_per_node"] / GIB
    hosts = (
        f"what is offloaded takes {host['needed_bytes_per_node'] / GIB:.1f} GiB of host memory per node, "
        f"a node has {host['memory_bytes_per_node'] / GIB:.1f}"
    )
    if memory["short_of"] == ["host"]:
        return f"TOO BIG for the hosts by {over:.1f} GiB per node: {hosts}; {device}"
    return f"TOO BIG by {need - usable:.1f} GiB, and for the hosts by {over:.1f} GiB per node: {device}{term}; {hosts}"


def _illegal(violations: list[Json]) -> str:
    """Who refuses the plan: the framework, or the planner because the plan contradicts itself or its scenario."""

    def rules(count: int) -> str:
        return f"{count} {'rule is' if count == 1 else 'rules are'} broken"

    refused = [entry for entry in violations if entry["framework"]]
    others = len(violations) - len(refused)
    if not refused:
        return f"ILLEGAL: the plan contradicts itself or its scenario, {rules(others)}"
    verdict = f"ILLEGAL under {refused[0]['framework']} {refused[0]['framework_version']}: {rules(len(refused))}"
    return verdict + (f"; it also contradicts itself or its scenario, {rules(others)}" if others else "")


def _entries(answer: Json, scenario: Scenario) -> Iterator[tuple[str, str]]:
    if "read" in answer:
        yield from _read(answer["read"])
    yield "plan", _plan_line(answer["plan"], options_in_words(answer["plan"], scenario))
    for entry in answer["normalised"]:
        yield "read as", f"{entry['field']} {entry['value']}, not {entry['given']}: {entry['why']}"
    for label, assumed in (("assumed", True), ("follows", False)):
        fields = _derived(answer["derived"], assumed=assumed)
        if fields:
            yield label, fields
    for entry in answer["violations"]:
        yield "broken", f"{entry['rule']}: {entry['reason']} [{entry['source']}]"
    for entry in answer["policy"]:
        yield "unusual", f"{entry['rule']}: {entry['reason']}; no framework refuses it, suggest lists no such plan"
    for hint in answer["hints"]:
        yield "hint", f"{hint['field']} {' or '.join(map(str, hint['values']))} would do: {hint['why']}"
    if answer["prediction"]:
        yield "step", _prediction(answer["prediction"])
        yield "time", _time(answer["prediction"])
    if answer["bounds"]:
        yield "step", _bounds(answer["bounds"])
    if answer["memory"]["stages"]:
        yield "memory", "\n".join(memory_lines(answer["memory"]))
    if answer["prediction"]:
        yield from (("", text) for text in held_in_words(answer["prediction"]["memory"], "fullest stage"))
    if answer["status"] == "at_risk":
        yield "risk", AT_RISK_MEANS
    if answer["prediction"]:
        yield "rests on", answer["calibrated_on"]["text"]
    if answer["calibrated_range"]["beyond"]:
        yield "range", f"{BEYOND_RANGE}: {'; '.join(answer['calibrated_range']['beyond'])}"
    if answer["status"] not in FITTING:
        yield from _nearest(answer)
    if answer["best"]:
        yield "best", _best(answer)


def _read(read: Json) -> Iterator[tuple[str, str]]:
    """How a framework's configuration was understood."""
    if read["meanings"]:
        said: dict[str, list[str]] = {}
        for field, words in read["meanings"].items():
            said.setdefault(words, []).append(field)
        yield "read", "\n".join(f"{words}  ->  {', '.join(fields)}" for words, fields in said.items())
    for words, why in read["unread"].items():
        yield "unread", f"{words}: {why}"
    for note in read["notes"]:
        yield "note", note
    if read["ignored"]:
        yield "ignored", f"says nothing of a plan: {', '.join(read['ignored'])}"


def _derived(derived: list[Json], *, assumed: bool) -> str:
    def told(entry: Json) -> str:
        return f"{entry['field']} {_value(entry)}" + (f" ({entry['why']})" if entry["avoids"] else "")

    return ", ".join(told(entry) for entry in derived if entry["assumed"] == assumed)


def _value(entry: Json) -> str:
    value = entry["value"]
    if entry["field"] == "layers_per_chunk":
        return shortened(layers for device in value for layers in device)
    if entry["field"] == "recompute_modules":
        return ", ".join(value) or "none"
    return shortened(value) or "none" if isinstance(value, list | tuple) else str(value).lower()


def _plan_line(plan: Json, options: list[str]) -> str:
    """A plan in one line; degrees of one that say nothing are left out."""
    parts = [f"{axis} {plan[axis]}" for axis in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp") if _speaks(axis, plan)]
    parts.append(f"ZeRO {sharding(plan)}")
    parts.append(f"micro-batch {plan['micro_batch_size']} x {plan['num_microbatches']}")
    if plan["pp"] > 1:
        parts += [plan["schedule"], f"layers {shortened(plan['layers_per_stage']) or 'not known'}"]
    parts.append(f"recompute {plan['recompute']}")
    if plan["recompute"] == "full" and plan["recomputed_layers_per_stage"] != plan["layers_per_stage"]:
        parts[-1] += f" of {shortened(plan['recomputed_layers_per_stage'])} layers"
    parts += options
    parts.append(f"{plan['devices_used']} devices")
    return ", ".join(parts)


def _speaks(axis: str, plan: Json) -> bool:
    return bool(axis in ("tp", "pp", "dp") or plan[axis] > 1)


def _prediction(prediction: Json) -> str:
    low, high = prediction["step_time_interval_s"]
    return (
        f"{_seconds(prediction['step_time_s'])} s ({_seconds(low)} to {_seconds(high)}, {prediction['provenance']}), "
        f"{prediction['tokens_per_s_per_device']:.0f} tokens/s/device, MFU {prediction['mfu']:.1%}"
    )


def _seconds(value: float) -> str:
    """Three digits, or whole seconds."""
    return f"{value:.{max(0, 2 - floor(log10(value)))}f}"


def _time(prediction: Json) -> str:
    step = prediction["step_time_s"]
    parts = sorted(prediction["time"].items(), key=lambda part: -part[1])
    shown = [f"{name} {seconds / step:.1%}" for name, seconds in parts if seconds >= _LEAST_SHARE * step]
    return ", ".join(shown)


def _bounds(bounds: Json) -> str:
    low, high = bounds["step_time_s"]
    span = f"at least {_seconds(low)} s" + (f", at most {_seconds(high)} s" if high is not None else "")
    return f"not priced yet: {', '.join(bounds['because'])}; {span}"


def _nearest(answer: Json) -> Iterator[tuple[str, str]]:
    nearest = answer["nearest"]
    if nearest is None:
        why = answer["infeasibility"]
        yield "nearest", "\n".join(why_not(why)) if why else "none was found in what was searched"
    else:
        yield "nearest", _changes(nearest)
        risk = " (at risk)" if nearest["status"] == "at_risk" else ""
        yield "", f"then {_prediction(nearest['prediction'])}, {_gib(nearest)}{risk}"
    searched = answer["searched"]
    if searched and (nearest is None or searched["own"]):
        yield "searched", _searched(searched)


def _searched(searched: Json) -> str:
    own = searched["own"]
    axes = [f"{axis} {_span(values)}" for axis, values in searched.items() if axis != "own" and list(values) != [1]]
    added = ", ".join(f"{axis} {value}" for axis, value in own.items())
    return "; ".join(axes) + (f" (with {added} of the plan's own)" if added else "")


def _span(values: list[int]) -> str:
    if len(values) <= _MOST_VALUES:
        return ", ".join(map(str, sorted(values)))
    return f"{len(values)} values from {min(values)} to {max(values)}"


def _gib(entry: Json) -> str:
    return f"{entry['prediction']['memory']['peak_bytes'] / GIB:.1f} GiB"


def _changes(entry: Json) -> str:
    told = ", ".join(map(_change, entry["changes"])) or "nothing changes"
    follows = ", ".join(map(_change, entry["follows"]))
    return told + (f" (so {follows})" if follows else "")


def _change(change: Json) -> str:
    def shown(value: Any) -> str:
        return shortened(value) or "none" if isinstance(value, list) else str(value)

    return f"{change['axis']} {shown(change['from'])} -> {shown(change['to'])}"


def _best(answer: Json) -> str:
    best = answer["best"]
    if not best["changes"] and not best["follows"]:
        return "this plan is the best of those searched"
    parts = [_prediction(best["prediction"]), _gib(best)]
    gain = best["gain"]
    if gain is not None:
        what = {"step_time": "shorter step", "cost": "cheaper step", "fewest_devices": "fewer devices"}
        parts.append(
            f"{gain:.1%} {what[best['objective']]}" if gain > 0 else "no gain: the plan is as good as any searched"
        )
        rank, listed = best["rank"], best["listed"]
        parts.append(
            f"this plan ranks {rank} among different plans" if rank else f"this plan ranks beyond the first {listed}"
        )
        if best["intervals_overlap"]:
            parts.append("though the intervals overlap")
    because = best.get("because")
    told = f". What decides: {because['parts']}" if because is not None and gain is not None and gain > 0 else ""
    return f"{_changes(best)}; then {', '.join(parts)}{told}"
