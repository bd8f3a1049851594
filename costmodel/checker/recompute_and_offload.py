"""The judge's part on what is recomputed and what lives in host memory, which only a finished plan says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costmodel.checker.findings import Findings
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan

# What a model has to have for a module to be there: the part by name, and whether the model has it.
_NEEDED: Mapping[str, tuple[str, Callable[[ModelSpec], bool]]] = {
    "mla_up_proj": ("latent attention", lambda model: model.mla is not None),
    "moe": ("experts", lambda model: model.moe is not None),
    "moe_act": ("experts", lambda model: model.moe is not None),
    "shared_experts": (
        "shared experts",
        lambda model: model.moe is not None and model.moe.shared_expert_ffn_hidden_size > 0,
    ),
    "gdn_norm_out": (
        "gated delta nets",
        lambda model: model.hybrid is not None and model.hybrid.mixer.kind == "gated_delta_net",
    ),
}


def _recompute(plan: Plan, scenario: Scenario) -> Findings:
    framework, model = scenario.framework, scenario.model
    if plan.recompute_interval > 1:
        if plan.recompute != "full":
            yield "recompute_interval_is_of_whole_layers", f"{plan.recompute_interval} layers under {plan.recompute}"
        if framework.rules and not framework.has("recompute_uniform"):
            yield "recompute_interval_known", f"{plan.recompute_interval} layers a checkpoint in {framework.title}"
    if plan.recompute == "selective" and not framework.selective_modules:
        yield "recompute_known", f"{framework.title} has no selective recompute"
        return
    if not plan.recompute_modules:
        return
    if plan.recompute != "selective":
        named = ", ".join(plan.recompute_modules)
        yield "recompute_modules_are_selective", f"recompute {plan.recompute} takes no recompute_modules, found {named}"
    known = framework.known_recompute_modules()
    for module in plan.recompute_modules:
        if module not in known:
            offered = ", ".join(known) or "none"
            version = f"{framework.title} {framework.version}"
            yield "recompute_modules_known", f"recompute_modules {module}: {version} has {offered}"
            continue
        part, has = _NEEDED.get(module, ("", lambda _: True))
        if not has(model):
            yield "recompute_modules_in_model", f"recompute_modules {module}: {model.name} has no {part}"


def _offload(plan: Plan, scenario: Scenario) -> Findings:
    framework = scenario.framework
    known = framework.known_offloads()
    if plan.offload != "none" and known is not None and plan.offload not in known:
        offered = ", ".join(known) or "no offload"
        yield "offload_known", f"offload {plan.offload}: {framework.title} {framework.version} has {offered}"
    if plan.offload != "none" and not scenario.cluster.host_bandwidth_bytes_per_s:
        yield "offload_needs_host_link", f"offload {plan.offload} on {scenario.cluster.name}, its host link is unknown"


RECOMPUTE_AND_OFFLOAD_PARTS = (_recompute, _offload)
