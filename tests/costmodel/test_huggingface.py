"""Import of Hugging Face configs: what absent and null keys mean, and what can't be expressed is refused."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.huggingface import known_model_types, model_from_config
from costmodel.spec.model import ModelSpec

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "vocab_size": 1000,
}
EXPERTS: dict[str, Any] = {"num_local_experts": 8, "num_experts_per_tok": 2}
QWEN_EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DEEPSEEK: dict[str, Any] = {
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
GPT2: dict[str, Any] = {"n_embd": 64, "n_head": 8, "n_layer": 6, "n_positions": 128, "vocab_size": 1000}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": BASE,
    "mistral": BASE,
    "mixtral": BASE | EXPERTS,
    "qwen2": BASE,
    "qwen3": BASE,
    "qwen3_moe": BASE | QWEN_EXPERTS,
    "deepseek_v2": BASE | DEEPSEEK,
    "deepseek_v3": BASE | DEEPSEEK,
    "gpt_oss": BASE | EXPERTS,
    "gemma2": BASE,
    "gpt2": GPT2,
}


def config(model_type: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": model_type} | FAMILIES[model_type] | changes


def model(model_type: str, **changes: Any) -> ModelSpec:
    return model_from_config(config(model_type, **changes), name="m")


def refusal(model_type: str, **changes: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        model(model_type, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_known_model_type_is_tested_here() -> None:
    assert set(known_model_types()) == set(FAMILIES)


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("llama", "num_kv_heads", 8),
        ("llama", "head_dim", 8),
        ("llama", "tie_word_embeddings", False),
        ("llama", "qkv_bias", False),
        ("llama", "max_position_embeddings", None),
        ("mistral", "sliding_window", 4096),
        ("mistral", "num_sliding_layers", 6),
        ("mixtral", "sliding_window", None),
        ("qwen2", "qkv_bias", True),
        ("qwen2", "attention_out_bias", False),
        ("qwen2", "sliding_window", None),
        ("qwen3", "qk_norm", "head"),
        ("qwen3", "head_dim", 128),
        ("qwen3_moe", "head_dim", 8),
        ("deepseek_v3", "num_kv_heads", 8),
        ("deepseek_v3", "head_dim", 12),
        ("deepseek_v3", "num_mtp_layers", 0),
        ("gpt_oss", "qkv_bias", True),
        ("gpt_oss", "attention_out_bias", True),
        ("gpt_oss", "attention_sinks", True),
        ("gpt_oss", "num_sliding_layers", 3),
        ("gemma2", "tie_word_embeddings", True),
        ("gemma2", "norms_per_layer", 4),
        ("gemma2", "num_sliding_layers", 3),
        ("gpt2", "tie_word_embeddings", True),
        ("gpt2", "ffn_hidden_size", 256),
        ("gpt2", "gated_mlp", False),
        ("gpt2", "norm_bias", True),
    ],
)
def test_absent_keys_mean_what_the_class_makes_of_them(model_type: str, field: str, value: object) -> None:
    assert getattr(model(model_type), field) == value


@pytest.mark.parametrize(
    ("model_type", "changes", "field", "value"),
    [
        ("llama", {"num_key_value_heads": 2}, "num_kv_heads", 2),
        ("llama", {"num_key_value_heads": None}, "num_kv_heads", 8),
        ("llama", {"head_dim": None}, "head_dim", 8),
        ("llama", {"head_dim": 20, "hidden_size": 63}, "head_dim", 20),
        ("llama", {"attention_bias": True}, "attention_out_bias", True),
        ("llama", {"mlp_bias": True}, "mlp_bias", True),
        ("llama", {"rope_theta": "ignored", "rope_scaling": float("nan")}, "num_layers", 6),
        ("mistral", {"sliding_window": None}, "sliding_window", None),
        ("mistral", {"sliding_window": None}, "num_sliding_layers", 0),
        ("mixtral", {"sliding_window": 99}, "num_sliding_layers", 6),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 99, "max_window_layers": 4}, "num_sliding_layers", 2),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 99, "max_window_layers": 6}, "sliding_window", None),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 99}, "sliding_window", None),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 99, "max_window_layers": 0}, "sliding_window", None),
        ("qwen3", {"attention_bias": True}, "qkv_bias", True),
        ("gemma2", {"num_hidden_layers": 5}, "num_sliding_layers", 3),
        ("gemma2", {"sliding_window": None}, "num_sliding_layers", 0),
        ("gpt_oss", {"layer_types": ["sliding_attention"] * 5 + ["full_attention"]}, "num_sliding_layers", 5),
        ("deepseek_v3", {"num_nextn_predict_layers": 1}, "num_mtp_layers", 1),
        ("gpt2", {"n_inner": 99}, "ffn_hidden_size", 99),
        ("gpt2", {"n_inner": None}, "ffn_hidden_size", 256),
    ],
)
def test_keys_that_are_there(model_type: str, changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(model(model_type, **changes), field) == value


@pytest.mark.parametrize(
    ("model_type", "changes", "field", "value"),
    [
        ("mixtral", {}, "expert_ffn_hidden_size", 96),
        ("qwen3_moe", {}, "num_dense_layers", 0),
        ("qwen3_moe", {"mlp_only_layers": [0, 1]}, "num_dense_layers", 2),
        ("deepseek_v2", {}, "num_dense_layers", 0),
        ("deepseek_v3", {}, "num_dense_layers", 3),
        ("deepseek_v3", {"first_k_dense_replace": 1}, "num_dense_layers", 1),
        ("deepseek_v3", {}, "shared_expert_ffn_hidden_size", 64),
        ("deepseek_v3", {"n_shared_experts": None}, "shared_expert_ffn_hidden_size", 0),
        ("deepseek_v2", {}, "score_correction_bias", False),
        ("deepseek_v3", {}, "score_correction_bias", True),
        ("deepseek_v3", {"n_group": 4, "topk_group": 2}, "num_groups", 4),
        ("deepseek_v3", {"n_group": 4, "topk_group": 2}, "max_groups_per_token", 2),
        ("gpt_oss", {}, "router_bias", True),
    ],
)
def test_experts(model_type: str, changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(model(model_type, **changes).moe, field) == value


@pytest.mark.parametrize(("changes", "rank"), [({}, None), ({"q_lora_rank": None}, None), ({"q_lora_rank": 24}, 24)])
def test_queries_without_a_latent(changes: dict[str, Any], rank: int | None) -> None:
    # V2-Lite: files that drop the key mean none, though the class's default is V2's rank.
    mla = model("deepseek_v2", **changes).mla
    assert mla is not None
    assert mla.q_lora_rank == rank


@pytest.mark.parametrize("bad", [0, -1, 4096.0, "64", None, True, [64], float("nan")])
@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_unusable_sizes_are_named_with_their_value(model_type: str, bad: object) -> None:
    for key in FAMILIES[model_type].keys() - {"n_shared_experts"}:
        message = refusal(model_type, **{key: bad})
        assert message.startswith(f"{key}: {bad!r} is not usable; a whole number of at least 1 is"), message


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_missing_sizes_are_named(model_type: str) -> None:
    for key in FAMILIES[model_type].keys() - {"n_shared_experts"}:
        rest = {other: value for other, value in config(model_type).items() if other != key}
        with pytest.raises(InvalidInput) as caught:
            model_from_config(rest, name="m")
        assert str(caught.value) == f"{key}: None is not usable; a whole number of at least 1 is required"


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("llama", {"hidden_size": 63}, "hidden_size: 63 is not usable; without a head_dim it has to be a multiple of"),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads: 3 is not usable; a divisor of the number of"),
        ("llama", {"num_key_value_heads": 0}, "num_key_value_heads: 0 is not usable; a whole number of at least 1"),
        ("llama", {"num_key_value_heads": 16}, "num_key_value_heads: 16 is not usable; a divisor of the number of"),
        ("llama", {"tie_word_embeddings": "false"}, "tie_word_embeddings: 'false' is not usable; true or false"),
        ("llama", {"attention_bias": None}, "attention_bias: None is not usable; true or false"),
        ("mistral", {"sliding_window": "4k"}, "sliding_window: '4k' is not usable; a whole number"),
        ("mixtral", {"num_experts_per_tok": 9}, "num_experts_per_tok: 9 is not usable; at most the number of experts"),
        ("qwen2", {"use_sliding_window": 1}, "use_sliding_window: 1 is not usable; true or false"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step: 2 is not usable; only 1 is supported"),
        ("qwen3_moe", {"mlp_only_layers": [3]}, "mlp_only_layers: [3] is not usable; [] or the first layers"),
        ("qwen3_moe", {"mlp_only_layers": list(range(7))}, "mlp_only_layers: [0, 1, 2, 3, 4, 5, 6] is not usable; at"),
        ("qwen3_moe", {"mlp_only_layers": 1}, "mlp_only_layers: 1 is not usable; a list is expected"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq: 2 is not usable; only 1 is supported"),
        ("deepseek_v3", {"first_k_dense_replace": 7}, "first_k_dense_replace: 7 is not usable; at most the number of"),
        ("deepseek_v3", {"n_shared_experts": -1}, "n_shared_experts: -1 is not usable; a whole number of at least 0"),
        ("deepseek_v3", {"n_group": 3, "topk_group": 1}, "n_group: 3 is not usable; a divisor of the experts (8)"),
        ("deepseek_v3", {"n_group": 4, "topk_group": 5}, "topk_group: 5 is not usable; at most the number of groups"),
        ("gpt_oss", {"layer_types": ["full_attention"]}, "layer_types: ['full_attention'] is not usable; num_hidden"),
        ("gpt_oss", {"layer_types": ["linear_attention"] * 6}, "layer_types: 'linear_attention' is not usable; full_"),
        (
            "gpt_oss",
            {"layer_types": ["sliding_attention"] * 6, "sliding_window": None},
            "sliding_window: None is not usable; layer_types has sliding layers",
        ),
        ("gpt2", {"n_head": 7}, "n_embd: 64 is not usable; a multiple of n_head (7)"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention: True is not usable; only false is supported"),
    ],
)
def test_contradictions_are_refused(model_type: str, changes: dict[str, Any], message: str) -> None:
    assert refusal(model_type, **changes).startswith(message)


def test_a_misspelt_key_is_pointed_at() -> None:
    garbled = {key if key != "kv_lora_rank" else "kv_lora_rank ": value for key, value in config("deepseek_v3").items()}
    with pytest.raises(InvalidInput, match=r"^kv_lora_rank: .* \(there is a key 'kv_lora_rank '\)$"):
        model_from_config(garbled, name="m")


def test_an_unknown_model_type_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"did you mean .*deepseek_v3") as caught:
        model_from_config(BASE | {"model_type": "deepseek_v32"}, name="m")
    assert caught.value.field == "model_type"


@pytest.mark.parametrize("changes", [{}, {"model_type": None}, {"model_type": 3}, {"model_type": ["llama"]}])
def test_without_a_model_type_the_known_ones_are_listed(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"^model_type: .* known: deepseek_v2, .*qwen3_moe$"):
        model_from_config(BASE | changes, name="m")


@pytest.mark.parametrize("top", [None, [], "llama", 3])
def test_a_config_is_an_object(top: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^config\.json: .* an object of keys and values is expected$"):
        model_from_config(top, name="m")
