"""Frameworks' own model files: every one of eight collections is a model or refused by a named key.

``native_models.json`` holds the keys of those files that say something about the model, with their sources. A model
that the catalog has too has the same number of parameters, and those have published counts.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import native_model
from costmodel.spec.native.reading import layer_pattern

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "native_models.json").read_text("utf-8"))["models"]
SAME = [row for row in ROWS if "same_as" in row]
UNLIKE = [row for row in ROWS if "unlike" in row]
REFUSED = [row for row in ROWS if "refused" in row and row["refused"] != "model"]
READ = [row for row in ROWS if "refused" not in row]

MEGATRON: dict[str, Any] = {
    "num_layers": 8,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
    "transformer_impl": "transformer_engine",
}
NEOX: dict[str, Any] = {
    "num-layers": 8,
    "hidden-size": 64,
    "num-attention-heads": 8,
    "max-position-embeddings": 128,
    "pos-emb": "rotary",
    "model-parallel-size": 2,
}
MAXTEXT: dict[str, Any] = {
    "base_emb_dim": 64,
    "base_num_query_heads": 8,
    "base_num_kv_heads": 2,
    "base_mlp_dim": 96,
    "base_num_decoder_layers": 8,
    "head_dim": 8,
    "vocab_size": 1000,
    "decoder_block": "llama2",
}


def named(row: dict[str, Any]) -> str:
    return f"{row['dialect']}-{row['model']}"


def model(data: dict[str, Any], **changes: Any) -> ModelSpec:
    found = native_model(data | changes, "m")
    assert found is not None
    return found


def test_the_collections_are_whole() -> None:
    count = Counter(row["dialect"] for row in ROWS)
    assert sum(count.values()) == 311
    assert count == {
        "gpt_neox": 48,
        "llm_foundry": 17,
        "maxtext": 78,
        "megatron_moe_modelzoo": 12,
        "megatron_primus": 62,
        "megatron_slime": 39,
        "nanotron": 16,
        "torchtitan": 39,
    }
    assert len(READ) >= 230


@pytest.mark.parametrize("row", READ, ids=named)
def test_a_framework_s_file_is_a_model(row: dict[str, Any]) -> None:
    found = native_model(row["data"], row["model"])
    assert found is not None
    assert found.params.total > 0


@pytest.mark.parametrize("row", REFUSED, ids=named)
def test_what_is_no_model_that_can_be_planned_is_refused_by_its_key(row: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        native_model(row["data"], row["model"])
    assert caught.value.field == row["refused"]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", SAME, ids=named)
def test_models_of_the_catalog_have_its_count(row: dict[str, Any]) -> None:
    found, known = native_model(row["data"], row["model"]), load_model(row["same_as"])
    assert found is not None
    assert found.params.total == known.params.total
    assert found.params.active == known.params.active
    assert (found.num_layers, found.num_heads) == (known.num_layers, known.num_heads)


@pytest.mark.parametrize("row", UNLIKE, ids=named)
def test_files_that_say_something_else_than_the_published_model_have_another_count(row: dict[str, Any]) -> None:
    name, why = row["unlike"]
    found, known = native_model(row["data"], row["model"]), load_model(name)
    assert found is not None
    assert why
    assert (found.num_layers, found.hidden_size) == (known.num_layers, known.hidden_size)
    assert found.params.total != known.params.total


def test_other_mappings_are_no_dialect() -> None:
    assert native_model({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}, "m") is None
    assert native_model({}, "m") is None


# Megatron's arguments.


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({}, "ffn_hidden_size", 256),
        ({"swiglu": True, "hidden_size": 512}, "ffn_hidden_size", 1344),  # int(4 * 512 * 2 / 3 / 64) * 64
        ({}, "gated_mlp", False),
        ({}, "qkv_bias", True),
        ({}, "norm_bias", True),
        ({}, "tie_word_embeddings", True),
        ({}, "learned_position_embeddings", True),
        ({"position_embedding_type": "rope"}, "learned_position_embeddings", False),
        ({"use_rotary_position_embeddings": True}, "learned_position_embeddings", False),
        ({"disable_bias_linear": True}, "mlp_bias", False),
        ({"add_bias_linear": False, "add_qkv_bias": True}, "qkv_bias", True),
        ({"normalization": "RMSNorm"}, "norm_bias", False),
        ({"num_query_groups": 2}, "num_kv_heads", 8),
        ({"num_query_groups": 2, "group_query_attention": True}, "num_kv_heads", 2),
        ({"kv_channels": 20}, "head_dim", 20),
        ({"qk_layernorm": True}, "qk_norm", "head"),
        ({"mtp_num_layers": 1}, "num_mtp_layers", 1),
        ({"post_self_attn_layernorm": True, "post_mlp_layernorm": True}, "norms_per_layer", 4),
        ({"multi_latent_attention": True, "qk_layernorm": True}, "qk_norm", "none"),
        ({"multi_latent_attention": True}, "head_dim", 192),
    ],
)
def test_absent_arguments_mean_megatron_core_s_defaults(changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(model(MEGATRON, **changes), field) == value


@pytest.mark.parametrize(
    ("frequency", "dense", "step"),
    [
        (1, 0, 1),
        ("([0]*3+[1]*5)", 3, 1),
        ("'([0]+[1]*7)'", 1, 1),
        ([0, 1] * 4, 0, 2),
        ("[0,0,1,0,1,0,1,1]", None, None),
        ("[0]*2+[0,1]*3", 2, 2),
        (2, 0, 2),
        (3, None, None),
        ("$FREQ", None, None),
        ("[1]*7", None, None),
        ("__import__('os').getcwd()", None, None),
    ],
)
def test_which_layers_have_experts(frequency: object, dense: int | None, step: int | None) -> None:
    changes = {"num_experts": 4, "moe_layer_freq": frequency}
    if dense is None:
        with pytest.raises(InvalidInput, match=r"^moe_layer_freq: "):
            model(MEGATRON, **changes)
        return
    moe = model(MEGATRON, **changes).moe
    assert moe is not None
    assert (moe.num_dense_layers, moe.layer_step, moe.top_k, moe.expert_ffn_hidden_size) == (dense, step, 2, 256)


@pytest.mark.parametrize(
    ("changes", "attention", "mixers", "mlps"),
    [
        ({"hybrid_override_pattern": "M-M*M-M-"}, 1, 4, 3),
        ({"experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 4}, 2, 6, 8),
        ({"linear_attention_type": "gated_delta_net", "linear_attention_freq": "([1]*3+[0])*2"}, 2, 6, 8),
    ],
)
def test_hybrids_by_arguments(changes: dict[str, Any], attention: int, mixers: int, mlps: int) -> None:
    heads = {
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_value_head_dim": 8,
        "linear_key_head_dim": 8,
    }
    hybrid = model(MEGATRON, **(changes if "hybrid_override_pattern" in changes else changes | heads)).hybrid
    assert hybrid is not None
    counts = (hybrid.num_attention_layers, hybrid.num_mixer_layers, hybrid.num_mlp_layers)
    assert counts == (attention, mixers, mlps)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": None}, "vocab_size: None is not usable; it is required: no tokenizer is named either"),
        (
            {"vocab_size": None, "tokenizer_model": "acme/lm"},
            "vocab_size: None is not usable; it is required: 'acme/lm'",
        ),
        ({"num_layers": "${LAYERS}"}, "num_layers: '${LAYERS}' is not usable; a whole number of at least 1"),
        ({"num_layers": 10**12}, "num_layers: 1000000000000 is not usable; at most 10000"),
        ({"num_query_groups": 3, "group_query_attention": True}, "num_query_groups: 3 is not usable; a divisor"),
        (
            {"num_experts": 2, "moe_router_topk": 3},
            "moe_router_topk: 3 is not usable; at most the number of experts (2)",
        ),
        ({"max_position_embeddings": None}, "max_position_embeddings: None is not usable; the default"),
        (
            {"spec": ["acme.layers", "spec"]},
            "spec: ['acme.layers', 'spec'] is not usable; its layers come from a plug-in",
        ),
        ({"extends": ["base.yaml"]}, "extends: ['base.yaml'] is not usable; the file that it extends is not read"),
        ({"hidden_size": 60}, "hidden_size: 60 is not usable; without kv_channels it has to be a multiple"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        model(MEGATRON, **changes)
    assert str(caught.value).startswith(message)


def test_a_known_tokenizer_gives_the_vocabulary_and_says_so() -> None:
    spec = model(MEGATRON, vocab_size=None, tokenizer_model="Qwen/Qwen3-8B")
    assert spec.vocab_size == 151936
    assert spec.notes == ("vocab_size is not in the file: 151936 is that of the published config of Qwen/Qwen3-8B",)


@pytest.mark.parametrize("text", ["", "1", "[2]", "[0]*-1", "[1]*10**9", "f()", "[[1]]", "[1]+1", "[1", None, 3, {}])
def test_what_is_no_pattern_is_none(text: object) -> None:
    assert layer_pattern(text) is None


# The other dialects' own rules.


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({}, "vocab_size", 50432),  # 50257 padded to a multiple of 128 * 2, as in Pythia 6.9B
        ({"vocab-size": 1000, "make-vocab-size-divisible-by": 1}, "vocab_size", 1000),
        ({}, "ffn_hidden_size", 256),
        ({"hidden-size": 4096, "activation": "swiglu", "intermediate-size": 32768}, "ffn_hidden_size", 11008),
        ({"activation": "swiglu"}, "gated_mlp", True),
        ({}, "tie_word_embeddings", True),
        ({"no-weight-tying": True}, "tie_word_embeddings", False),
        ({"pos-emb": "learned"}, "learned_position_embeddings", True),
        ({"norm": "rmsnorm"}, "norm_bias", False),
        ({"use_bias_in_attn_linear": False}, "qkv_bias", False),
        ({"num_kv_heads": 2}, "num_kv_heads", 2),
        ({"gpt_j_residual": True, "gpt_j_tied": True}, "norms_per_layer", 1),
    ],
)
def test_gpt_neox(changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(model(NEOX, **changes), field) == value


def test_gpt_neox_says_which_vocabulary_it_took_and_refuses_other_mixers() -> None:
    assert "the default tokenizer's 50257" in model(NEOX).notes[0]
    with pytest.raises(InvalidInput, match=r"^attention_config: 'mamba' is not usable"):
        model(NEOX, attention_config=[[["mamba"], 8]])


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({}, "tie_word_embeddings", False),
        ({"decoder_block": "gemma2", "sliding_window_size": 16}, "num_layers", 16),  # a block is two layers
        ({"decoder_block": "gemma2", "sliding_window_size": 16}, "num_sliding_layers", 8),
        ({"decoder_block": "qwen3"}, "qk_norm", "head"),
        ({"decoder_block": "gpt3", "trainable_position_size": 128}, "learned_position_embeddings", True),
        ({"vision_encoder_block": "x", "num_hidden_layers_for_vit": 2}, "num_layers", 8),
    ],
)
def test_maxtext(changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(model(MAXTEXT, **changes), field) == value


def test_maxtext_problems_have_its_own_keys() -> None:
    with pytest.raises(InvalidInput, match=r"^base_num_kv_heads: 3 is not usable; a divisor of"):
        model(MAXTEXT, base_num_kv_heads=3)
    with pytest.raises(InvalidInput, match=r"^decoder_block: 'envy' is not usable; known: "):
        model(MAXTEXT, decoder_block="envy")


def test_llm_foundry_puts_its_variables_in() -> None:
    block = {"name": "mpt_causal_lm", "d_model": 64, "n_heads": 8, "n_layers": 2, "vocab_size": 100}
    spec = model({"model": block | {"max_seq_len": "${variables.max_seq_len}"}, "variables": {"max_seq_len": 32}})
    assert (spec.max_position_embeddings, spec.learned_position_embeddings, spec.qkv_bias) == (32, True, True)
    with pytest.raises(InvalidInput, match=r"^model\.max_seq_len: '\$\{variables\.max_seq_len\}' is not usable"):
        model({"model": block | {"max_seq_len": "${variables.max_seq_len}"}})


def test_nanotron_nests_its_config_and_may_have_experts() -> None:
    config = {"is_qwen2_config": True, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8}
    config |= {"num_hidden_layers": 2, "vocab_size": 100, "moe_config": {"num_experts": 4, "top_k": 1}}
    spec = model({"model": {"model_config": config}})
    assert spec.moe is not None
    assert (spec.moe.num_experts, spec.moe.expert_ffn_hidden_size) == (4, 96)


@pytest.mark.parametrize(
    ("changes", "width"),
    [({}, 11008), ({"ffn_dim_multiplier": 1.3, "multiple_of": 1024}, 14336), ({"multiple_of": "x"}, None)],
)
def test_llama_s_own_params_json(changes: dict[str, Any], width: int | None) -> None:
    """Llama 2 7B has 11008, Llama 3 8B 14336 features in its MLP."""
    params = {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32000}
    if width is None:
        with pytest.raises(InvalidInput, match=r"^hidden_dim: None is not usable"):
            model(params, **changes)
    else:
        assert model(params, **changes).ffn_hidden_size == width
