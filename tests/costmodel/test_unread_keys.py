"""Keys that contradict the architecture, or that no reader understands: refused or named, never dropped."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.catalog.documents import read_mapping
from costmodel.catalog.folders import find
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.catalog.model_files import model_of
from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec

ESM: dict[str, Any] = {"model_type": "esm", "hidden_size": 1280, "intermediate_size": 5120, "vocab_size": 33}
ESM |= {"num_attention_heads": 20, "num_hidden_layers": 33, "position_embedding_type": "rotary"}


def published(name: str) -> dict[str, Any]:
    entry = find("model", name)
    assert entry is not None
    return read_mapping(entry.file, "model")


def read(data: dict[str, Any], **changes: Any) -> ModelSpec:
    return model_of(data | changes, "m", "here")


def refusal(data: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(data, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", model_names())
def test_published_files_are_understood_whole(name: str) -> None:
    assert not [note for note in load_model(name).notes if "not understood" in note or "contradicts" in note]


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["full_attention"] * 10, "num_hidden_layers (36) items are expected"),
        (["banana"] * 36, "layer_types: 'banana' is not usable; full_attention or sliding_attention is expected"),
        (["linear_attention"] * 36, "layer_types: 'linear_attention' is not usable; full_attention or sliding"),
        ("full_attention", "layer_types: 'full_attention' is not usable; a list is expected"),
    ],
)
def test_layer_types_fit_the_model(kinds: object, message: str) -> None:
    assert message in refusal(published("qwen3-8b"), layer_types=kinds)
    assert read(published("qwen3-8b"), layer_types=["full_attention"] * 36) == read(published("qwen3-8b"))


def test_layers_without_a_window_s_size_are_said_to_see_everything() -> None:
    spec = read(published("qwen3-8b"), layer_types=["sliding_attention"] * 36)
    assert spec.num_sliding_layers == 0
    assert "use_sliding_window is off" in spec.notes[0]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama-3-8b", {"num_local_experts": 8}),
        ("llama-3-8b", {"num_experts_per_tok": 2}),
        ("llama-3-8b", {"n_group": 4}),
        ("llama-3-8b", {"kv_lora_rank": 512}),
        ("llama-3-8b", {"num_kv_shared_layers": 4}),
        ("llama-3-8b", {"first_k_dense_replace": 1}),
        ("llama-3-8b", {"num_nextn_predict_layers": 1}),
        ("llama-3-8b", {"hidden_size_per_layer_input": 256}),
        ("llama-3-8b", {"cross_attention_layers": [3, 8]}),
        ("llama-3-8b", {"ssm_state_size": 128}),
        ("mixtral-8x7b", {"n_shared_experts": 2}),
        ("mixtral-8x7b", {"q_lora_rank": 512}),
        ("deepseek-v3", {"num_hash_layers": 3}),
        ("gpt2", {"num_experts": 4}),
        ("falcon-180b", {"mamba_d_state": 16}),
    ],
)
def test_keys_of_another_architecture_are_refused_by_name(name: str, changes: dict[str, Any]) -> None:
    ((key, value),) = changes.items()
    assert refusal(published(name), **changes).startswith(f"{key}: {value!r} is not usable; model_type ")


@pytest.mark.parametrize("nothing", [None, False, 0, [], {}, "", "none"])
def test_keys_that_hold_nothing_are_no_contradiction(nothing: object) -> None:
    llama = published("llama-3-8b")
    assert read(llama, num_local_experts=nothing, kv_lora_rank=nothing, qkv_bias=nothing) == read(llama)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("llama-3-8b", {"qkv_bias": True}, "not understood, and planned without: qkv_bias True"),
        ("llama-3-8b", {"use_qk_norm": True}, "not understood, and planned without: use_qk_norm True"),
        ("llama-3-8b", {"sliding_window": 4096}, "not understood, and planned without: sliding_window 4096"),
        ("llama-3-8b", {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
        ("mixtral-8x7b", {"moe_intermediate_size": 32}, "moe_intermediate_size 32 is not used"),
        ("llama-3-8b", {"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM contradicts model_type llama"),
        ("llama-3-8b", {"architectures": ["LlamaForSequenceClassification"]}, "its own head isn't planned"),
    ],
)
def test_what_may_change_parameters_and_is_left_out_is_said(name: str, changes: dict[str, Any], said: str) -> None:
    before, spec = read(published(name)), read(published(name), **changes)
    assert spec.params == before.params
    (note,) = set(spec.notes) - set(before.notes)
    assert said in note


def test_the_sizes_of_dbrx_s_experts_have_to_be_there() -> None:
    without = {key: value for key, value in published("dbrx-132b").items() if not key.endswith("_config")}
    for data in (without, without | {"ffn_config": {}, "attn_config": {}}):
        message = refusal(data)
        for key in ("ffn_config.ffn_hidden_size", "ffn_config.moe_num_experts", "attn_config.kv_n_heads"):
            assert f"{key}: None is not usable" in message


def test_defaults_of_a_class_that_make_a_size_are_said() -> None:
    scout = published("llama-4-scout-17b-16e")
    text = scout.get("text_config", scout)
    without = {key: value for key, value in text.items() if key != "intermediate_size_mlp"}
    (note,) = (note for note in read(without).notes if "filled from its class's defaults" in note)
    assert "intermediate_size_mlp 16384" in note
    assert not any("intermediate_size_mlp" in note for note in read(text).notes)


@pytest.mark.parametrize("inner", [32, None])
def test_sizes_beside_a_nested_text_model_are_compared(inner: int | None) -> None:
    text = {"model_type": "llama", **({"num_hidden_layers": inner} if inner else {})}
    spec = read({"model_type": "llava", "num_hidden_layers": 10, "text_config": text})
    assert spec.num_layers == 32
    assert any(note.startswith("num_hidden_layers 10 at the top of the file is not used") for note in spec.notes)
    agreeing = read({"model_type": "llava", "num_hidden_layers": 32, "text_config": text | {"num_hidden_layers": 32}})
    assert not any("at the top" in note for note in agreeing.notes)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, "model_type"),
        ({"architectures": ["EsmForMaskedLM"]}, "architectures"),
        ({"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]}, "architectures"),
        ({"model_type": "neobert"}, "model_type"),
        ({"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"]}, "model_type"),
        ({"model_type": "llama", "architectures": ["AcmeForMaskedLM"]}, "architectures"),
        ({"model_type": "llama", "is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"model_type": "llama", "is_causal": False}, "is_causal"),
    ],
)
def test_encoders_are_refused(changes: dict[str, Any], key: str) -> None:
    message = refusal(ESM, **changes)
    assert message.startswith(f"{key}: ")
    assert "only decoders that predict the next token can be planned" in message
