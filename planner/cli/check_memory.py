"""The memory of a plan's stages as a small table in GiB."""

from __future__ import annotations

from itertools import groupby
from typing import Any

Json = dict[str, Any]

_GIB = 2**30
_MOST_ROWS = 8
_SHORT = {
    "parameters": "params",
    "weight_copies": "copies",
    "gradients": "grads",
    "optimizer": "optimizer",
    "activations": "activations",
    "recompute_workspace": "workspace",
    "logits": "logits",
    "dispatch_buffers": "dispatch",
    "cp_buffers": "cp",
    "gathered_parameters": "gathered",
    "hot_experts": "hot experts",
    "comm_buffers": "comm",
    "overhead": "overhead",
    "optimizer_step": "opt step",
}


def memory_lines(memory: Json) -> list[str]:
    """A header and a row per run of stages that need the same; of many, those that need the most."""
    stages, usable = memory["stages"], memory["usable_bytes"]
    names = [name for name in stages[0]["terms"] if any(stage["terms"][name] for stage in stages)]
    runs = [list(run) for _, run in groupby(stages, key=lambda stage: (stage["verdict"], stage["terms"]))]
    fullest = sorted(runs, key=lambda run: -run[0]["most_bytes"])[:_MOST_ROWS]
    table = [["stage", "GiB", "of usable", "", *(_SHORT.get(name, name) for name in names)]]
    for run in (run for run in runs if run in fullest):
        first, last = run[0], run[-1]
        need = first["most_bytes"]
        table.append(
            [
                str(first["stage"]) if first is last else f"{first['stage']}..{last['stage']}",
                f"{need / _GIB:.1f}",
                f"{need / usable:.0%}",
                first["verdict"].replace("_", " "),
                *(f"{first['terms'][name] / _GIB:.1f}" for name in names),
            ]
        )
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    hidden = sum(len(run) for run in runs) - sum(len(run) for run in fullest)
    if hidden:
        lines.append(f"{hidden} more stages need less (--json has them all)")
    if memory["host"] is not None:
        lines.append(_host_line(memory["host"]))
    return lines


def _host_line(host: Json) -> str:
    """``hosts: 526.0 GiB of 2048.0 per node (26%), fits``."""
    needed, there = host["needed_bytes_per_node"], host["memory_bytes_per_node"]
    if needed is None:
        return "hosts: what is offloaded is not priced"
    if there is None:
        return f"hosts: {needed / _GIB:.1f} GiB per node, of a memory that is not known"
    verdict = host["verdict"].replace("_", " ")
    return f"hosts: {needed / _GIB:.1f} GiB of {there / _GIB:.1f} per node ({needed / there:.0%}), {verdict}"
