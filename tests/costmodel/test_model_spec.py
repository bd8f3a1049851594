"""The model noun: counts by part, and validation that says which field is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.validation import build

DENSE: dict[str, Any] = {
    "name": "dense",
    "num_layers": 4,
    "hidden_size": 8,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 3,
    "ffn_hidden_size": 10,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
MOE: dict[str, Any] = {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 5}
MLA: dict[str, Any] = {"kv_lora_rank": 4, "qk_nope_head_dim": 2, "qk_rope_head_dim": 1, "v_head_dim": 2}


def spec(**changes: Any) -> ModelSpec:
    return build(ModelSpec, DENSE | changes, where="model")


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """Legal models of any shape, dense and MoE alike, with every optional part switched on and off."""
    layers, groups = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    kv_heads = draw(st.integers(1, 4))
    biases = ("qkv_bias", "attention_out_bias", "mlp_bias", "expert_bias", "norm_bias", "head_bias")
    flags = ("gated_mlp", "tie_word_embeddings", "attention_output_gate", "embedding_norm", "norm_weight", *biases)
    moe = None
    if draw(st.booleans()):
        shared = draw(st.integers(0, 6))
        experts = draw(st.integers(1, 12))
        moe = {
            "num_experts": experts,
            "top_k": draw(st.integers(1, experts)),
            "expert_ffn_hidden_size": draw(st.integers(1, 9)),
            "shared_expert_ffn_hidden_size": shared,
            "shared_expert_gate": bool(shared) and draw(st.booleans()),
            "num_dense_layers": draw(st.integers(0, layers)),
            "layer_step": draw(st.integers(1, layers)),
            "latent_size": draw(st.none() | st.integers(1, 9)),
            "router_bias": draw(st.booleans()),
        }
    fields = {
        "name": "any",
        "num_layers": layers,
        "hidden_size": draw(st.integers(1, 20)),
        "num_heads": kv_heads * groups,
        "num_kv_heads": kv_heads,
        "head_dim": draw(st.integers(1, 9)),
        "ffn_hidden_size": draw(st.integers(1, 20)),
        "vocab_size": draw(st.integers(1, 50)),
        "qk_norm": draw(st.sampled_from(["none", "head", "full"])),
        "attention_sinks": draw(st.booleans()),
        "norms_per_layer": draw(st.sampled_from([2, 4])),
        "num_mtp_layers": draw(st.integers(0, 2)),
        "moe": moe,
    }
    return build(ModelSpec, fields | {flag: draw(st.booleans()) for flag in flags}, where="model")


@given(specs())
def test_the_total_is_the_sum_of_the_layers_and_what_is_around_them(model: ModelSpec) -> None:
    parts = model.params
    total = parts.embedding + parts.position_embedding + parts.embedding_norm + parts.final_norm + parts.head
    for layer in range(model.num_layers):
        total += parts.attention_per_layer + parts.norms_per_layer
        if model.moe is None or not model.moe.has_experts(layer):
            total += parts.dense_mlp_per_layer
        else:
            assert model.moe
            total += parts.router_per_layer + parts.shared_expert_per_layer + model.moe.num_experts * parts.per_expert
    assert parts.total == total
    assert parts.with_mtp == total + parts.mtp


@given(specs())
def test_inactive_are_exactly_the_experts_that_a_token_does_not_visit(model: ModelSpec) -> None:
    parts = model.params
    idle = (model.moe.num_experts - model.moe.top_k) if model.moe else 0
    assert parts.total - parts.active == idle * parts.per_expert * parts.num_moe_layers
    assert parts.num_dense_layers + parts.num_moe_layers == model.num_layers


def test_dense_parts_worked_by_hand() -> None:
    parts = spec().params
    assert parts.embedding == parts.head == 100 * 8
    assert parts.attention_per_layer == 8 * 12 + 2 * 8 * 6 + 12 * 8
    assert parts.dense_mlp_per_layer == 3 * 8 * 10
    assert parts.norms_per_layer == 16
    assert parts.final_norm == 8
    assert parts.total == 1600 + 4 * (288 + 240 + 16) + 8
    assert parts.active == parts.total


@pytest.mark.parametrize(
    ("changes", "part", "more"),
    [
        ({"tie_word_embeddings": True}, "head", -800),
        ({"learned_position_embeddings": True, "max_position_embeddings": 7}, "position_embedding", 7 * 8),
        ({"qkv_bias": True}, "attention_per_layer", 12 + 6 + 6),
        ({"attention_out_bias": True}, "attention_per_layer", 8),
        ({"attention_sinks": True}, "attention_per_layer", 4),
        ({"qk_norm": "head"}, "attention_per_layer", 3 + 3),
        ({"qk_norm": "full"}, "attention_per_layer", 12 + 6),
        ({"mlp_bias": True}, "dense_mlp_per_layer", 10 + 10 + 8),
        ({"gated_mlp": False}, "dense_mlp_per_layer", -80),
        ({"norm_bias": True}, "norms_per_layer", 16),
        ({"norms_per_layer": 4}, "norms_per_layer", 16),
        ({"attention_output_gate": True}, "attention_per_layer", 8 * 12),
        ({"attention_output_gate": True, "qkv_bias": True}, "attention_per_layer", 8 * 12 + 12 + 12 + 6 + 6),
        ({"head_bias": True}, "head", 100),
        ({"embedding_norm": True, "norm_bias": True}, "embedding_norm", 16),
        ({"norm_weight": False}, "norms_per_layer", -16),
        ({"mla": MLA}, "attention_per_layer", 8 * 12 + 8 * 5 + 4 + 4 * 16 + 8 * 8 - 288),
        ({"mla": MLA | {"q_lora_rank": 6}}, "attention_per_layer", 8 * 6 + 6 + 6 * 12 + 40 + 4 + 64 + 64 - 288),
        ({"mla": MLA, "qkv_bias": True}, "attention_per_layer", 8 * 12 + 8 * 5 + 4 + 4 * 16 + 8 * 8 + 5 - 288),
        ({"mla": MLA, "attention_sinks": True}, "attention_per_layer", 8 * 12 + 8 * 5 + 4 + 4 * 16 + 8 * 8 + 4 - 288),
        (
            {"mla": MLA | {"q_lora_rank": 6}, "qkv_bias": True, "attention_out_bias": True},
            "attention_per_layer",
            8 * 6 + 6 + 6 * 12 + 40 + 4 + 64 + 64 + (6 + 5) + 8 - 288,
        ),
        ({"moe": MOE | {"router_bias": True}}, "router_per_layer", 8 * 8 + 8),
        ({"moe": MOE, "expert_bias": True}, "per_expert", 3 * 8 * 5 + 5 + 5 + 8),
        (
            {"moe": MOE | {"shared_expert_ffn_hidden_size": 7, "shared_expert_gate": True}},
            "shared_expert_per_layer",
            3 * 8 * 7 + 8,
        ),
        ({"num_mtp_layers": 2}, "mtp", 2 * (288 + 240 + 16 + 3 * 8 + 2 * 64)),
    ],
)
def test_each_option_adds_its_own_parameters(changes: dict[str, Any], part: str, more: int) -> None:
    assert getattr(spec(**changes).params, part) == getattr(spec().params, part) + more


def test_the_balancing_bias_is_no_parameter() -> None:
    assert spec(moe=MOE | {"score_correction_bias": True}).params == spec(moe=MOE).params


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_kv_heads": 3}, "model.num_kv_heads: 3 is not usable; a divisor of the number of attention heads (4)"),
        ({"num_layers": 0}, "model.num_layers: 0 is not usable; it has to be at least 1"),
        ({"hidden_size": -8}, "model.hidden_size: -8 is not usable; it has to be at least 1"),
        ({"hidden_size": "8"}, "model.hidden_size: '8' is not usable; a whole number is expected"),
        ({"hidden_size": 8.0}, "model.hidden_size: 8.0 is not usable; a whole number is expected"),
        ({"vocab_size": True}, "model.vocab_size: True is not usable; a whole number is expected"),
        ({"qkv_bias": "no"}, "model.qkv_bias: 'no' is not usable; true or false is expected"),
        ({"qk_norm": "layer"}, "model.qk_norm: 'layer' is not usable; it has to be 'none', 'head' or 'full'"),
        ({"name": ""}, "model.name: '' is not usable"),
        ({"num_layer": 4}, "model.num_layer: 4 is not usable; no such field; did you mean num_layers"),
        ({"num_sliding_layers": 5, "sliding_window": 9}, "model.num_sliding_layers: 5 is not usable; at most"),
        ({"num_sliding_layers": 1}, "model.sliding_window: None is not usable; layers with a window need its size"),
        ({"sliding_window": 9}, "model.num_sliding_layers: 0 is not usable; say how many"),
        ({"learned_position_embeddings": True}, "model.max_position_embeddings: None is not usable"),
        ({"moe": MOE | {"top_k": 9}}, "model.moe.top_k: 9 is not usable; at most the number of experts (8)"),
        ({"moe": MOE | {"num_dense_layers": 5}}, "model.moe.num_dense_layers: 5 is not usable; at most the number of"),
        ({"moe": MOE | {"num_groups": 3}}, "model.moe.num_groups: 3 is not usable; a divisor of the experts (8)"),
        ({"moe": MOE | {"num_groups": 2, "max_groups_per_token": 3}}, "model.moe.max_groups_per_token: 3 is not"),
        ({"moe": MOE | {"max_groups_per_token": 3}}, "model.moe.max_groups_per_token: 3 is not usable; it needs"),
        ({"moe": MOE | {"shared_expert_gate": True}}, "model.moe.shared_expert_gate: True is not usable; a gate needs"),
        ({"moe": []}, "model.moe: [] is not usable; a mapping of field to value is expected"),
        ({"mla": MLA, "head_dim": 4}, "model.head_dim: 4 is not usable; with latent attention"),
        ({"mla": MLA, "qk_norm": "head"}, "model.qk_norm: 'head' is not usable; latent attention has norms"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec(**changes)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", [field for field in DENSE if field != "name"])
def test_missing_fields_are_named(field: str) -> None:
    data = {key: value for key, value in DENSE.items() if key != field}
    with pytest.raises(InvalidInput, match=rf"^model\.{field}: None is not usable; it is required$"):
        build(ModelSpec, data, where="model")


def test_one_problem_is_shown_and_the_rest_are_counted() -> None:
    with pytest.raises(InvalidInput, match=r"^model\.num_layers: 0 .* \(2 more problems after it\)$"):
        spec(num_layers=0, hidden_size=0, vocab_size=0)


def test_no_mapping_is_no_model() -> None:
    with pytest.raises(InvalidInput, match=r"^model: 3 is not usable; a mapping"):
        build(ModelSpec, 3, where="model")  # type: ignore[arg-type]


def test_a_model_does_not_change_and_is_equal_by_content() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().num_layers = 5  # type: ignore[misc]
    assert spec() == spec()
    assert hash(spec(moe=MOE)) == hash(spec(moe=MOE))
    assert ModelSpec.model_validate_json(spec(moe=MOE, mla=MLA).model_dump_json()) == spec(moe=MOE, mla=MLA)


# Experts in every n-th layer, and layers of other kinds than attention.


@pytest.mark.parametrize(
    ("dense", "step", "expected"),
    [
        (0, 1, 0),
        (3, 1, 3),
        (0, 2, (0, 2)),
        (0, 3, (0, 1, 3)),
        (1, 2, (0, 1, 3)),
        (2, 2, 3),
        (4, 1, 4),
        (0, 4, 3),
    ],
)
def test_dense_layers_lie_in_front_or_between(dense: int, step: int, expected: int | tuple[int, ...]) -> None:
    """The last layer of each group of ``layer_step`` has experts, as in Llama 4 Maverick with 2."""
    model = spec(moe=MOE | {"num_dense_layers": dense, "layer_step": step})
    assert model.dense_layers == expected
    assert model.num_dense_layers == (expected if isinstance(expected, int) else len(expected))
    assert model.params.num_dense_layers + model.params.num_moe_layers == 4


MIXER: dict[str, Any] = {"kind": "mamba2", "num_heads": 4, "head_dim": 5, "num_key_heads": 2, "key_head_dim": 3}
HYBRID: dict[str, Any] = {"mixer": MIXER, "num_attention_layers": 1, "num_mixer_layers": 2, "num_mlp_layers": 1}


@pytest.mark.parametrize(
    ("changes", "params"),
    [
        # inner 20, keys and queries 12: projections to 20 + 20 + 12 and a step per head, back, 3 per head, norm of 20.
        ({}, 8 * (52 + 4) + 20 * 8 + 3 * 4 + 20),
        ({"conv_kernel": 4, "conv_bias": True}, 8 * 56 + 160 + 12 + 20 + 32 * (4 + 1)),
        ({"projection_bias": True}, 8 * 56 + 160 + 12 + 20 + 56 + 8),
        # A delta net has two scalars a head, learns two, and normalises each head alike.
        ({"kind": "gated_delta_net", "conv_kernel": 4}, 8 * (52 + 8) + 160 + 2 * 4 + 5 + 32 * 4),
        ({"kind": "lightning", "num_key_heads": 4, "key_head_dim": 5}, 8 * 80 + 160 + 20),
    ],
)
def test_mixers_worked_by_hand(changes: dict[str, Any], params: int) -> None:
    assert spec(hybrid=HYBRID | {"mixer": MIXER | changes}).params.mixer_per_layer == params


def test_a_hybrid_is_the_sum_of_its_layers() -> None:
    model = spec(hybrid=HYBRID, norms_per_layer=1)
    parts = model.params
    layers = (
        parts.attention_per_layer + 2 * parts.mixer_per_layer + parts.dense_mlp_per_layer + 4 * parts.norms_per_layer
    )
    assert parts.total == parts.embedding + parts.head + parts.final_norm + layers
    assert (parts.num_attention_layers, parts.num_mixer_layers, parts.num_dense_layers) == (1, 2, 1)
    experts = spec(hybrid=HYBRID, norms_per_layer=1, moe=MOE).params
    assert experts.total - parts.total == experts.expert_mlp(8) - parts.dense_mlp_per_layer


def test_experts_on_a_latent_and_their_prediction_module() -> None:
    """A layer with experts projects to the latent and back; the module has a layer of attention and one of experts."""
    parts = spec(hybrid=HYBRID, norms_per_layer=1, moe=MOE | {"latent_size": 3}, num_mtp_layers=1).params
    assert parts.per_expert == 3 * 3 * 5
    assert parts.router_per_layer == 8 * 8 + 2 * 8 * 3
    assert parts.mtp == parts.attention_per_layer + parts.expert_mlp(8) + 2 * 8 + 3 * 8 + 2 * 8 * 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 10_001}, "model.num_layers: 10001 is not usable; it has to be at most 10000"),
        ({"moe": MOE | {"layer_step": 5}}, "model.moe.layer_step: 5 is not usable; at most the number of layers (4)"),
        ({"hybrid": HYBRID | {"num_mixer_layers": 4}}, "model.hybrid.num_mixer_layers: 4 is not usable; attention and"),
        ({"hybrid": HYBRID | {"num_mixer_layers": 1}}, "model.hybrid.num_mlp_layers: 1 is not usable; 2 to 4 are"),
        ({"hybrid": HYBRID | {"num_mlp_layers": 5}}, "model.hybrid.num_mlp_layers: 5 is not usable; 1 to 4 are"),
        (
            {"hybrid": HYBRID, "sliding_window": 8, "num_sliding_layers": 2},
            "model.num_sliding_layers: 2 is not usable; at most the number of layers with attention (1)",
        ),
        (
            {"hybrid": HYBRID, "moe": MOE | {"num_dense_layers": 1}},
            "model.moe.num_dense_layers: 1 is not usable; 0 is expected where some layers have no MLP",
        ),
    ],
)
def test_layers_that_contradict_each_other(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec(**changes)
    assert str(caught.value).startswith(message)
