"""Plan files and questions for tests of ``check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.check.check import check
from planner.check.question import CheckQuestion

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "cluster": "dgx-h100",
    "devices": 16,
    "global_batch_size": 64,
    "seq_len": 4096,
}
"""Small enough that a search takes a moment, large enough that not everything fits."""


def write_plan(folder: Path, plan: Any, name: str = "plan.json") -> str:
    """A plan file; its path."""
    path = folder / name
    path.write_text(plan if isinstance(plan, str) else json.dumps(plan), encoding="utf-8")
    return str(path)


def checked(folder: Path, plan: Any, **how: Any) -> dict[str, Any]:
    """The answer about a plan in ``SCENARIO`` as far as ``how`` says nothing else; without the best plan."""
    question = {**SCENARIO, "best": False, **how}
    return check(CheckQuestion(plan=write_plan(folder, plan), **question)).answer


def slugs(answer: dict[str, Any]) -> set[str]:
    """The rules that the plan breaks."""
    return {violation["rule"] for violation in answer["violations"]}
