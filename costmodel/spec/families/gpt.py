"""The GPT lineage: layer norms with biases, MLPs without a gate, and keys from before there was a convention."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import (
    ALL_BIASES,
    FFN,
    HEADS,
    HIDDEN,
    LAYERS,
    POSITIONS,
    UNGATED,
    VOCAB,
    Fields,
    decoder,
    even_head_dim,
)

_GPT2_HIDDEN = ("n_embd", "hidden_size")
_GPT2_HEADS = ("n_head", "num_attention_heads")
_GATED_OF_MPT = ("mptglu",)


def _four_times_wide(keys: ConfigKeys, *, tied: bool, kv_heads: int | None = None) -> Fields:
    """A decoder whose MLP is four times as wide as the model unless the file says otherwise."""
    heads, hidden = keys.size(*HEADS), keys.size(*HIDDEN)
    return {
        "num_layers": keys.size(*LAYERS),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": kv_heads or heads,
        "head_dim": even_head_dim(keys, heads),
        "ffn_hidden_size": keys.size_or_none(*FFN) or 4 * hidden,
        "vocab_size": keys.size(*VOCAB),
        "max_position_embeddings": keys.size_or_none(*POSITIONS),
        "tie_word_embeddings": keys.flag("tie_word_embeddings", default=tied),
    } | UNGATED


def _gpt2_like(keys: ConfigKeys, *, kv_heads: int | None = None) -> Fields:
    keys.require("add_cross_attention", False, "an encoder is not planned")
    hidden, heads = keys.size(*_GPT2_HIDDEN), keys.size(*_GPT2_HEADS)
    keys.check(
        _GPT2_HIDDEN, _GPT2_HEADS, lambda width, count: width % count == 0, "a multiple of n_head ({}) is expected"
    )
    return {
        "num_layers": keys.size("n_layer", "num_hidden_layers"),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": kv_heads or heads,
        "head_dim": max(1, hidden // heads),
        "ffn_hidden_size": keys.size_or_none("n_inner", "intermediate_size") or 4 * hidden,
        "vocab_size": keys.size("vocab_size"),
        "max_position_embeddings": keys.size("n_positions", "max_position_embeddings", "n_ctx"),
        "tie_word_embeddings": keys.flag("tie_word_embeddings", default=True),
    } | UNGATED


def _gpt2(keys: ConfigKeys) -> Fields:
    return _gpt2_like(keys) | ALL_BIASES | {"learned_position_embeddings": True}


def _gpt_bigcode(keys: ConfigKeys) -> Fields:
    kv_heads = 1 if keys.flag("multi_query", default=True) else None
    return _gpt2_like(keys, kv_heads=kv_heads) | ALL_BIASES | {"learned_position_embeddings": True}


def _gptj(keys: ConfigKeys) -> Fields:
    """Attention and MLP read one norm; the head has a bias, attention has none."""
    biases = {"mlp_bias": True, "norm_bias": True, "head_bias": True}
    tied = keys.flag("tie_word_embeddings")
    return _gpt2_like(keys) | biases | {"norms_per_layer": 1, "tie_word_embeddings": tied}


def _bloom(keys: ConfigKeys) -> Fields:
    return _four_times_wide(keys, tied=True) | ALL_BIASES | {"embedding_norm": True}


def _falcon(keys: ConfigKeys) -> Fields:
    """Two norms a layer, one where attention and MLP read the same; grouped, single or full KV heads by flags."""
    grouped = keys.flag("new_decoder_architecture")
    keys.has("multi_query")
    if grouped:
        kv_heads = keys.size_or_none("num_kv_heads", "num_key_value_heads", "n_head_kv")
    else:
        kv_heads = 1 if keys.flag("multi_query", default=True) else None
    together = keys.flag("parallel_attn", default=True)
    norms = (keys.size_or_none("num_ln_in_parallel_attn") or (2 if grouped else 1)) if together else 2
    bias = keys.flag("bias")
    biases = {"qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias, "norm_bias": True}
    return _four_times_wide(keys, tied=True, kv_heads=kv_heads) | biases | {"norms_per_layer": norms}


def _mpt(keys: ConfigKeys) -> Fields:
    """As MosaicML's code makes it: positions are learned unless ALiBi or rotation replaces them."""
    heads, hidden = keys.size("n_heads", "num_attention_heads"), keys.size("d_model", "hidden_size")
    attention, feed_forward = keys.part("attn_config"), keys.part("ffn_config")
    if feed_forward.has("moe_num_experts"):
        experts = feed_forward.raw("moe_num_experts")
        feed_forward.problem("moe_num_experts", experts, "experts of MPT are not supported")
    for norm in ("qk_ln", "qk_gn"):
        attention.require(norm, False, "norms of queries and keys are of another width there")
    kind = feed_forward.text("ffn_type") or ""
    if "moe" in kind and not feed_forward.has("moe_num_experts"):
        feed_forward.problem("ffn_type", kind, "experts of MPT are not supported")
    sliding = {}
    if attention.raw("sliding_window_size") not in (None, -1):
        sliding = {"sliding_window": attention.size("sliding_window_size"), "num_sliding_layers": keys.size("n_layers")}
    kv_heads = attention.size_or_none("kv_n_heads") or heads
    kv_heads = 1 if attention.text("attn_type") == "multiquery_attention" else kv_heads
    width = feed_forward.size_or_none("ffn_hidden_size") or keys.size("expansion_ratio", default=4) * hidden
    bias = not keys.flag("no_bias", default=True)
    keys.check(
        ("d_model",), ("n_heads",), lambda width, count: width % count == 0, "a multiple of n_heads ({}) is expected"
    )
    learned = keys.flag("learned_pos_emb", default=False) and not (attention.flag("alibi") or attention.flag("rope"))
    return (
        {
            "num_layers": keys.size("n_layers", "num_hidden_layers"),
            "hidden_size": hidden,
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": max(1, hidden // heads),
            "ffn_hidden_size": width,
            "vocab_size": keys.size("vocab_size"),
            "max_position_embeddings": keys.size("max_seq_len", default=2048),
            "learned_position_embeddings": learned,
            "tie_word_embeddings": keys.flag("tie_word_embeddings", default=True),
        }
        | {"gated_mlp": kind in _GATED_OF_MPT}
        | sliding
        | dict.fromkeys(ALL_BIASES, bias)
    )


