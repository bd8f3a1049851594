"""Measurements of the store as runs to learn from: scenario and plan are known exactly, nothing is read from words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.calibration.calibration import Calibration
from costmodel.plan_rows import encode, layout_of, recomputes_some
from costmodel.recompute_modules import NOT_PRICED
from costmodel.runs.cases import Case, Unpriced, cases_of
from costmodel.runs.columns import Run
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.plan import Plan
from db import records
from db.repositories import Repositories
from planner.profiling.probe.facts import CPU_BACKEND, CPU_FAMILY
from planner.stored.records import scenario_of_plan

_GIB = 2**30
_PAGE = 200


@dataclass(frozen=True, kw_only=True)
class StoredRuns:
    """What was measured.

    Attributes:
        runs: a row for each measurement that says a time or memory and that the cost model can price.
        left_out: why others are not among them, a line for each reason.
        cases: by the id of the run.
    """

    runs: tuple[Run, ...]
    left_out: tuple[str, ...]
    cases: Mapping[str, Case]

    def as_cases(
        self, runs: tuple[Run, ...], calibration: Calibration, known: ClusterSpec | None = None
    ) -> list[Case | Unpriced]:
        """Every run as a case under the calibration, in order; what is not of the store as ``cases_of`` has it."""
        others = iter(cases_of(tuple(run for run in runs if run.id not in self.cases), calibration, known))
        shared: dict[tuple[object, ...], Scenario] = {}
        found: list[Case | Unpriced] = []
        for run in runs:
            own = self.cases.get(run.id)
            if own is None:
                found.append(next(others))
                continue
            if own.key not in shared:
                shared[own.key] = own.scenario.model_copy(update={"calibration": calibration})
            found.append(replace(own, scenario=shared[own.key]))
        return found


def stored_runs(repos: Repositories) -> StoredRuns:
    """All that ran to its end, or was stopped after it had been measured."""
    left_out: dict[str, list[str]] = {}
    count = 0
    cases: dict[str, Case] = {}
    scenarios: dict[tuple[str, str, int], Scenario] = {}
    for count, measured in enumerate(_measurements(repos), 1):  # noqa: B007
        plan = repos.plans.get(measured.plan_id)
        assert plan is not None, "foreign keys hold"
        about = plan.scenario_id, plan.calibration_id, plan.plan["global_batch_size"]
        if about not in scenarios:
            scenarios[about] = _scenario(repos, plan)
        scenario, on_cpus = scenarios[about], measured.environment.get("backend") == CPU_BACKEND
        if on_cpus and scenario.cluster.accelerator.family != CPU_FAMILY:
            reason = f"they ran on CPUs, which say nothing of {scenario.cluster.accelerator.name}"
            left_out.setdefault(reason, []).append(measured.id)
            continue
        run = _run(measured, scenario, Plan.model_validate(plan.plan), on_cpus=on_cpus)
        case = _case(run, scenario, Plan.model_validate(plan.plan), plan.scenario_id)
        if isinstance(case, Unpriced):
            left_out.setdefault(case.reason, []).append(measured.id)
        else:
            cases[run.id] = case
    return StoredRuns(
        runs=tuple(case.run for case in cases.values()),
        left_out=tuple(_left_out(reason, ids, count) for reason, ids in left_out.items()),
        cases=cases,
    )


def _left_out(reason: str, ids: Sequence[str], of: int) -> str:
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return f"{len(ids)} of {of} measurements taught nothing, since {reason} ({ids[0]}{more})"


def _measurements(repos: Repositories) -> Iterator[records.Measurement]:
    after = None
    while True:
        page = repos.measurements.list(status="ok", after=after, limit=_PAGE)
        yield from page.items
        if page.next is None:
            return
        after = page.next


def _scenario(repos: Repositories, plan: records.Plan) -> Scenario:
    scenario, calibration = repos.scenarios.get(plan.scenario_id), repos.calibrations.get(plan.calibration_id)
    assert scenario is not None, "foreign keys hold"
    assert calibration is not None, "foreign keys hold"
    return scenario_of_plan(scenario, calibration, plan.plan)


def _run(measured: records.Measurement, scenario: Scenario, plan: Plan, *, on_cpus: bool) -> Run:
    """The row, for what is read of rows: what was measured, and for whom."""
    allocated, reserved = measured.peak_allocated_bytes, measured.peak_reserved_bytes
    if on_cpus:
        # Pages of a process, which say nothing of an accelerator's allocator: parameters of memory are a framework's.
        allocated = reserved = None
    memory = reserved if allocated is None else allocated
    return Run(
        id=measured.id,
        group=f"own/{scenario.model.name}/{scenario.cluster.name}",
        source="the database",
        framework=scenario.framework.name,
        model_name=scenario.model.name,
        accelerator=scenario.cluster.accelerator.name,
        precision=scenario.workload.precision.name,
        devices=plan.devices_used,
        seq_len=plan.seq_len,
        global_batch=plan.global_batch_size,
        offload=plan.offload,
        measured_step_time_s=measured.step_time_s,
        measured_tokens_per_s_per_device=measured.tokens_per_s_per_device,
        measured_peak_mem_gb=memory / _GIB if memory else None,
        mem_kind="reserved" if allocated is None else "allocated",
    )


def _case(run: Run, scenario: Scenario, plan: Plan, scenario_id: str) -> Case | Unpriced:
    layout = layout_of(plan, scenario.model.num_layers)
    unpriced = [module for module in plan.recompute_modules if module in NOT_PRICED]
    reason = ""
    if layout is None:
        reason = "their stages have layers of their own, which no row of the fit can say"
    elif recomputes_some(plan):
        reason = "they recompute some layers of their stages, which no row of the fit can say"
    elif unpriced:
        reason = f"selective recompute of {', '.join(unpriced)} has no price"
    elif run.measured_step_time_s is None and run.measured_tokens_per_s_per_device is None:
        reason = "" if run.measured_peak_mem_gb else "neither time nor memory was measured"
    if reason or layout is None:
        return Unpriced(run=run, reason=reason)
    # Whether sequences are cut along with tp is a fact of the whole run to the cost model.
    cut = plan.sequence_parallel or plan.tp == 1
    return Case(
        run=run,
        scenario=scenario.model_copy(update={"sequence_parallel": cut}),
        key=("stored", scenario_id, plan.global_batch_size, cut),
        rows=(encode(scenario, plan, layout),),
        notes=(),
    )
