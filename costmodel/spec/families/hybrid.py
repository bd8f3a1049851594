"""Hybrids: attention in some layers, a mixer with a fixed-size state in the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import (
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    POSITIONS,
    TOP_K,
    UNGATED,
    VOCAB,
    Fields,
    attention_bias,
    decoder,
    even_head_dim,
    layer_kinds,
)
from costmodel.spec.families.experts import qwen_experts

_NEMOTRON_KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NEMOTRON_NAMES = {"full_attention": "attention", "linear_attention": "mamba", "mamba2": "mamba"}


def mixer_everywhere_else(keys: ConfigKeys, mixer: Fields, attention_layers: int) -> Fields:
    """Every layer has an MLP; ``attention_layers`` of them attention, the others the mixer."""
    layers = keys.size(*LAYERS)
    counts = {"num_attention_layers": attention_layers, "num_mixer_layers": layers - attention_layers}
    return {"hybrid": {"mixer": mixer, "num_mlp_layers": layers} | counts}


def _delta_net(keys: ConfigKeys) -> Fields:
    """Every ``full_attention_interval``-th layer has attention, with an output gate; the others a gated delta net."""
    mixer = {
        "kind": "gated_delta_net",
        "num_heads": keys.size("linear_num_value_heads"),
        "head_dim": keys.size("linear_value_head_dim"),
        "num_key_heads": keys.size("linear_num_key_heads"),
        "key_head_dim": keys.size("linear_key_head_dim"),
        "conv_kernel": keys.size("linear_conv_kernel_dim", default=4),
    }
    kinds = layer_kinds(keys, "full_attention", "linear_attention")
    interval = keys.size("full_attention_interval", default=4)
    if not keys.sound(*LAYERS):
        return {}
    attention = kinds.count("full_attention") if kinds is not None else keys.size(*LAYERS) // interval
    if not 0 < attention < keys.size(*LAYERS):
        expected = "a model with both layers of attention and of linear attention is expected"
        keys.problem("layer_types" if kinds is not None else "full_attention_interval", attention, expected)
        return {}
    common = {"attention_output_gate": True, "qk_norm": "head"}
    return attention_bias(keys) | common | mixer_everywhere_else(keys, mixer, attention)


def _qwen3_next(keys: ConfigKeys) -> Fields:
    return decoder(keys, head_dim=256) | _delta_net(keys) | {"moe": qwen_experts(keys)}


def _qwen3_5(keys: ConfigKeys) -> Fields:
    mtp = {"num_mtp_layers": keys.count("mtp_num_hidden_layers")}
    return decoder(keys, head_dim=256) | _delta_net(keys) | mtp


def _qwen3_5_moe(keys: ConfigKeys) -> Fields:
    """All layers have experts, so that there is no ``intermediate_size``."""
    heads = keys.size(*HEADS)
    moe = qwen_experts(keys)
    sizes = {
        "num_layers": keys.size(*LAYERS),
        "hidden_size": keys.size(*HIDDEN),
        "num_heads": heads,
        "num_kv_heads": keys.size_or_none(*KV_HEADS) or heads,
        "head_dim": keys.size("head_dim", default=256),
        "ffn_hidden_size": moe["expert_ffn_hidden_size"],
        "vocab_size": keys.size(*VOCAB),
        "max_position_embeddings": keys.size_or_none(*POSITIONS),
        "tie_word_embeddings": keys.flag("tie_word_embeddings"),
        "num_mtp_layers": keys.count("mtp_num_hidden_layers"),
    }
    return sizes | _delta_net(keys) | {"moe": moe}


def _minimax(keys: ConfigKeys) -> Fields:
    """``attn_type_list`` has 1 for attention and 0 for lightning attention, whose heads each have keys and values."""
    fields = decoder(keys)
    listed = keys.items("attn_type_list")
    kinds = layer_kinds(keys, "full_attention", "linear_attention")
    num_layers, heads = fields["num_layers"], fields["num_heads"]
    if not keys.sound(*LAYERS):
        return fields
    if listed is not None and (len(listed) != num_layers or any(kind not in (0, 1) for kind in listed)):
        keys.problem("attn_type_list", listed, f"num_hidden_layers ({num_layers}) items of 0 or 1 are expected")
        return fields
    if listed is None and kinds is None:
        keys.problem("attn_type_list", None, "it is required: which layers have attention")
        return fields
    attention = listed.count(1) if listed is not None else (kinds or []).count("full_attention")
    mixer = {
        "kind": "lightning",
        "num_heads": heads,
        "head_dim": fields["head_dim"],
        "num_key_heads": heads,
        "key_head_dim": fields["head_dim"],
    }
    moe = {
        "num_experts": keys.size("num_local_experts"),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": fields["ffn_hidden_size"],
    }
    fields |= {"moe": moe}
    return fields if attention == num_layers else fields | mixer_everywhere_else(keys, mixer, attention)


def _kinds_of_nemotron(keys: ConfigKeys) -> Sequence[str]:
    """Every layer's kind: from a pattern such as ``M-M*-``, or from a list of names."""
    pattern, names = keys.text("hybrid_override_pattern"), keys.items("layers_block_type")
    if pattern is not None:
        unknown = sorted(set(pattern) - set(_NEMOTRON_KINDS))
        if unknown or not pattern:
            keys.problem("hybrid_override_pattern", pattern, f"letters of {''.join(_NEMOTRON_KINDS)} are expected")
        kinds = [_NEMOTRON_KINDS.get(letter, "mlp") for letter in pattern]
        where = "hybrid_override_pattern"
    else:
        where = "layers_block_type"
        if not names:
            keys.problem("hybrid_override_pattern", None, "it or layers_block_type is required")
            return ()
        kinds = [_NEMOTRON_NAMES.get(name, name) if isinstance(name, str) else str(name) for name in names]
        unknown = sorted(set(kinds) - set(_NEMOTRON_KINDS.values()))
        if unknown:
            keys.problem(where, unknown[0], f"{', '.join(_NEMOTRON_KINDS.values())} are expected")
    if keys.has("num_hidden_layers") and keys.size(*LAYERS) != len(kinds):
        keys.problem("num_hidden_layers", keys.size(*LAYERS), f"{where} lists {len(kinds)} layers")
    return kinds


