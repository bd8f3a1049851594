"""An answer as people read it: a table, what the numbers rest on, and why other plans are not in it."""

from __future__ import annotations

import sys
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from costmodel.stages import shortened
from planner.cli.beside import beside
from planner.cli.exits import tell
from planner.cli.why_not import why_not
from planner.wording import sharding

_GIB = 2**30
_TERA = 1e12
_WIDE_ENOUGH = 160
_UNBOUNDED = 10_000
_AT_RISK = "!"
AT_RISK_MEANS = (
    "fits, at risk: it may run out of memory, since the upper end of its interval lies beyond what is usable, or what "
    "the process would hold beyond the device's memory."
)
BEYOND_RANGE = "Beyond what the calibration's runs were like, so intervals are wider"
_CP_SHORT = {"p2p": "ring", "all_gather": "ag", "a2a": "a2a", "a2a+p2p": "a2a+ring"}
_OPTIONS = "options"
_WORDS = ("layers", "recompute", _OPTIONS, "ZeRO")
_LEAST_TELLING = ("layers", "etp", "devices", "bubble", "tok/s/dev", "vpp")


def print_answer(answer: dict[str, Any]) -> None:
    """The table on stdout; for an answer without plans, the reasons on stderr."""
    if not answer["plans"]:
        _tell_why_not(answer)
        return
    console = PipedConsole.on_stdout()
    console.print(headline(answer["scenario"]), soft_wrap=True)
    table, dropped = _fitting_table(console, answer)
    console.print(table)
    if _OPTIONS in dropped and (options := _options_below(answer)):
        console.print(options, soft_wrap=True)
    console.print(_footnotes(answer), soft_wrap=True)


