"""What people reported of their plans and runs (user_cases.jsonl), and which test checks which report.

Each report has a ``check`` that says in machine-readable form what a planner should have answered: a verdict, a number
with a tolerance, an order or a policy. Bands are those of the report.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from costmodel.calibration.calibration import Calibration
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import load_framework, load_optimizer, load_precision
from costmodel.catalog.model_catalog import load_model
from costmodel.rules import broken
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction
from costmodel.runs.predictions import predict_runs
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.spec.workload import Workload
from planner.question import Question
from tests.plans import finished, slugs
from tests.scenarios import UNCALIBRATED, plan_row
from tests.searches import suggest

GIB = 2**30
GB = 1e9

Report = dict[str, Any]
REPORTS: dict[str, Report] = {
    report["id"]: report
    for report in map(json.loads, Path(__file__).with_name("user_cases.jsonl").read_text(encoding="utf-8").splitlines())
}

TESTED: dict[str, set[str]] = defaultdict(set)
"""Report -> names of its tests."""
EXPECTED_TO_FAIL: dict[str, dict[str, str]] = defaultdict(dict)
"""Report -> those of its tests that fail as yet, and why."""

_Test = TypeVar("_Test", bound=Callable[..., None])


class TableRow(Protocol):
    """A row of a table of cases: the report that it is about, and why it fails as yet, if it does."""

    @property
    def report(self) -> str: ...

    @property
    def fails(self) -> str: ...


def check_of(report: str) -> dict[str, Any]:
    """What the report says a planner should have answered."""
    return dict(REPORTS[report]["check"])


def _register(report: str, test: str, fails: str) -> list[pytest.MarkDecorator]:
    assert report in REPORTS, f"{test}: there is no report {report}"
    TESTED[report].add(test)
    if not fails:
        return []
    EXPECTED_TO_FAIL[report][test] = fails
    return [pytest.mark.xfail(reason=f"{report}: {fails}", raises=AssertionError, strict=True)]


def reported(report: str, *, fails: str = "") -> Callable[[_Test], _Test]:
    """Marks the test of one report."""

    def mark(test: _Test) -> _Test:
        for marker in _register(report, test.__name__, fails):
            test = marker(test)
        return test

    return mark


def each(cases: Iterable[TableRow]) -> Callable[[_Test], _Test]:
    """Marks a test that runs once for each case of a table, as its parameter ``case``."""

    def mark(test: _Test) -> _Test:
        rows = [
            pytest.param(case, marks=_register(case.report, test.__name__, case.fails), id=case.report)
            for case in cases
        ]
        parametrized: _Test = pytest.mark.parametrize("case", rows)(test)
        return parametrized

    return mark


def scenario_for(
    model: str | ModelSpec,
    *,
    framework: str = "megatron-core",
    version: str | None = None,
    cluster: str = "dgx-h100",
    devices: int = 8,
    batch: int = 64,
    seq_len: int = 8192,
    precision: str = "bf16",
    optimizer: str = "adamw",
    calibration: Calibration = UNCALIBRATED,
) -> Scenario:
    """A question under a framework at a version; without a calibration, as rules need none."""
    return Scenario(
        model=load_model(model) if isinstance(model, str) else model,
        cluster=load_cluster(cluster),
        devices=devices,
        workload=Workload(
            global_batch_size=batch,
            seq_len=seq_len,
            precision=load_precision(precision),
            optimizer=load_optimizer(optimizer),
        ),
        framework=load_framework(framework, version),
        calibration=calibration,
    )


def world(axes: dict[str, int]) -> int:
    """Devices of the dense mesh."""
    return prod(axes.get(axis, 1) for axis in ("tp", "cp", "dp", "pp"))


def verdict(scenario: Scenario, **axes: int) -> set[str]:
    """The rules that a plan breaks, on which rules and checker have to agree."""
    row = plan_row(scenario.workload.global_batch_size, **axes)
    found = {rule.name for rule, _ in broken(scenario, row)}
    assert slugs(finished(scenario, row), scenario) == found
    return found


def predicted(report: str, **columns: Any) -> RunPrediction:
    """What ``planner predict`` says of a run."""
    return predict_runs([Run(id=report, **columns)])[0]


def seconds(report: str, **run: Any) -> float:
    """Predicted step time of a run."""
    step = predicted(report, **run).step_time_s
    assert step is not None
    return step


def tokens_per_s(report: str, **run: Any) -> float:
    """Tokens per second and device."""
    return float(run["global_batch"] * run["seq_len"] / (seconds(report, **run) * run["devices"]))


def answered(**question: Any) -> dict[str, Any]:
    """The answer of ``planner suggest --json``."""
    return suggest(Question(**({"seq_len": 4096, "top": 3} | question)))
