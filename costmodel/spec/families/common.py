"""What families spell alike: sizes, windows, biases, and the rules between keys that hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.key_words import holds_something, of_structure, of_widths

Fields = dict[str, Any]

LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
HIDDEN = ("hidden_size", "d_model", "n_embd", "n_embed")
HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")
FFN = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner")
VOCAB = ("vocab_size", "padded_vocab_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_k")

ALL_BIASES: Fields = dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_bias", "norm_bias"), True)
UNGATED: Fields = {"gated_mlp": False}


def decoder(keys: ConfigKeys, *, head_dim: int | None = None, tied: bool = False) -> Fields:
    """``head_dim`` and ``tied`` are the family's class defaults."""
    heads, hidden = keys.size(*HEADS), keys.size(*HIDDEN)
    return {
        "num_layers": keys.size(*LAYERS),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": keys.size_or_none(*KV_HEADS) or (1 if keys.flag("multi_query") else heads),
        "head_dim": keys.size_or_none("head_dim", default=head_dim) or even_head_dim(keys, heads),
        "ffn_hidden_size": keys.size(*FFN),
        "vocab_size": keys.size(*VOCAB),
        "max_position_embeddings": keys.size_or_none(*POSITIONS),
        "tie_word_embeddings": keys.flag("tie_word_embeddings", default=tied),
    }


def even_head_dim(keys: ConfigKeys, heads: int) -> int:
    hidden = keys.size(*HIDDEN)
    keys.check(
        HIDDEN,
        HEADS,
        lambda width, count: width % count == 0,
        "without a head_dim it has to be a multiple of num_attention_heads ({})",
    )
    return max(1, hidden // heads)


def attention_bias(keys: ConfigKeys, *, default: bool = False, out: bool = True) -> Fields:
    """``attention_bias`` on the projections to queries, keys and values, and with ``out`` on the one back."""
    bias = keys.flag("attention_bias", default=default)
    return {"qkv_bias": bias, "attention_out_bias": bias and out}


def window(keys: ConfigKeys, size: int | None, sliding_layers: int) -> Fields:
    """The window and how many layers use it: as ``layer_types`` lists them, else ``sliding_layers``."""
    kinds = layer_kinds(keys, "full_attention", "sliding_attention")
    if kinds is not None:
        sliding_layers = kinds.count("sliding_attention")
        if sliding_layers and size is None:
            keys.problem("sliding_window", None, "layer_types has sliding layers: the window's size is required")
    if size is None or not sliding_layers:
        return {}
    return {"sliding_window": size, "num_sliding_layers": sliding_layers}


def layer_kinds(keys: ConfigKeys, *known: str) -> list[str] | None:
    """``layer_types``, one known kind a layer; None where the file has none."""
    kinds = keys.items("layer_types")
    if kinds is None:
        return None
    num_layers = keys.size(*LAYERS)
    unknown = [kind for kind in kinds if kind not in known]
    if not keys.sound(*LAYERS):
        return None
    if len(kinds) != num_layers:
        keys.problem("layer_types", kinds, f"num_hidden_layers ({num_layers}) items are expected")
    elif unknown:
        keys.problem("layer_types", unknown[0], f"{' or '.join(known)} is expected")
    else:
        return kinds
    return None


def every_nth_full(keys: ConfigKeys, size: int | None, *, pattern: int) -> Fields:
    """All layers have the window but every ``sliding_window_pattern``-th; ``pattern`` is its class default."""
    nth = keys.size_or_none("sliding_window_pattern", "_sliding_window_pattern", default=pattern) or pattern
    layers = keys.size(*LAYERS)
    return window(keys, size, layers - layers // nth)


def check_relations(keys: ConfigKeys) -> None:
    """What contradicts in any family's file."""

    def divides(part: int, whole: int) -> bool:
        return whole % part == 0

    def at_most(value: int, bound: int) -> bool:
        return value <= bound

    if "layer_types" not in keys.read:
        layer_kinds(keys, "full_attention")
    keys.check(KV_HEADS, HEADS, divides, "a divisor of the number of attention heads ({}) is expected")
    keys.check(TOP_K, EXPERTS, at_most, "at most the number of experts ({}) is expected")
    keys.check(("n_group",), EXPERTS, divides, "a divisor of the experts ({}) is expected")
    keys.check(("topk_group",), ("n_group",), at_most, "at most the number of groups ({}) is expected")
    for key in ("first_k_dense_replace", "decoder_sparse_step", "interleave_moe_layer_step"):
        keys.check((key,), LAYERS, at_most, "at most the number of layers ({}) is expected")


def name_unread(
    keys: ConfigKeys, fields: Fields, why: str, *, strict: bool = True, known_as: Mapping[str, str] | None = None
) -> None:
    """Refuses keys that nothing has read and that speak of another structure; notes those that speak of widths.

    Silent are those that say what the family has anyway: a ``head_dim`` that follows, a bias that it always has.

    Args:
        why: what is said of a refused key.
        strict: whether any is refused; else all are noted.
        known_as: a key -> what the file's author calls it.
    """
    if keys.problems:
        return  # readers that gave up early have not come to all keys
    unread = [name for name in keys.unread if holds_something(keys.raw(name))]
    structure = [name for name in unread if of_structure(name)]
    noted = [name for name in unread if of_widths(name) and name not in structure and not _agrees(keys, name, fields)]
    if strict:
        for name in structure:
            keys.problem(name, keys.raw(name), why)
    else:
        noted += structure
    if noted:
        shown = ", ".join(f"{(known_as or {}).get(name, name)} {keys.raw(name)}"[:60] for name in noted)
        keys.note(f"keys that are not understood, and planned without: {shown}")


def _agrees(keys: ConfigKeys, name: str, fields: Fields) -> bool:
    value = keys.raw(name)
    said: dict[str, bool] = {
        "head_dim": value == fields.get("head_dim"),
        "num_key_value_heads": value == fields.get("num_kv_heads"),
        "use_qk_norm": value is True and fields.get("qk_norm", "none") != "none",
        "attention_bias": value is True and fields.get("qkv_bias") is True,
        "mlp_bias": value is True and (fields.get("mlp_bias") or fields.get("expert_bias")) is True,
    }
    return said.get(name, False)
