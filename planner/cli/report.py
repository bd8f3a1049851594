"""An answer as people read it: a table, what the numbers rest on, and why other plans are not in it."""

from __future__ import annotations

import sys
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from planner.cli.exits import tell
from planner.service import Suggestion

_GIB = 2**30
_WIDE_ENOUGH = 140


def print_answer(suggestion: Suggestion) -> None:
    """The table on stdout; for an answer without plans, the reasons on stderr."""
    if not suggestion.answer["plans"]:
        _tell_why_not(suggestion.answer)
        return
    width = None if sys.stdout.isatty() else _WIDE_ENOUGH
    console = Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False)
    console.print(_headline(suggestion))
    console.print(_table(suggestion.answer))
    console.print(_footnotes(suggestion))


def _headline(suggestion: Suggestion) -> str:
    scenario = suggestion.request.scenario
    work = scenario.workload
    return (
        f"{scenario.model.name} ({scenario.model.params.total / 1e9:.1f}B) on {scenario.devices} x "
        f"{scenario.cluster.accelerator.name} ({scenario.cluster.name}), {work.global_batch_size} sequences of "
        f"{work.seq_len} tokens, {work.precision.name}, {work.optimizer.name}, "
        f"{scenario.framework.title} {scenario.framework.version}"
    )


def _table(answer: dict[str, Any]) -> Table:
    moe = any(entry["plan"]["ep"] > 1 for entry in answer["plans"])
    context = any(entry["plan"]["cp"] > 1 for entry in answer["plans"])
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    columns = ["#", "step s", "tok/s/dev", "MFU", "tp", *(["cp"] if context else []), "pp", "vpp", "dp"]
    columns += [*(["ep", "etp"] if moe else []), "ZeRO", "mbs", "m", "layers", "recompute", "bubble", "GiB", "devices"]
    for column in columns:
        table.add_column(column, justify="left" if column in ("layers", "recompute", "ZeRO") else "right", no_wrap=True)
    for entry in answer["plans"]:
        table.add_row(*_cells(entry, moe=moe, context=context))
    return table


def _cells(entry: dict[str, Any], *, moe: bool, context: bool) -> list[str]:
    plan, prediction = entry["plan"], entry["prediction"]
    step = prediction["step_time_s"]
    return [
        str(entry["rank"]),
        f"{step:.3f}",
        f"{prediction['tokens_per_s_per_device']:.0f}",
        f"{prediction['mfu']:.1%}",
        str(plan["tp"]),
        *([f"{plan['cp']}" + ("" if plan["cp"] == 1 else f" {plan['cp_comm_type']}")] if context else []),
        str(plan["pp"]),
        str(plan["vpp"]),
        str(plan["dp"]),
        *([str(plan["ep"]), str(plan["etp"])] if moe else []),
        _sharding(plan),
        str(plan["micro_batch_size"]),
        str(plan["num_microbatches"]),
        shortened(plan["layers_per_stage"]),
        plan["recompute"],
        f"{prediction['time'].get('bubble', 0.0) / step:.1%}",
        f"{prediction['memory']['peak_bytes'] / _GIB:.1f}",
        str(plan["devices_used"]),
    ]


def _sharding(plan: dict[str, Any]) -> str:
    """``2`` or, sharded within groups only, ``2 over 8``."""
    partly = plan["zero_stage"] > 0 and plan["dp_replicate"] > 1
    return f"{plan['zero_stage']} over {plan['dp_shard']}" if partly else str(plan["zero_stage"])


def shortened(layers: list[int]) -> str:
    """``[7, 8, 8, 8, 7]`` as ``7,8x3,7``."""
    runs: list[list[int]] = []
    for count in layers:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(str(count) if times == 1 else f"{count}x{times}" for count, times in runs)


def _footnotes(suggestion: Suggestion) -> str:
    answer, scenario = suggestion.answer, suggestion.request.scenario
    best = answer["plans"][0]["prediction"]
    low, high = best["step_time_interval_s"]
    search = answer["search"]
    lines = [
        f"{_verdict(answer)}: {search['meshes']} meshes, {search['plans_considered']} plans priced, "
        f"{search['elapsed_s']:.2f} s.",
        f"Best plan: {low:.2f} to {high:.2f} s ({best['provenance']}, calibration {search['calibration']}); "
        f"{answer['plans_within']} plans lie within that interval.",
        f"Memory: GiB allocated on the fullest stage, of {best['memory']['usable_bytes'] / _GIB:.1f} usable.",
    ]
    if scenario.resolved.fallbacks:
        names = ", ".join(scenario.resolved.fallbacks)
        lines.append(f"Not calibrated for {scenario.cluster.accelerator.name}, general values for: {names}.")
    if answer["eliminated"]:
        lines.append(
            "Left out: " + ", ".join(f"{count} by {rule}" for rule, count in answer["eliminated"].items()) + "."
        )
    return "\n".join(lines)


def _verdict(answer: dict[str, Any]) -> str:
    if answer["status"] == "optimal":
        return "Proven best of the space searched"
    return f"Cut by the deadline, at most {answer['gap']:.1%} from the best"


def _tell_why_not(answer: dict[str, Any]) -> None:
    if answer["status"] == "unknown":
        tell("planner: no plan was found before --max-seconds; give it more time")
        return
    conflict = answer["infeasibility"]["conflict"]
    first, *others = conflict
    tell(f"planner: no plan fits: {first['rule']}: {first['reason']}")
    for part in others:
        tell(f"  {part['rule']} ({part['meshes']} meshes): {part['reason']}")
