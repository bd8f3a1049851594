"""The judge's part on how tokens reach their experts: dispatcher, overlap with compute, and capacity."""

from __future__ import annotations

from costmodel.checker.findings import Findings
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _on_offer(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    version = f"{framework.title} {framework.version}"
    known = framework.known_moe_dispatchers()
    if plan.ep > 1 and known is not None and plan.moe_dispatcher not in known:
        yield "moe_dispatcher_known", f"moe_dispatcher {plan.moe_dispatcher}, {version} has {', '.join(known)}"
    if plan.ep_overlap and not framework.has("ep_overlap"):
        yield "ep_overlap_known", f"ep_overlap in {version}"
    if plan.moe_capacity_factor is not None:
        if not framework.has("moe_capacity"):
            yield "capacity_known", f"moe_capacity_factor {plan.moe_capacity_factor} in {version}"
        if scenario.model.moe is None:
            yield "capacity_needs_moe", f"moe_capacity_factor {plan.moe_capacity_factor} without experts"


def _megatron_overlap(plan: Plan, scenario: Scenario) -> Findings:
    """transformer_config.py of Megatron-Core 0.16.1, lines 1852-1906, and of the repository, lines 3003-3050."""
    if not plan.ep_overlap:
        return
    framework, predictors = scenario.framework, scenario.model.num_mtp_layers
    if plan.ep == 1:
        yield "ep_overlap_needs_ep", "ep_overlap with ep 1"
    if plan.moe_dispatcher == "all_gather":
        yield "ep_overlap_dispatcher", "ep_overlap with moe_dispatcher all_gather"
    if plan.pp > 1 and plan.vpp == 1:
        yield "ep_overlap_needs_virtual_stages", f"ep_overlap with pp {plan.pp} and vpp 1"
    if plan.recompute == "full":
        yield "ep_overlap_without_full_recompute", "ep_overlap with recompute full"
    if "moe" in plan.recompute_modules and framework.has("ep_overlap_whole_moe"):
        yield "ep_overlap_without_moe_recompute", "ep_overlap with recompute_modules moe"
    if scenario.workload.precision.activation_bytes == 4:
        yield "ep_overlap_precision", f"ep_overlap with precision {scenario.workload.precision.name}"
    if predictors > 1:
        yield "ep_overlap_mtp", f"ep_overlap with {predictors} layers of multi-token prediction"
    if predictors == 1 and plan.pp == 1 and framework.has("ep_overlap_mtp_in_pipeline"):
        yield "ep_overlap_mtp_in_pipeline", "ep_overlap with multi-token prediction and pp 1"


def _megatron_capacity(plan: Plan, scenario: Scenario) -> Findings:
    if plan.moe_capacity_factor is None or plan.ep == 1:
        return
    padded = plan.moe_dispatcher == "deduplicated" and scenario.framework.has("hybrid_ep")
    if plan.moe_dispatcher != "all_to_all" and not padded:
        yield "capacity_dispatcher", f"moe_capacity_factor with moe_dispatcher {plan.moe_dispatcher}"


DISPATCH_PARTS = (_on_offer,)
MEGATRON_EXPERT_PARTS = (_megatron_overlap, _megatron_capacity)
