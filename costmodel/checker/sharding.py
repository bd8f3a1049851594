"""The judge's part on when parameters are gathered and gradients reduced, and on ZeRO++."""

from __future__ import annotations

from costmodel.checker.findings import Findings
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _gathers(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    known = framework.known_reshard_after()
    if known is not None and plan.reshard_after not in known:
        yield "reshard_known", f"{framework.title} {framework.version} has no reshard_after {plan.reshard_after}"
    if plan.zero_stage != 3:
        if plan.reshard_after != "forward":
            yield "reshard_needs_zero_3", f"reshard_after {plan.reshard_after} under zero_stage {plan.zero_stage}"
        if plan.fsdp_prefetch != 1:
            yield "prefetch_needs_zero_3", f"fsdp_prefetch {plan.fsdp_prefetch} under zero_stage {plan.zero_stage}"


def _zero_plus(plan: Plan, scenario: Scenario) -> Findings:
    if not plan.zero_plus:
        return
    named = ", ".join(plan.zero_plus)
    unknown = [part for part in plan.zero_plus if part not in scenario.framework.zero_plus]
    if unknown:
        yield "zero_plus_known", f"{scenario.framework.title} has no {', '.join(unknown)}"
    if plan.zero_stage != 3:
        yield "zero_plus_needs_zero_3", f"{named} under zero_stage {plan.zero_stage}"


SHARDING_PARTS = (_gathers, _zero_plus)