class PipedConsole(Console):
    """A console that leaves a closed pipe to the caller, where rich would end the process with a code of its own."""

    @classmethod
    def on_stdout(cls) -> PipedConsole:
        """One as wide as the terminal; wide enough for any table where stdout is none."""
        return cls(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE_ENOUGH, highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def figures_table(*titles: str, words: int = 1, words_last: bool = False) -> Table:
    """An empty table: the first columns are words, and the last where it is said; the others numbers, to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for position, title in enumerate(titles):
        is_words = position < words or (words_last and position == len(titles) - 1)
        table.add_column(title, justify="left" if is_words else "right", no_wrap=True)
    return table


def headline(scenario: dict[str, Any]) -> str:
    """What was asked about, in one line; ``scenario`` is an answer's."""
    return (
        f"{scenario['model']} ({scenario['params'] / 1e9:.1f}B) on {scenario['devices']} x "
        f"{scenario['accelerator']} ({scenario['cluster']}), {scenario['global_batch_size']} sequences of "
        f"{scenario['seq_len']} tokens, {scenario['precision']}, {scenario['optimizer']}, "
        f"{scenario['framework_title']} {scenario['framework_version']}"
    )


def _fitting_table(console: Console, answer: dict[str, Any]) -> tuple[Table, set[str]]:
    """The table with as many columns as the terminal has room for, and those that it lacks.

    The least telling ones go first. Then options take more lines; where even that is too wide, they leave the table.
    """
    dropped: set[str] = {name for name, shown in _shown_only_if(answer).items() if not shown}
    unbounded = console.options.update(width=_UNBOUNDED)
    table = _table(answer, dropped)
    for name in _LEAST_TELLING:
        if table.__rich_measure__(console, unbounded).maximum <= console.width:
            return table, dropped
        dropped.add(name)
        table = _table(answer, dropped)
    if _OPTIONS not in dropped and table.__rich_measure__(console, unbounded).minimum > console.width:
        dropped.add(_OPTIONS)
        table = _table(answer, dropped)
    return table, dropped


def _options_below(answer: dict[str, Any]) -> str:
    """Each combination of options with the plans that have it; empty where all plans are as usual."""
    plans: dict[str, list[str]] = {}
    for entry in answer["plans"]:
        plans.setdefault(_options(entry), []).append(str(entry["rank"]))
    return "\n".join(
        f"Options of {'plan' if len(ranks) == 1 else 'plans'} {', '.join(ranks)}: {options}."
        for options, ranks in plans.items()
        if options
    )


def _options(entry: dict[str, Any]) -> str:
    """The unusual options of a plan, which a server of an earlier version does not tell."""
    return ", ".join(entry.get("options", ()))


def _shown_only_if(answer: dict[str, Any]) -> dict[str, bool]:
    plans = [entry["plan"] for entry in answer["plans"]]
    experts = any(plan["ep"] > 1 for plan in plans)
    options = any(_options(entry) for entry in answer["plans"])
    batches = any(plan["global_batch_size"] != answer["scenario"]["global_batch_size"] for plan in plans)
    cp = any(plan["cp"] > 1 for plan in plans)
    return {"batch": batches, "cp": cp, "ep": experts, "etp": experts, _OPTIONS: options}


def _table(answer: dict[str, Any], dropped: set[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    rows = [_cells(entry) for entry in answer["plans"]]
    names = [name for name in rows[0] if name not in dropped]
    # Plans may differ in their options only, so these take more lines rather than lose their end.
    least = max((len(option) for entry in answer["plans"] for option in entry.get("options", ())), default=0)
    for name in names:
        table.add_column(
            name,
            justify="left" if name in _WORDS else "right",
            no_wrap=name != _OPTIONS,
            min_width=least + 1 if name == _OPTIONS else None,
        )
    for row in rows:
        table.add_row(*(row[name] for name in names))
    return table


def _cells(entry: dict[str, Any]) -> dict[str, str]:
    plan, prediction = entry["plan"], entry["prediction"]
    step = prediction["step_time_s"]
    return {
        "#": str(entry["rank"]),
        "step s": f"{step:.3f}",
        "tok/s/dev": f"{prediction['tokens_per_s_per_device']:.0f}",
        "MFU": f"{prediction['mfu']:.1%}",
        "batch": str(plan["global_batch_size"]),
        "tp": str(plan["tp"]),
        "cp": str(plan["cp"]) + ("" if plan["cp"] == 1 else f" {_CP_SHORT[plan['cp_comm_type']]}"),
        "pp": str(plan["pp"]),
        "vpp": str(plan["vpp"]),
        "dp": str(plan["dp"]),
        "ep": str(plan["ep"]),
        "etp": str(plan["etp"]),
        "ZeRO": sharding(plan),
        "mbs": str(plan["micro_batch_size"]),
        "m": str(plan["num_microbatches"]),
        "layers": shortened(plan["layers_per_stage"]),
        "recompute": _recompute(plan),
        _OPTIONS: _options(entry),
        "bubble": f"{prediction['time'].get('bubble', 0.0) / step:.1%}",
        "GiB": f"{prediction['memory']['peak_bytes'] / _GIB:.1f}" + (_AT_RISK if is_at_risk(prediction) else ""),
        "devices": str(plan["devices_used"]),
    }


def _footnotes(answer: dict[str, Any]) -> str:
    scenario = answer["scenario"]
    best = answer["plans"][0]["prediction"]
    low, high = best["step_time_interval_s"]
    search = answer["search"]
    lines = [
        f"{_verdict(answer)}: {search['meshes']} meshes, {search['plans_considered']} plans priced, "
        f"{search['elapsed_s']:.2f} s.",
        f"Best plan: {low:.2f} to {high:.2f} s ({best['provenance']}, calibration {search['calibration']}); "
        f"{_plans(answer['plans_within'])} within that interval.",
        f"Memory: GiB allocated on the fullest stage, of {best['memory']['usable_bytes'] / _GIB:.1f} usable"
        f"{_in_hosts(best['memory'])}.",
        *held_in_words(best["memory"], "Best plan"),
    ]
    if any(is_at_risk(entry["prediction"]) for entry in answer["plans"]):
        lines.append(f"{_AT_RISK} {AT_RISK_MEANS}")
    lines += [f"{BEYOND_RANGE}: {'; '.join(beyond)}." for beyond in [beyond_range(best)] if beyond]
    used = best.get("utilisation")
    if used is not None:
        rate = f"{used['model_flops_per_s_per_device'] / _TERA:.0f} TFLOP/s a device"
        lines.insert(
            2,
            f"MFU: 6 N and the causal half of attention against the dense {used['peak']} peak. Best plan: {rate}, "
            f"{used['tokens_per_s']:,.0f} tokens/s in all, HFU {used['hfu']:.1%}.",
        )
    lines += beside(answer)
    if "calibrated_on" in search:
        lines.append(f"Calibrated on: {search['calibrated_on']['text']}.")
    elif scenario["not_calibrated"]:  # a server of an earlier version
        names = ", ".join(scenario["not_calibrated"])
        lines.append(f"Not calibrated for {scenario['accelerator']}, general values for: {names}.")
    if answer["eliminated"]:
        lines.append(
            "Left out: " + ", ".join(f"{count} by {rule}" for rule, count in answer["eliminated"].items()) + "."
        )
    return "\n".join(lines)


def is_at_risk(prediction: dict[str, Any]) -> bool:
    """Whether a plan fits, and may not all the same; a server of an earlier version does not tell."""
    return bool(prediction["memory"].get("verdict") == "at_risk")


def held_in_words(memory: dict[str, Any], title: str) -> list[str]:
    """A sentence on what is allocated, between what, and what the process holds; none where it was not told."""
    if "peak_interval_bytes" not in memory:
        return []
    low, high = (end / _GIB for end in memory["peak_interval_bytes"])
    return [
        f"{title}: {memory['peak_bytes'] / _GIB:.1f} GiB allocated ({low:.1f} to {high:.1f}); with the allocator's "
        f"pool and what lies outside of it, the process holds about {memory['reserved_bytes'] / _GIB:.1f} GiB of the "
        f"device's {memory['device_bytes'] / _GIB:.1f}."
    ]


def beyond_range(prediction: dict[str, Any]) -> list[str]:
    """In what a plan lies outside of the calibrated range; empty where a server of an earlier version doesn't tell."""
    return list(prediction.get("calibrated_range", {}).get("beyond", ()))


def _in_hosts(memory: dict[str, Any]) -> str:
    offloaded = memory.get("host_bytes_per_node", 0)
    return f"; the best plan keeps {offloaded / _GIB:.0f} GiB in the memory of a node" if offloaded else ""


def _recompute(plan: dict[str, Any]) -> str:
    """``full``, or ``full 14/80`` where only so many of the layers run again."""
    again, layers = sum(plan["recomputed_layers_per_stage"]), sum(plan["layers_per_stage"])
    partly = plan["recompute"] == "full" and again < layers
    return f"full {again}/{layers}" if partly else str(plan["recompute"])


def _plans(count: int) -> str:
    return "1 plan lies" if count == 1 else f"at least {count} plans lie"


def _verdict(answer: dict[str, Any]) -> str:
    if answer["status"] == "optimal":
        cut = "" if answer["proven_top_k"] else ", the list below it was cut by the deadline"
        return f"Proven best of the space searched{cut}"
    return f"Cut by the deadline, at most {answer['gap']:.1%} from the best"


def _tell_why_not(answer: dict[str, Any]) -> None:
    if answer["status"] == "unknown":
        tell("planner: no plan was found before --max-seconds; give it more time")
        return
    for line in why_not(answer["infeasibility"]):
        tell(f"planner: {line}")
