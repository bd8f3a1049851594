"""The list of targets as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.cli.report import PipedConsole, figures_table


def print_targets(targets: Sequence[Mapping[str, Any]]) -> None:
    """A line for each target."""
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
    PipedConsole.on_stdout().print(table)


def _versions(versions: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((versions[0], versions[-1]))) if versions else ""
