"""Keys of frameworks' own files that no reader understands: refused or named, never dropped."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.catalog.model_files import model_of
from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec

MIXTRAL_PARAMS: dict[str, Any] = {
    "dim": 4096,
    "n_layers": 32,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "norm_eps": 1e-5,
    "vocab_size": 32000,
    "moe": {"num_experts": 8, "num_experts_per_tok": 2},
}
MISTRAL_PARAMS = {key: value for key, value in MIXTRAL_PARAMS.items() if key != "moe"}
META_PARAMS: dict[str, Any] = {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32000}
MEGATRON: dict[str, Any] = {"num_layers": 8, "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 1000}
MEGATRON |= {"max_position_embeddings": 128, "transformer_impl": "transformer_engine"}
NEOX: dict[str, Any] = {"num-layers": 8, "hidden-size": 64, "num-attention-heads": 8, "pos-emb": "rotary"}
NEOX |= {"max-position-embeddings": 128, "model-parallel-size": 2}
MAXTEXT: dict[str, Any] = {"base_emb_dim": 64, "base_num_query_heads": 8, "base_num_kv_heads": 2, "base_mlp_dim": 96}
MAXTEXT |= {"base_num_decoder_layers": 8, "head_dim": 8, "vocab_size": 1000, "decoder_block": "llama2"}
MPT: dict[str, Any] = {"name": "mpt_causal_lm", "d_model": 64, "n_heads": 8, "n_layers": 2, "vocab_size": 100}
MPT |= {"max_seq_len": 32}
NANOTRON: dict[str, Any] = {"is_llama_config": True, "hidden_size": 64, "intermediate_size": 96}
NANOTRON |= {"num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 100}


def read(data: dict[str, Any], **changes: Any) -> ModelSpec:
    return model_of(data | changes, "m", "here")


def refusal(data: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(data, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_mixtral_s_own_params_json_is_mixtral() -> None:
    spec, known = read(MIXTRAL_PARAMS), load_model("mixtral-8x7b")
    assert (spec.params.total, spec.params.active) == (known.params.total, known.params.active)
    assert spec.qk_norm == "none"


def test_mistral_s_own_params_json_is_mistral() -> None:
    assert read(MISTRAL_PARAMS).params == load_model("mistral-7b-v0.1").params
    assert read(MISTRAL_PARAMS, sliding_window=4096).num_sliding_layers == 32
    assert "read as Mistral's" in read(MISTRAL_PARAMS).notes[0]
    # The same arguments in a flavour of torchtitan's are Qwen 3's.
    for changes in ({"max_context_length": 4096}, {"qk_norm": True}):
        assert read(MISTRAL_PARAMS, **changes).qk_norm == "head"


@pytest.mark.parametrize(
    ("data", "changes", "key"),
    [
        (
            MIXTRAL_PARAMS,
            {"moe": {"num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 1}},
            "moe.num_shared",
        ),
        (MIXTRAL_PARAMS, {"moe": {"num_experts": 8}}, "moe.num_experts_per_tok"),
        (MIXTRAL_PARAMS, {"moe": {"num_experts": 8, "num_experts_per_tok": 9}}, "moe.num_experts_per_tok"),
        (MIXTRAL_PARAMS, {"moe": 8}, "moe"),
        (MISTRAL_PARAMS, {"num_shared_experts": 1}, "num_shared_experts"),
        (MISTRAL_PARAMS, {"q_lora_rank": 8}, "q_lora_rank"),
        (MISTRAL_PARAMS, {"top_k": 2}, "top_k"),
        (META_PARAMS, {"moe_args": {"num_experts": 16}}, "moe_args"),
        (META_PARAMS, {"mamba_d_state": 16}, "mamba_d_state"),
        (MAXTEXT, {"attention_type": "mla"}, "attention_type"),
        (MAXTEXT, {"global_parameter_scale": 4}, "global_parameter_scale"),
        ({"model": MPT | {"ffn_config": {"ffn_type": "mb_moe"}}}, {}, "ffn_config.ffn_type"),
        ({"model": MPT | {"attn_config": {"qk_ln": True}}}, {}, "attn_config.qk_ln"),
        ({"model": MPT | {"block_overrides": {"order": [1]}}}, {}, "model.block_overrides"),
        ({"model_config": NANOTRON | {"num_experts": 8}}, {}, "model_config.num_experts"),
        (
            {"model_config": NANOTRON | {"moe_config": {"num_experts": 4, "top_k": 1, "num_shared_experts": 2}}},
            {},
            "model_config.moe_config.num_shared_experts",
        ),
    ],
)
def test_frameworks_keys_of_another_architecture_are_refused(
    data: dict[str, Any], changes: dict[str, Any], key: str
) -> None:
    assert refusal(data, **changes).startswith(key)


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (META_PARAMS, {"ffn_exp": 4.0}),
        (META_PARAMS, {"use_qk_norm": True}),
        (MISTRAL_PARAMS, {"use_biases": True}),
        (MEGATRON, {"kv_lora_rank": 16}),
        (MEGATRON, {"moe_ffn_hidden_size": 32}),
        (MEGATRON, {"mamba_state_dim": 16}),
        (MEGATRON, {"hybrid_attention_ratio": 0.5}),
        (MEGATRON, {"num_query_groups": 4}),
        (NEOX, {"rwkv": True}),
        (NEOX, {"expert_interval": 2}),
        (MAXTEXT, {"num_experts": 8}),
        (MAXTEXT, {"use_qk_norm": True}),
        (MAXTEXT, {"first_num_dense_layers": 1}),
        (MAXTEXT, {"mtp_num_layers": 1}),
        (MAXTEXT, {"attention_sink": True}),
        ({"model_config": NANOTRON}, {"model_config": NANOTRON | {"sliding_window_size": 20}}),
    ],
)
def test_frameworks_keys_that_are_left_out_are_named(data: dict[str, Any], changes: dict[str, Any]) -> None:
    before, spec = read(data), read(data, **changes)
    assert spec.params == before.params
    (note,) = set(spec.notes) - set(before.notes)
    key = "sliding_window_size" if "model_config" in changes else next(iter(changes))
    assert key in note


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (MEGATRON, {"expert_model_parallel_size": 8, "moe_token_dispatcher_type": "alltoall", "moe_router_topk": 2}),
        (
            MEGATRON,
            {"num_experts": None, "moe_ffn_hidden_size": 32, "multi_latent_attention": False, "kv_lora_rank": 9},
        ),
        (NEOX, {"moe_expert_parallel_size": 2}),
        (MAXTEXT, {"num_experts": 1, "num_experts_per_tok": 1, "kv_lora_rank": 512, "n_routing_groups": -1}),
        (MAXTEXT, {"moe_mlpwi_0": "remat", "ici_expert_parallelism": 4, "sliding_window_size": 0}),
        (META_PARAMS, {"rope_theta": 500000.0, "norm_eps": 1e-5, "use_scaled_rope": True}),
    ],
)
def test_what_changes_no_parameter_is_not_talked_about(data: dict[str, Any], changes: dict[str, Any]) -> None:
    assert read(data, **changes) == read(data)


@pytest.mark.parametrize(
    ("data", "changes", "field", "value"),
    [
        (MEGATRON, {"num_moe_experts": 8}, "moe.num_experts", 8),
        (MEGATRON, {"num_experts": 8, "moe_latent_size": 16}, "moe.latent_size", 16),
        (MEGATRON, {"gated_linear_unit": True}, "gated_mlp", True),
        (MEGATRON, {"softmax_type": "learnable"}, "attention_sinks", True),
        (MAXTEXT, {"mlp_activations": ["gelu"]}, "gated_mlp", False),
        (MAXTEXT, {"mlp_activations": ["silu", "linear"]}, "gated_mlp", True),
        ({"model": MPT | {"ffn_config": {"ffn_type": "mptglu"}}}, {}, "gated_mlp", True),
        ({"model": MPT | {"attn_config": {"sliding_window_size": 8}}}, {}, "num_sliding_layers", 2),
    ],
)
def test_frameworks_keys_that_are_read(
    data: dict[str, Any], changes: dict[str, Any], field: str, value: object
) -> None:
    found: Any = read(data, **changes)
    for part in field.split("."):
        found = getattr(found, part)
    assert found == value
