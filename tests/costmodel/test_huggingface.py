"""Import of Hugging Face configs: what absent and null keys mean, and what can't be expressed is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.huggingface import known_model_types, model_from_config
from costmodel.spec.model import ModelSpec

COUNTED = json.loads((Path(__file__).parent / "family_counts.json").read_text("utf-8"))["configs"]
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
GLM_EXPERTS: dict[str, Any] = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
NO_FFN = {key: value for key, value in BASE.items() if key != "intermediate_size"}
SMALL_MPT: dict[str, Any] = {"d_model": 64, "n_heads": 8, "n_layers": 6, "vocab_size": 1000}
DBRX_BLOCKS: dict[str, Any] = {
    "attn_config": {"kv_n_heads": 2},
    "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 8, "moe_top_k": 2},
}
DELTA_NET: dict[str, Any] = {
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
}
MAMBA: dict[str, Any] = {"mamba_num_heads": 4, "mamba_head_dim": 16}
PLAIN = """apertus arcee cohere cohere2 ernie4_5 exaone4 gemma gemma2 gemma3_text glm glm4 gpt_neox granite helium
hunyuan_v1_dense llama ministral ministral3 mistral mllama_text_model nemotron olmo olmo2 olmo3 phi phi3 qwen2
qwen2_5_vl_text qwen2_vl_text qwen3 qwen3_vl_text seed_oss smollm3 stablelm starcoder2"""
FAMILIES: dict[str, dict[str, Any]] = dict.fromkeys(PLAIN.split(), BASE) | {
    "bamba": BASE | {"mamba_n_heads": 8, "attn_layer_indices": [2, 5]},
    "bloom": NO_FFN,
    "chatglm": BASE,
    "dbrx": SMALL_MPT | DBRX_BLOCKS,
    "deepseek_v2": BASE | DEEPSEEK,
    "deepseek_v3": BASE | DEEPSEEK,
    "deepseek_v32": BASE | DEEPSEEK,
    "dots1": BASE | GLM_EXPERTS,
    "ernie4_5_moe": BASE | {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32},
    "falcon": NO_FFN,
    "glm4_moe": BASE | GLM_EXPERTS,
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neo": NO_FFN | {"max_position_embeddings": 128},
    "gpt_oss": BASE | EXPERTS,
    "gptj": GPT2,
    "granitemoe": BASE | EXPERTS,
    "grok-1": BASE | EXPERTS,
    "kimi_k2": BASE | DEEPSEEK,
    "llama4_text": BASE | EXPERTS,
    "minimax": BASE | EXPERTS | {"attn_type_list": [0, 0, 1] * 2},
    "minimax_m2": BASE | EXPERTS,
    "minimax_text_01": BASE | EXPERTS | {"attn_type_list": [0, 0, 1] * 2},
    "mixtral": BASE | EXPERTS,
    "mpt": SMALL_MPT,
    "nemotron_h": BASE | MAMBA | {"hybrid_override_pattern": "M-M*M-"},
    "olmoe": BASE | EXPERTS,
    "opt": NO_FFN | {"ffn_dim": 96, "max_position_embeddings": 128},
    "phimoe": BASE | EXPERTS,
    "qwen": BASE,
    "qwen2_moe": BASE | QWEN_EXPERTS,
    "qwen3_5_moe_text": NO_FFN | QWEN_EXPERTS | DELTA_NET,
    "qwen3_5_text": BASE | DELTA_NET,
    "qwen3_moe": BASE | QWEN_EXPERTS,
    "qwen3_next": BASE | QWEN_EXPERTS | DELTA_NET,
    "qwen3_vl_moe_text": BASE | QWEN_EXPERTS,
}
# Keys of FAMILIES that are no required size.
NOT_REQUIRED = {"n_shared_experts", "attn_type_list", "hybrid_override_pattern", "attn_layer_indices", *DBRX_BLOCKS}
# Sizes that have a default, or that the file gives in another way too.
ALSO_LISTED = {"bamba": {"mamba_n_heads"}, "ernie4_5_moe": {"moe_k"}, "nemotron_h": {"num_hidden_layers"}}


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
        ("gpt_bigcode", {}, "num_kv_heads", 1),
        ("gpt_bigcode", {"multi_query": False}, "num_kv_heads", 8),
        ("gpt_neo", {"attention_layers": ["global", "local"] * 3}, "num_sliding_layers", 3),
        ("falcon", {}, "num_kv_heads", 1),
        ("falcon", {"multi_query": False}, "num_kv_heads", 8),
        ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}, "num_kv_heads", 2),
        ("falcon", {"new_decoder_architecture": True, "n_head_kv": 2}, "norms_per_layer", 2),
        ("falcon", {}, "norms_per_layer", 1),
        ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, "num_kv_heads", 1),
        ("mpt", {"ffn_config": {"ffn_hidden_size": 99}, "no_bias": False}, "ffn_hidden_size", 99),
        ("chatglm", {"multi_query_attention": True, "multi_query_group_num": 2}, "num_kv_heads", 2),
        ("chatglm", {"kv_channels": 20}, "head_dim", 20),
        ("qwen", {"intermediate_size": 96}, "ffn_hidden_size", 48),
        ("gemma3_text", {"sliding_window_pattern": 3}, "num_sliding_layers", 4),
        ("gemma3_text", {}, "num_sliding_layers", 5),
        ("cohere", {"use_qk_norm": True}, "qk_norm", "full"),
        ("opt", {"enable_bias": False}, "mlp_bias", False),
        ("opt", {}, "extra_position_embeddings", 2),
        ("llama4_text", {"intermediate_size_mlp": 200}, "ffn_hidden_size", 200),
        ("nemotron_h", {"num_nextn_predict_layers": 1}, "num_mtp_layers", 1),
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


@pytest.mark.parametrize("bad", [0, -1, 0.5, "64", "${SIZE}", "<size>", None, True, [64], float("nan"), 10**18])
@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_unusable_sizes_are_named_with_their_value(model_type: str, bad: object) -> None:
    for key in (
        FAMILIES[model_type].keys() - NOT_REQUIRED - (ALSO_LISTED.get(model_type, set()) if bad is None else set())
    ):
        message = refusal(model_type, **{key: bad})
        assert message.startswith(f"{key}: {bad!r} is not usable; a whole number of at "), message


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_missing_sizes_are_named(model_type: str) -> None:
    for key in FAMILIES[model_type].keys() - NOT_REQUIRED - ALSO_LISTED.get(model_type, set()):
        rest = {other: value for other, value in config(model_type).items() if other != key}
        with pytest.raises(InvalidInput) as caught:
            model_from_config(rest, name="m")
        assert str(caught.value) == f"{key}: None is not usable; a whole number of at least 1 is required"


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_every_family_reads_its_smallest_file(model_type: str) -> None:
    spec = model(model_type)
    assert (spec.num_layers, spec.hidden_size, spec.num_heads, spec.vocab_size) == (6, 64, 8, 1000)
    assert spec.params.total >= spec.params.active > 0


def test_a_whole_float_is_a_size() -> None:
    assert model("llama", hidden_size=64.0) == model("llama")


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
        ("qwen3_moe", {"decoder_sparse_step": 2, "mlp_only_layers": [0]}, "mlp_only_layers: [0] is not usable; with"),
        ("qwen3_moe", {"decoder_sparse_step": 7}, "decoder_sparse_step: 7 is not usable; at most the number of layers"),
        ("llama", {"n_layer": 7}, "n_layer: 7 is not usable; it contradicts num_hidden_layers 6"),
        ("llama", {"block_configs": [{}, {}]}, "block_configs: '2 blocks' is not usable; layers that differ one by"),
        ("llama", {"intermediate_size": [96, 48]}, "intermediate_size: [96, 48] is not usable; a whole number of at"),
        ("opt", {"word_embed_proj_dim": 32}, "word_embed_proj_dim: 32 is not usable; only 64 is supported"),
        ("mpt", {"ffn_config": {"moe_num_experts": 4}}, "ffn_config.moe_num_experts: 4 is not usable"),
        ("mpt", {"attn_config": 3}, "attn_config: 3 is not usable; an object of keys and values is expected"),
        ("llama4_text", {"moe_layers": [0, 1]}, "moe_layers: [0, 1] is not usable; every 1th layer is expected"),
        ("minimax", {"attn_type_list": [0, 1]}, "attn_type_list: [0, 1] is not usable; num_hidden_layers (6) items"),
        ("minimax", {"attn_type_list": None}, "attn_type_list: None is not usable; it is required"),
        (
            "nemotron_h",
            {"hybrid_override_pattern": "M?M*M-"},
            "hybrid_override_pattern: 'M?M*M-' is not usable; letters",
        ),
        ("nemotron_h", {"hybrid_override_pattern": "M-M*"}, "num_hidden_layers: 6 is not usable; hybrid_override_pat"),
        ("nemotron_h", {"hybrid_override_pattern": "MMMMMM"}, "hybrid_override_pattern: {'mamba': 6} is not usable"),
        ("qwen3_next", {"full_attention_interval": 9}, "full_attention_interval: 0 is not usable; a model with both"),
        ("qwen3_5_text", {"layer_types": ["linear_attention"] * 6}, "layer_types: 0 is not usable; a model with both"),
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


def test_an_unknown_architecture_says_what_is_missing_and_what_is_not_understood() -> None:
    config = {key: value for key, value in BASE.items() if key != "intermediate_size"}
    with pytest.raises(UnknownName, match=r"did you mean deepseek_v3") as caught:
        model_from_config(
            config | {"model_type": "deepseek_v4", "compress_ratios": [4], "n_routed_experts": 8}, name="m"
        )
    assert caught.value.field == "model_type"
    assert "missing keys: intermediate_size; keys not understood: compress_ratios, n_routed_experts;" in str(
        caught.value
    )


@pytest.mark.parametrize("key", ["multi_query_groups", "qkv_bias_type", "ffn_glu", "n_experts"])
def test_an_unknown_architecture_with_a_key_about_widths_is_not_taken_for_llama(key: str) -> None:
    with pytest.raises(UnknownName, match=f"keys not understood: {key}"):
        model_from_config(BASE | {"model_type": "acme", key: 2, "_commit_hash": "abc"}, name="m")


@pytest.mark.parametrize("changes", [{"model_type": "aquila"}, {"architectures": ["BaiChuanForCausalLM"]}])
def test_an_unknown_architecture_with_llamas_keys_is_read_as_one_and_says_so(changes: dict[str, Any]) -> None:
    spec = model_from_config(BASE | changes, name="m")
    assert spec.params == model("llama").params
    assert len(spec.notes) == 1
    assert "is not known: its sizes are read as Llama's" in spec.notes[0]


@pytest.mark.parametrize("changes", [{}, {"model_type": None}, {"model_type": 3}, {"model_type": ["llama"]}])
def test_without_a_model_type_it_is_asked_for(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"^model_type: .* a config\.json names its architecture here"):
        model_from_config(BASE | changes, name="m")


@pytest.mark.parametrize("changes", [{"type_vocab_size": 2}, {"encoder_layers": 6}, {"patch_size": 16}])
def test_encoders_are_not_taken_for_decoders(changes: dict[str, Any]) -> None:
    with pytest.raises(UnknownName, match=f"keys not understood: {next(iter(changes))}"):
        model_from_config(BASE | {"model_type": "acme"} | changes, name="m")


def test_a_placeholder_for_the_model_type_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"^model_type: '\$\{MODEL\}' is not usable; it is a placeholder"):
        model_from_config(BASE | {"model_type": "${MODEL}"}, name="m")


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [("LlamaForCausalLM", "llama"), ("GPT2LMHeadModel", "gpt2"), ("Qwen3MoeForCausalLM", "qwen3_moe")],
)
def test_the_class_tells_the_family_where_the_model_type_is_missing(architecture: str, model_type: str) -> None:
    assert model_from_config(FAMILIES[model_type] | {"architectures": [architecture]}, name="m") == model(model_type)


@pytest.mark.parametrize("top", [None, [], "llama", 3])
def test_a_config_is_an_object(top: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^config\.json: .* an object of keys and values is expected$"):
        model_from_config(top, name="m")


def test_every_contradiction_is_named_in_one_line() -> None:
    """A file of scrambled values, as it was found on a page: every one of them is named, not just the first."""
    scrambled = DEEPSEEK | {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 9, "vocab_size": 137}
    scrambled |= {"intermediate_size": 0.02, "num_attention_heads": 128, "num_key_value_heads": 228}
    scrambled |= {"n_routed_experts": 1, "num_experts_per_tok": 71, "n_group": 7, "topk_group": 4, "moe_layer_freq": 2}
    scrambled["kv_lora_rank "] = scrambled.pop("kv_lora_rank")
    with pytest.raises(InvalidInput) as caught:
        model_from_config(scrambled, name="m")
    message = str(caught.value)
    assert message.startswith("intermediate_size: 0.02 is not usable")
    wrong = ("num_key_value_heads: 228", "num_experts_per_tok: 71", "n_group: 7", "moe_layer_freq: 2")
    for found in (*wrong, "kv_lora_rank: None", "(there is a key 'kv_lora_rank ')"):
        assert found in message
    assert message.count("; also ") == len(wrong) + 1


def test_blanks_around_an_optional_key_are_wrong_too() -> None:
    assert refusal("llama", **{"num_key_value_heads ": 2}).startswith(
        "num_key_value_heads : 2 is not usable; the key's"
    )


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: f"{row['model_type']}-{row['params']}")
def test_small_models_have_as_many_parameters_as_their_classes_make(row: dict[str, Any]) -> None:
    """Independent of published sizes: what transformers' own classes hold for small configs with many options."""
    spec = model_from_config(row["config"] | {"model_type": row["model_type"]}, name="m")
    assert spec.params.total == row["params"]
