"""Published runs as plans of ours: what ``planner check`` says of them, beside what was published, as pages' tables.

``docs/case-studies`` holds the pages; tables lie between ``<!-- NAME -->`` and ``<!-- end -->`` and are written by

    python -m tests.published.case_studies

so that no number on them is typed. Tests hold the pages against what the code says now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from costmodel.flops import model_flops_per_token
from costmodel.spec.model import ModelSpec
from planner.check.check import Checked, check_fields
from planner.check.question import CheckQuestion
from planner.explain.differences import axis_differences, in_words, memory_difference_bytes, time_differences

PAGES = Path(__file__).resolve().parents[2] / "docs/case-studies"
_BLOCK = re.compile(r"(<!-- (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# A small correction of the cost model need not rewrite the pages.
_SAME_SHARE, _SAME = 0.02, 0.5
_CONSTANT_MFU = 0.40
_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Case:
    """One published run.

    Attributes:
        plan: fields of the plan; a str is the name of a file in ``docs/case-studies/plans``.
        model: a catalog name, or a file's path from the root of the sources.
        step_time_s: what was published; ``flops_per_s``: as it was published, FLOP/s per device, None if it was time.
    """

    name: str
    plan: str | Mapping[str, Any]
    model: str | ModelSpec
    cluster: str
    step_time_s: float
    flops_per_s: float | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the plan."""
        if isinstance(self.plan, str):
            return dict(json.loads((PAGES / "plans" / f"{self.plan}.json").read_text(encoding="utf-8")))
        return dict(self.plan)


_checked: dict[tuple[str, bool], Checked] = {}


def checked(case: Case, *, best: bool = False) -> Checked:
    """What ``planner check`` says of the plan, once per case; with ``best`` also what the search would choose."""
    key = (case.name, best)
    if key not in _checked:
        model = str(PAGES.parents[1] / case.model) if isinstance(case.model, str) and "/" in case.model else case.model
        asked = CheckQuestion(plan="-", model=model, cluster=case.cluster, best=best, nearest=False)
        _checked[key] = check_fields(asked, case.fields)
    return _checked[key]


def predicted_s(case: Case) -> float:
    """The predicted step time."""
    return float(checked(case).answer["prediction"]["step_time_s"])


def error(case: Case) -> float:
    """Of the predicted step time, relative to the published one."""
    return predicted_s(case) / case.step_time_s - 1


def constant_mfu_error(case: Case) -> float:
    """The same of a step at 40 % MFU, whatever the plan."""
    scenario = checked(case).scenario
    peak = scenario.cluster.accelerator.peak(scenario.workload.precision.compute)
    flops = model_flops_per_token(scenario.model, scenario.workload.seq_len) * scenario.workload.tokens_per_step
    return flops / (_CONSTANT_MFU * peak * scenario.devices) / case.step_time_s - 1


def results(cases: list[Case]) -> str:
    """Published against predicted, a row per case."""
    lines = [
        "| run | published | step s | predicted s | error | constant 40 % MFU | MFU | HFU | GiB on the fullest stage |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        answer = checked(case).answer
        prediction = answer["prediction"]
        rate = f"{case.flops_per_s / 1e12:.0f} TFLOP/s" if case.flops_per_s else f"{case.step_time_s:.2f} s"
        lines.append(
            f"| {case.name} | {rate} | {case.step_time_s:.2f} | {predicted_s(case):.2f} | {error(case):+.1%} | "
            f"{constant_mfu_error(case):+.1%} | {prediction['mfu']:.1%} | {prediction['hfu']:.1%} | "
            f"{prediction['memory']['peak_bytes'] / _GIB:.1f} of {answer['memory']['usable_bytes'] / _GIB:.1f} |"
        )
    return "\n".join(lines) + "\n"


def breakdown(cases: list[Case]) -> str:
    """Shares of the predicted step by part, a column per case."""
    predictions = [checked(case).answer["prediction"] for case in cases]
    parts = sorted(
        {part for found in predictions for part in found["time"]}, key=lambda part: -_share(predictions, part)
    )
    lines = [f"| part | {' | '.join(case.name for case in cases)} |", f"|---|{'---|' * len(cases)}"]
    for part in parts:
        shares = (found["time"].get(part, 0.0) / found["step_time_s"] for found in predictions)
        lines.append(f"| {part} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    return "\n".join(lines) + "\n"


def _share(predictions: list[dict[str, Any]], part: str) -> float:
    return sum(float(found["time"].get(part, 0.0) / found["step_time_s"]) for found in predictions)


def searched(cases: list[Case]) -> str:
    """What the search would choose for the same scenario, and why it differs."""
    lines: list[str] = []
    for case in cases:
        answer = checked(case, best=True).answer
        own, best = answer["prediction"], answer["best"]
        axes = axis_differences(answer["plan"], best["plan"])
        time = time_differences(own, best["prediction"])
        memory = memory_difference_bytes(own, best["prediction"])
        gain = best["prediction"]["step_time_s"] / own["step_time_s"] - 1
        # Nothing is compared with a plan that does not fit.
        overlap = {True: "overlap", False: "do not overlap", None: "are not compared"}[best["intervals_overlap"]]
        told = in_words(axes, time, memory)
        lines.append(f"- **{case.name}**: {gain:+.1%} step time (the intervals {overlap}); {told}.")
    return "\n".join(lines) + "\n"


Tables = Mapping[str, Callable[[], str]]


def filled(text: str, tables: Tables) -> str:
    """A page with its tables as the code makes them now.

    Raises:
        KeyError: the page has a block that nothing fills.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{tables[found['name']]()}{found[3]}", text)


def check_page(page: str, tables: Tables) -> None:
    """The page says what the code says: the same words, and numbers that a reader would take for the same."""
    text = (PAGES / page).read_text(encoding="utf-8")
    assert {found["name"] for found in _BLOCK.finditer(text)} == set(tables), "the page shows every table"
    now = filled(text, tables)
    hint = "run: python -m tests.published.case_studies"
    assert _NUMBER.sub("#", text) == _NUMBER.sub("#", now), hint
    for said, found in zip(_NUMBER.findall(text), _NUMBER.findall(now), strict=True):
        assert float(said) == pytest.approx(float(found), rel=_SAME_SHARE, abs=_SAME), hint


def main() -> None:
    """Write the tables of all pages."""
    from tests.published import test_case_deepseek, test_case_llama3, test_case_megatron

    for module in (test_case_llama3, test_case_megatron, test_case_deepseek):
        path = PAGES / module.PAGE
        path.write_text(filled(path.read_text(encoding="utf-8"), module.TABLES), encoding="utf-8")


if __name__ == "__main__":
    main()