def _gpt_neox(keys: ConfigKeys) -> Fields:
    bias = keys.flag("attention_bias", default=True)
    fields = decoder(keys) | ALL_BIASES | UNGATED
    # Every head has keys and values of its own, whatever the file says.
    return fields | {"num_kv_heads": fields["num_heads"], "qkv_bias": bias, "attention_out_bias": bias}


def _opt(keys: ConfigKeys) -> Fields:
    """Learned positions have two rows more than there are positions."""
    why = "the shape of OPT-350M is not supported"
    keys.require("do_layer_norm_before", True, why)
    fields = _four_times_wide(keys, tied=True)
    keys.require("word_embed_proj_dim", fields["hidden_size"], why)
    positions = {"learned_position_embeddings": True, "extra_position_embeddings": 2}
    biases = dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_bias"), keys.flag("enable_bias", default=True))
    required = {"max_position_embeddings": keys.size(*POSITIONS), "ffn_hidden_size": keys.size("ffn_dim", *FFN)}
    return fields | required | positions | biases | {"norm_bias": True}


def _gpt_neo(keys: ConfigKeys) -> Fields:
    """Queries, keys and values have no biases; every other layer looks back ``window_size`` tokens."""
    fields = _four_times_wide(keys, tied=True)
    local = sum(kind == "local" for kind in keys.items("attention_layers") or [])
    size = keys.size("window_size", default=256)
    sliding = {"sliding_window": size, "num_sliding_layers": local} if local else {}
    biases = {"attention_out_bias": True, "mlp_bias": True, "norm_bias": True, "learned_position_embeddings": True}
    return fields | biases | sliding | {"max_position_embeddings": keys.size(*POSITIONS)}


FAMILIES: dict[str, Callable[[ConfigKeys], Fields]] = {
    "bloom": _bloom,
    "falcon": _falcon,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "mpt": _mpt,
    "opt": _opt,
}
