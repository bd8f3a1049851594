"""The judge's part on what Megatron-Core can build of a model, and how it cuts mixers and, once, experts."""

from __future__ import annotations

from costmodel.checker.findings import Findings
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


def _parts(plan: Plan, scenario: Scenario) -> Findings:
    model, framework = scenario.model, scenario.framework
    kind = model.hybrid.mixer.kind if model.hybrid else None
    for slug, feature, there in (
        ("latent_attention_known", "latent_attention", model.mla is not None),
        ("shared_experts_known", "shared_experts", bool(model.moe and model.moe.shared_expert_ffn_hidden_size)),
        ("multi_token_prediction_known", "multi_token_prediction", model.num_mtp_layers > 0),
        ("gated_delta_net_known", "gated_delta_net", kind == "gated_delta_net"),
    ):
        if there and not framework.has(feature):
            yield slug, f"{model.name} has what {framework.title} {framework.version} lacks"
    if model.mla and plan.tp > 1 and framework.has("latent_attention") and not framework.has("latent_attention_tp"):
        yield "latent_attention_without_tensor_parallelism", f"tp {plan.tp} in {framework.version}"


def _mixers(plan: Plan, scenario: Scenario) -> Findings:
    hybrid = scenario.model.hybrid
    if hybrid is None or hybrid.mixer.kind not in ("mamba2", "gated_delta_net"):
        return
    mixer, tp, cp = hybrid.mixer, plan.tp, plan.cp
    if cp > 1 and not scenario.framework.has(mixer.kind + "_cp"):
        yield "mixer_context_parallelism_known", f"{mixer.kind} on cp {cp} in {scenario.framework.version}"
    heads, groups = divmod(mixer.num_heads, tp), divmod(mixer.num_key_heads, tp)
    fits = heads[1] == groups[1] == 0 and heads[0] % cp == 0
    if fits and groups[0] % cp:
        fits = mixer.kind == "mamba2" and groups[0] < cp and cp % groups[0] == 0
    if not fits:
        found = f"{mixer.num_heads} heads and {mixer.num_key_heads} key heads over tp {tp} and cp {cp}"
        yield "mixer_heads_divisible_by_tp_and_cp", found


def _experts_cut_by_tp(plan: Plan, scenario: Scenario) -> Findings:
    if scenario.framework.has("expert_tensor_parallel"):
        return
    if plan.dp % plan.ep:
        yield "experts_divide_data_parallel", f"dp {plan.dp} over ep {plan.ep}"
    if scenario.model.moe and plan.etp != plan.tp:
        yield "expert_tensor_parallel_is_tp", f"etp {plan.etp} with tp {plan.tp}"


MEGATRON_MODEL_PARTS = (_parts, _mixers, _experts_cut_by_tp)