def _nemotron_h(keys: ConfigKeys) -> Fields:
    """Every layer is one thing: a Mamba-2 mixer, attention, an MLP, or experts. No MLP has a gate."""
    kinds = _kinds_of_nemotron(keys)
    count = Counter(kinds)
    heads, hidden = keys.size(*HEADS), keys.size(*HIDDEN)
    head_dim = keys.size_or_none("head_dim", "attention_head_dim") or even_head_dim(keys, heads)
    bias = keys.flag("mlp_bias")
    fields: Fields = {
        "num_layers": max(1, len(kinds)),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": keys.size_or_none(*KV_HEADS) or heads,
        "head_dim": head_dim,
        "ffn_hidden_size": keys.size("intermediate_size"),
        "vocab_size": keys.size(*VOCAB),
        "max_position_embeddings": keys.size_or_none(*POSITIONS),
        "tie_word_embeddings": keys.flag("tie_word_embeddings"),
        "norms_per_layer": 1,
        "mlp_bias": bias,
        "expert_bias": bias,
        "num_mtp_layers": keys.count("num_nextn_predict_layers"),
    }
    for name in ("mtp_hybrid_override_pattern", "mtp_layers_block_type"):
        keys.has(name)  # a module is priced as a layer of attention and one of experts
    fields |= attention_bias(keys) | UNGATED
    mlp = count["mlp"] + count["moe"]
    if not (count["mamba"] and count["attention"] and mlp):
        keys.problem("hybrid_override_pattern", dict(count), "layers of Mamba, of attention and of MLPs are expected")
        return fields
    if count["mlp"] and count["moe"]:
        expected = "a pattern with both MLPs and experts is not supported"
        keys.problem("hybrid_override_pattern", "".join(kind[0] for kind in kinds), expected)
    fields |= {"moe": _nemotron_experts(keys)} if count["moe"] else {}
    counts = {"num_attention_layers": count["attention"], "num_mixer_layers": count["mamba"], "num_mlp_layers": mlp}
    return fields | {"hybrid": counts | {"mixer": _mamba2(keys)}}


def _bamba(keys: ConfigKeys) -> Fields:
    """Attention in the layers of ``attn_layer_indices``, Mamba-2 in the others, an MLP in all."""
    fields = decoder(keys) | attention_bias(keys) | {"mlp_bias": keys.flag("mlp_bias")}
    listed = keys.items("attn_layer_indices") or []
    heads = keys.size("mamba_n_heads", default=128)
    head_dim = keys.raw("mamba_d_head")
    inner = keys.size("mamba_expand", default=2) * fields["hidden_size"]
    if not keys.sound(*LAYERS):
        return fields
    indices = {layer for layer in listed if isinstance(layer, int) and 0 <= layer < fields["num_layers"]}
    if len(indices) != len(listed) or not 0 < len(indices) < fields["num_layers"]:
        keys.problem("attn_layer_indices", listed, "some of the layers are expected, each once, counted from 0")
        return fields
    mixer = {
        "kind": "mamba2",
        "num_heads": heads,
        "head_dim": max(1, inner // heads) if head_dim in (None, "auto") else keys.size("mamba_d_head"),
        "num_key_heads": keys.size("mamba_n_groups", default=1),
        "key_head_dim": keys.size("mamba_d_state", default=256),
        "conv_kernel": keys.size("mamba_d_conv", default=4),
        "conv_bias": keys.flag("mamba_conv_bias", default=True),
        "projection_bias": keys.flag("mamba_proj_bias"),
    }
    return fields | mixer_everywhere_else(keys, mixer, len(indices))


def _mamba2(keys: ConfigKeys) -> Fields:
    return {
        "kind": "mamba2",
        "num_heads": keys.size("mamba_num_heads"),
        "head_dim": keys.size("mamba_head_dim"),
        "num_key_heads": keys.size("n_groups", default=8),
        "key_head_dim": keys.size("ssm_state_size", default=128),
        "conv_kernel": keys.size("conv_kernel", default=4),
        "conv_bias": keys.flag("use_conv_bias", default=True),
        "projection_bias": keys.flag("mamba_proj_bias") or keys.flag("use_bias"),
    }


def _nemotron_experts(keys: ConfigKeys) -> Fields:
    keys.has("n_shared_experts")  # its width is that of all of them
    return {
        "num_experts": keys.size("n_routed_experts"),
        "top_k": keys.size(*TOP_K),
        "expert_ffn_hidden_size": keys.size("moe_intermediate_size"),
        "latent_size": keys.size_or_none("moe_latent_size"),
        "shared_expert_ffn_hidden_size": keys.count("moe_shared_expert_intermediate_size"),
        "score_correction_bias": True,
        "num_groups": keys.size_or_none("n_group"),
        "max_groups_per_token": keys.size_or_none("topk_group"),
    }


FAMILIES: dict[str, Callable[[ConfigKeys], Fields]] = {
    "bamba": _bamba,
    "minimax": _minimax,
    "minimax_text_01": _minimax,
    "nemotron_h": _nemotron_h,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "qwen3_5_text": _qwen3_5,
    "qwen3_next": _qwen3_next,
}
