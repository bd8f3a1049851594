"""Megatron's arguments of hybrids: a pattern of layers with Mamba-2, or linear attention in most of them."""

from __future__ import annotations

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families.common import Fields
from costmodel.spec.native.reading import layer_pattern


def hybrid_fields(keys: ConfigKeys, layers: int, hidden: int) -> Fields:
    """Nothing for a model with attention in every layer."""
    variant = keys.text("linear_attention_type") or keys.text("experimental_attention_variant")
    if variant is not None and variant != "gated_delta_net":
        keys.problem("experimental_attention_variant", variant, "gated_delta_net is supported")
    elif variant is not None:
        return _delta_net(keys, layers)
    pattern = keys.text("hybrid_override_pattern")
    is_hybrid = keys.flag("is_hybrid_model")
    if pattern is None and (is_hybrid or keys.raw("model_type") == "mamba"):
        keys.problem("hybrid_override_pattern", None, "a hybrid's layers have to be listed, such as M-M*-")
    if pattern is None:
        return {}
    if keys.has("linear_num_key_heads"):
        keys.problem("hybrid_override_pattern", pattern, "with linear attention it is not said which layers have what")
    count = {kind: pattern.count(kind) for kind in "M*-"}
    if sum(count.values()) != len(pattern) or len(pattern) != layers or not all(count.values()):
        expected = f"num_layers ({layers}) letters are expected: M for Mamba, * for attention, - for an MLP, each used"
        keys.problem("hybrid_override_pattern", pattern, expected)
        return {}
    head_dim = keys.size("mamba_head_dim")
    inner = keys.size("mamba_expand") * hidden
    mixer = {
        "kind": "mamba2",
        "num_heads": keys.size_or_none("mamba_num_heads") or max(1, inner // head_dim),
        "head_dim": head_dim,
        "num_key_heads": keys.size("mamba_num_groups"),
        "key_head_dim": keys.size("mamba_state_dim"),
        "conv_kernel": keys.size("mamba_conv_kernel"),
        "conv_bias": True,
    }
    counts = {"num_attention_layers": count["*"], "num_mixer_layers": count["M"], "num_mlp_layers": count["-"]}
    return {"norms_per_layer": 1, "hybrid": counts | {"mixer": mixer}}


def _delta_net(keys: ConfigKeys, layers: int) -> Fields:
    """``linear_attention_freq``: every how many layers one has full attention, or a list with 1 for a delta net."""
    frequency = keys.raw("linear_attention_freq")
    keys.has("linear_attention_freq")
    pattern = layer_pattern(frequency)
    if pattern is None and isinstance(frequency, int) and frequency > 1:
        pattern = [int((layer + 1) % frequency != 0) for layer in range(layers)]
    if pattern is None or len(pattern) != layers or not 0 < sum(pattern) < layers:
        expected = "a number of layers, or a list such as ([1]*3+[0])*12 over all of them, is expected"
        keys.problem("linear_attention_freq", frequency, expected)
        return {}
    mixer = {
        "kind": "gated_delta_net",
        "num_heads": keys.size("linear_num_value_heads"),
        "head_dim": keys.size("linear_value_head_dim"),
        "num_key_heads": keys.size("linear_num_key_heads"),
        "key_head_dim": keys.size("linear_key_head_dim"),
        "conv_kernel": keys.size("linear_conv_kernel_dim"),
    }
    counts = {"num_attention_layers": layers - sum(pattern), "num_mixer_layers": sum(pattern), "num_mlp_layers": layers}
    return {"hybrid": counts | {"mixer": mixer}}
