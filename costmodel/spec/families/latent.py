"""DeepSeek's line: multi-head latent attention and fine-grained experts."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import TOP_K, Fields, attention_bias, decoder, layer_kinds
from costmodel.spec.families.experts import mtp_layers


def _latent(keys: ConfigKeys, *, first_dense: int, score_correction_bias: bool) -> Fields:
    fields = decoder(keys)
    keys.has("qk_head_dim")  # the sum of both
    nope, rope = keys.size("qk_nope_head_dim"), keys.size("qk_rope_head_dim")
    mla = {
        # The class's default is V2's rank; files of V2-Lite that drop the key mean none.
        "q_lora_rank": keys.size_or_none("q_lora_rank"),
        "kv_lora_rank": keys.size("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": keys.size("v_head_dim"),
    }
    keys.require("moe_layer_freq", 1, "every layer after the dense ones has experts")
    num_dense = keys.count("first_k_dense_replace", default=first_dense)
    kinds = keys.items("mlp_layer_types")
    if kinds is not None and kinds != ["dense"] * num_dense + ["sparse"] * (fields["num_layers"] - num_dense):
        expected = (
            f"dense for the first {num_dense} of {fields['num_layers']} layers and sparse for the others is expected"
        )
        keys.problem("mlp_layer_types", kinds, expected)
    expert = keys.size("moe_intermediate_size")
    moe = {
        "num_experts": keys.size("n_routed_experts", "num_local_experts"),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": expert,
        "shared_expert_ffn_hidden_size": keys.count("n_shared_experts") * expert,
        "num_dense_layers": num_dense,
        "score_correction_bias": score_correction_bias,
        "num_groups": keys.size_or_none("n_group"),
        "max_groups_per_token": keys.size_or_none("topk_group"),
    }
    # Keys and values are expanded for every head from the latent.
    heads = {"num_kv_heads": fields["num_heads"], "head_dim": nope + rope}
    return fields | attention_bias(keys) | heads | {"mla": mla, "moe": moe}


def _deepseek_v2(keys: ConfigKeys) -> Fields:
    mtp = {"num_mtp_layers": keys.count("num_nextn_predict_layers")}
    return _latent(keys, first_dense=0, score_correction_bias=False) | mtp


def _deepseek_v3(keys: ConfigKeys) -> Fields:
    return _latent(keys, first_dense=3, score_correction_bias=True) | {"num_mtp_layers": mtp_layers(keys)}


def _deepseek_v32(keys: ConfigKeys) -> Fields:
    """V3 with an indexer that picks the keys to attend to."""
    keys.note(
        "sparse attention: the indexer's parameters and work are left out, and attention is priced as if it saw every "
        "key, which is more than it does beyond index_topk tokens"
    )
    for name in ("index_head_dim", "index_n_heads", "index_topk"):
        keys.has(name)
    layer_kinds(keys, "full_attention", "indexed_attention", "deepseek_sparse_attention")
    return _deepseek_v3(keys)


FAMILIES: dict[str, Callable[[ConfigKeys], Fields]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "deepseek_v32": _deepseek_v32,
    "kimi_k2": _deepseek_v3,
}
