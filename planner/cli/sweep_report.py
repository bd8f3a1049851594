"""A sweep as people read it: one line per point."""

from __future__ import annotations

from typing import Any

from planner.cli.report import PipedConsole, figures_table

Json = dict[str, Any]

_AXES = ("tp", "cp", "pp", "vpp", "ep", "dp", "micro_batch_size")
_SHORT = {"micro_batch_size": "mbs"}
_ALWAYS = ("tp", "pp", "dp", "micro_batch_size")


def print_sweep(found: Json) -> None:
    """The table on stdout."""
    points = found["points"]
    if not points:
        return
    console = PipedConsole.on_stdout()
    rows = [_cells(point, _axes(points), found) for point in points]
    table = figures_table(*rows[0], words=0, words_last=True)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    console.print(_footnotes(points), soft_wrap=True)


def _axes(points: list[Json]) -> list[str]:
    """Of a plan's axes those that are told: always some, the others where any plan uses them."""
    plans = [point["plan"] for point in points if point["plan"] is not None]
    return [axis for axis in _AXES if axis in _ALWAYS or any(plan[axis] > 1 for plan in plans)]


def _cells(point: Json, axes: list[str], found: Json) -> dict[str, str]:
    cells = {"devices": str(point["devices"])}
    if len(found["global_batch_sizes"]) > 1:
        cells["batch"] = str(point["global_batch_size"])
    if len(found["seq_lens"]) > 1:
        cells["seq"] = str(point["seq_len"])
    plan, prediction = point["plan"], point["prediction"]
    priced = any(other["cost_per_1e9_tokens"] is not None for other in found["points"])
    if plan is None:
        names = ["used", *(_SHORT.get(axis, axis) for axis in axes), "step s", "interval", "tok/s/dev", "efficiency"]
        cells |= dict.fromkeys(names, "")
        cells |= {"cost/1e9 tok": ""} if priced else {}
        return cells | {"": f"{point['status']}: {point['reason']}"}
    low, high = prediction["step_time_interval_s"]
    cells |= {"used": str(plan["devices_used"])}
    cells |= {_SHORT.get(axis, axis): str(plan[axis]) for axis in axes}
    cells |= {
        "step s": f"{prediction['step_time_s']:.3f}",
        "interval": f"{low:.3g}-{high:.3g}",
        "tok/s/dev": f"{prediction['tokens_per_s_per_device']:.0f}",
        "efficiency": f"{point['efficiency']:.1%}",
    }
    if priced:
        cells["cost/1e9 tok"] = f"{point['cost_per_1e9_tokens']:.4g}"
    return cells | {"": "" if point["status"] == "optimal" else _cut(point)}


def _cut(point: Json) -> str:
    return f"cut, at most {point['gap']:.1%} from the best" if point["gap"] is not None else "cut by the deadline"


def _footnotes(points: list[Json]) -> str:
    lines: list[str] = []
    answered = [point for point in points if point["plan"] is not None]
    if answered:
        first = answered[0]
        lines.append(
            f"Efficiency: tokens per second of every device at hand, idle ones too, against {first['devices']} devices "
            f"with {first['global_batch_size']} sequences of {first['seq_len']} tokens."
        )
    told = {point["reason"]: point for point in points if point["told"]}
    lines += [f"{reason}, at {point['devices']} devices: {point['told']}" for reason, point in told.items()]
    return "\n".join(lines)
