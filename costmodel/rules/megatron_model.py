"""Megatron's rules on what a model is made of: parts that a version can't build, mixers of hybrids, experts of 0.9."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules import shared
from costmodel.rules.rule import PlanColumns, Row, Rule, divisible_rule
from costmodel.scenario import Scenario
from costmodel.spec.layers import LinearMixer

_WHEELS = "megatron-core (PyPI) megatron/core/"
_REPOSITORY = "NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) megatron/core/"
_MIXERS = (
    "megatron-core 0.16.1 (PyPI) megatron/core/transformer/transformer_config.py:976-986, ssm/mamba_mixer.py:250-262, "
    "ssm/mamba_context_parallel.py:80-103"
)


def _mixer(scenario: Scenario) -> LinearMixer | None:
    """The mixer that the rules are about; Megatron has no lightning attention, so nothing is known of its heads."""
    hybrid = scenario.model.hybrid
    return None if hybrid is None or hybrid.mixer.kind == "lightning" else hybrid.mixer


def _has_shared_experts(scenario: Scenario) -> bool:
    return scenario.model.moe is not None and scenario.model.moe.shared_expert_ffn_hidden_size > 0


def _has_delta_net(scenario: Scenario) -> bool:
    hybrid = scenario.model.hybrid
    return hybrid is not None and hybrid.mixer.kind == "gated_delta_net"


def _mixer_cp_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    mixer = _mixer(scenario)
    return np.asarray((columns["cp"] == 1) | (mixer is None or scenario.framework.has(f"{mixer.kind}_cp")))


def _mixer_cp_reason(scenario: Scenario, row: Row) -> str:
    mixer = _mixer(scenario)
    assert mixer is not None, "a model without a mixer breaks no rule on it"
    framework = scenario.framework
    return f"cp {row['cp']} must be 1: {framework.title} {framework.version} runs {mixer.kind} on whole sequences"


def _mixer_heads_fit(scenario: Scenario, columns: PlanColumns) -> Bools:
    mixer = _mixer(scenario)
    if mixer is None:
        return np.asarray(True)
    tp, cp = columns["tp"], columns["cp"]
    groups = mixer.num_key_heads
    shared_out = groups % (tp * cp) == 0
    if mixer.kind == "mamba2":
        # A group that too many ranks of cp want is repeated.
        shared_out |= (groups % tp == 0) & (cp % np.maximum(groups // tp, 1) == 0)
    return np.asarray((mixer.num_heads % (tp * cp) == 0) & shared_out)


def _mixer_heads_reason(scenario: Scenario, row: Row) -> str:
    mixer = _mixer(scenario)
    assert mixer is not None, "a model without a mixer breaks no rule on it"
    ranks, heads, groups = row["tp"] * row["cp"], mixer.num_heads, mixer.num_key_heads
    repeated = " unless repeated within tp" if mixer.kind == "mamba2" else ""
    return (
        f"{mixer.kind}: heads {heads} % (tp * cp) {ranks} = {heads % ranks} and key heads {groups} % (tp * cp) {ranks} "
        f"= {groups % ranks}, both must be 0{repeated}"
    )


MEGATRON_MODEL_RULES: tuple[Rule, ...] = (
    shared.without_part(
        "latent_attention_known",
        feature="latent_attention",
        concerns=shared.has_latent_attention,
        what="latent attention",
        source=_WHEELS + "transformer/transformer_config.py: 0.10.0 has MLATransformerConfig, 0.9.0 hasn't",
    ),
    Rule(
        name="latent_attention_without_tensor_parallelism",
        axes=("tp",),
        holds=lambda s, c: np.asarray((c["tp"] == 1) | (not shared.has_latent_attention(s))),
        reason=lambda s, row: (
            f"tp {row['tp']} must be 1: {s.framework.title} {s.framework.version} doesn't cut latent attention over tp"
        ),
        with_feature="latent_attention",
        without_feature="latent_attention_tp",
        source="megatron-core 0.10.0 (PyPI) megatron/core/transformer/multi_latent_attention.py:56; not in 0.11.0",
    ),
    shared.without_part(
        "shared_experts_known",
        feature="shared_experts",
        concerns=_has_shared_experts,
        what="shared experts",
        source=_WHEELS + "transformer/transformer_config.py: moe_shared_expert_intermediate_size, not in 0.9.0",
    ),
    shared.without_part(
        "multi_token_prediction_known",
        feature="multi_token_prediction",
        concerns=lambda s: s.model.num_mtp_layers > 0,
        what="multi-token prediction",
        source=_WHEELS + "transformer/transformer_config.py: 0.12.0 has mtp_num_layers, 0.11.0 hasn't",
    ),
    shared.without_part(
        "gated_delta_net_known",
        feature="gated_delta_net",
        concerns=_has_delta_net,
        what="gated delta nets",
        source=_WHEELS + "ssm: 0.16.0 has gated_delta_net.py, 0.15.0 hasn't",
    ),
    Rule(
        name="mixer_context_parallelism_known",
        axes=("cp",),
        holds=_mixer_cp_known,
        reason=_mixer_cp_reason,
        source="megatron-core 0.16.1 (PyPI) megatron/core/transformer/transformer_config.py:983; 0.13.0 has "
        "ssm/mamba_context_parallel.py, 0.12.0 hasn't",
    ),
    Rule(
        name="mixer_heads_divisible_by_tp_and_cp",
        axes=("tp", "cp"),
        holds=_mixer_heads_fit,
        reason=_mixer_heads_reason,
        source=_MIXERS + "; " + _REPOSITORY + "transformer/transformer_config.py: % (tp * cp)",
    ),
    divisible_rule(
        name="experts_divide_data_parallel",
        axes=("dp", "ep"),
        dividend=("dp", lambda _, columns: columns["dp"]),
        divisor=("ep", lambda _, columns: columns["ep"]),
        without_feature="expert_tensor_parallel",
        source="megatron-core 0.9.0 (PyPI) megatron/core/parallel_state.py:536",
    ),
    Rule(
        name="expert_tensor_parallel_is_tp",
        axes=("tp", "etp"),
        holds=lambda s, c: np.asarray((not shared.has_experts(s)) | (c["etp"] == c["tp"])),
        reason=lambda s, row: (
            f"etp {row['etp']} must be tp {row['tp']}: {s.framework.title} {s.framework.version} cuts experts as "
            "everything else"
        ),
        without_feature="expert_tensor_parallel",
        source="megatron-core 0.9.0 (PyPI) megatron/core/transformer/moe/experts.py:71",
    ),
)
