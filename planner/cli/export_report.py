"""The list of targets as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.cli.report import PipedConsole, figures_table


def print_targets(targets: Sequence[Mapping[str, Any]]) -> None:
    """A line for each target, and below them what each is verified against."""
    headings = ("target", "kind", "plans of", "versions", "check --from")
    table = figures_table(*headings, words=len(headings))
    for target in targets:
        table.add_row(
            target["name"],
            target["kind"],
            ", ".join(target["frameworks"]) or "any",
            _versions(target["versions"]),
            "yes" if target["read"] else "",
        )
    console = PipedConsole.on_stdout()
    console.print(table)
    console.print("verified:")
    for target in targets:
        console.print(f"  {target['name']}: {target['verified']}", markup=False, highlight=False, soft_wrap=True)


def _versions(versions: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((versions[0], versions[-1]))) if versions else ""
