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
    biases = ("qkv_bias", "attention_out_bias", "mlp_bias", "expert_bias", "norm_bias")
    flags = ("gated_mlp", "tie_word_embeddings", *biases)
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
    assert model.num_dense_layers == (model.moe.num_dense_layers if model.moe else model.num_layers)
    total = parts.embedding + parts.position_embedding + parts.final_norm + parts.head
    for layer in range(model.num_layers):
        total += parts.attention_per_layer + parts.norms_per_layer
        if layer < model.num_dense_layers:
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
        ({"qk_norm": "layer"}, "model.qk_norm: 'layer' is not usable; Input should be 'none', 'head' or 'full'"),
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
