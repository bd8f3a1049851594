"""The answer of ``check`` as people read it: the verdict first, then its reasons, then what would be better."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from math import floor, log10
from textwrap import wrap
from typing import Any

from costmodel.stages import shortened
from planner.check.check import FITTING, Checked
from planner.cli.check_memory import memory_lines
from planner.cli.report import headline, sharding

Json = dict[str, Any]

GIB = 2**30
_LABEL = 10
_WIDTH = 140
_LEAST_SHARE = 0.005


def print_check(checked: Checked) -> None:
    """The report on stdout."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    lines = [headline(checked.scenario), _verdict(checked.answer), ""]
    for label, text in _entries(checked.answer):
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
        count = len(answer["violations"])
        version = f"{answer['violations'][0]['framework']} {answer['violations'][0]['framework_version']}"
        return f"ILLEGAL under {version}: {count} {'rule is' if count == 1 else 'rules are'} broken"
    fullest = max(stages, key=lambda stage: stage["most_bytes"])
    usable = answer["memory"]["usable_bytes"] / GIB
    where = f"stage {fullest['stage']}" if len(stages) > 1 else "every device"
    if status == "too_big":
        fullest = max(stages, key=lambda stage: stage["least_bytes"])
        need, largest = fullest["least_bytes"] / GIB, fullest["largest_term"]
        return (
            f"TOO BIG by {need - usable:.1f} GiB: {where} needs {need:.1f} GiB of {usable:.1f} usable, "
            f"{fullest['terms'][largest] / GIB:.1f} of it {largest}"
        )
    need = fullest["most_bytes"] / GIB
    if status == "unknown":
        return f"NOT KNOWN TO FIT: {where} needs up to {need:.1f} GiB of {usable:.1f} usable"
    word = "FITS" if status == "fits" else "FITS, AT RISK"
    return f"{word}: legal, and {where} needs {need:.1f} GiB of {usable:.1f} usable ({need / usable:.0%})"


def _entries(answer: Json) -> Iterator[tuple[str, str]]:
    yield "plan", plan_line(answer["plan"])
    for label, assumed in (("assumed", True), ("follows", False)):
        fields = _derived(answer["derived"], assumed=assumed)
        if fields:
            yield label, fields
    for entry in answer["violations"]:
        yield "broken", f"{entry['rule']}: {entry['reason']} [{entry['source']}]"
    if answer["prediction"]:
        yield "step", _prediction(answer["prediction"])
        yield "time", _time(answer["prediction"])
    if answer["bounds"]:
        yield "step", _bounds(answer["bounds"])
    if answer["memory"]["stages"]:
        yield "memory", "\n".join(memory_lines(answer["memory"]))
    if answer["status"] not in FITTING:
        yield from _nearest(answer)
    if answer["best"]:
        yield "best", _best(answer)


def _derived(derived: list[Json], *, assumed: bool) -> str:
    return ", ".join(f"{entry['field']} {_value(entry)}" for entry in derived if entry["assumed"] == assumed)


def _value(entry: Json) -> str:
    value = entry["value"]
    if entry["field"] == "layers_per_chunk":
        return shortened(layers for device in value for layers in device)
    if entry["field"] == "recompute_modules":
        return ", ".join(value) or "none"
    return shortened(value) if isinstance(value, list | tuple) else str(value).lower()


def plan_line(plan: Json) -> str:
    """A plan in one line; degrees of one that say nothing are left out."""
    parts = [f"{axis} {plan[axis]}" for axis in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp") if _speaks(axis, plan)]
    parts.append(f"ZeRO {sharding(plan)}")
    parts.append(f"micro-batch {plan['micro_batch_size']} x {plan['num_microbatches']}")
    if plan["pp"] > 1:
        parts += [plan["schedule"], f"layers {shortened(plan['layers_per_stage'])}"]
    parts.append(f"recompute {plan['recompute']}")
    if plan["recompute"] == "full" and plan["recomputed_layers_per_stage"] != plan["layers_per_stage"]:
        parts[-1] += f" of {shortened(plan['recomputed_layers_per_stage'])} layers"
    if plan["offload"] != "none":
        parts.append(f"offload {plan['offload']}")
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
        told = f"no legal plan fits: {why['conflict'][0]['rule']}: {why['conflict'][0]['reason']}" if why else None
        yield "nearest", told or "none was found in what was searched"
        return
    yield "nearest", _changes(nearest)
    risk = " (at risk)" if nearest["status"] == "at_risk" else ""
    yield "", f"then {_prediction(nearest['prediction'])}, {_gib(nearest)}{risk}"


def _gib(entry: Json) -> str:
    return f"{entry['prediction']['memory']['peak_bytes'] / GIB:.1f} GiB"


def _changes(entry: Json) -> str:
    told = ", ".join(map(_change, entry["changes"])) or "nothing changes"
    follows = ", ".join(map(_change, entry["follows"]))
    return told + (f" (so {follows})" if follows else "")


def _change(change: Json) -> str:
    def shown(value: Any) -> str:
        return shortened(value) if isinstance(value, list) else str(value)

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
    return f"{_changes(best)}; then {', '.join(parts)}"
