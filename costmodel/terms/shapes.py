"""Per-device widths and token counts that several terms share."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Num
from costmodel.facts import Facts
from costmodel.flops import mean_attended_tokens
from costmodel.spec.options import HUNDREDTHS
from costmodel.terms.term import Axes


def tokens(f: Facts, x: Axes) -> Num:
    """Tokens of one micro-batch on one context-parallel rank: ``b * s / c``."""
    return x.micro_batch_size * f.work.seq_len / x.cp


def sequence_shards(f: Facts, x: Axes) -> Num:
    """Over how many ranks the norm and residual regions are cut: tp with sequence parallelism, else 1."""
    return np.where(f.work.sequence_parallel > 0, x.tp, 1.0)


def kv_heads(f: Facts, x: Axes) -> Num:
    """KV heads on one rank: replicated when there are fewer of them than ranks."""
    return np.maximum(f.model.kv_heads / x.tp, 1.0)


def heads(f: Facts, x: Axes) -> Num:
    """Query heads on one rank."""
    return f.model.heads / x.tp


def qkv_width(f: Facts, x: Axes) -> Num:
    """Per-token elements of Q, K and V on one rank."""
    q = heads(f, x) * f.model.qk_head_dim
    return q + kv_heads(f, x) * (f.model.qk_head_dim + f.model.v_head_dim)


def latest_over_mean(f: Facts, x: Axes) -> Num:
    """Keys that the last of the contiguous pieces attends to, over the mean of all: ``2 - 1/r`` over r pieces.

    Its mean query sees ``s - s/(2r)`` keys, the mean of all s/2 (primer, "Context parallelism"). Ranks that exchange
    heads see the whole sequence, so only a ring or a gather has pieces. A window cuts the early keys, and with them the
    difference.
    """
    pieces = x.cp / x.cp_a2a_degree
    mean = mean_attended_tokens(f.work.seq_len, f.model.window, f.model.window_share)
    more = (1.0 - f.model.window_share) * f.work.seq_len / 2.0 * (1.0 - 1.0 / pieces)
    return 1.0 + more / mean


def padded_vocab(f: Facts, x: Axes) -> Num:
    """Vocabulary padded to a multiple of ``vocab_multiple * tp``, as Megatron pads it, per rank."""
    unit = f.work.vocab_multiple * x.tp
    return np.ceil(f.model.vocab / unit) * unit / x.tp


def up_projections(f: Facts) -> Num:
    """GEMMs that read the MLP's input: two when gated (gate and up), one otherwise."""
    return 1.0 + f.model.gated


def routed_tokens(f: Facts, x: Axes) -> Num:
    """Token copies that one device's experts work on when routing is balanced.

    Every device of the expert mesh starts from ``tokens / tp`` tokens (sequence parallel), sends ``top_k`` copies of
    each and receives as many; expert tensor parallelism gathers the copies of its ``etp`` ranks.
    """
    return tokens(f, x) / x.tp * f.model.top_k * x.etp


def expert_load(f: Facts, x: Axes) -> Num:
    """Tokens of the fullest device's experts over the mean: as routing leaves them, or all filled to their capacity.

    With a capacity every expert takes ``capacity * mean`` rows, what is missing being padded and what is over dropped
    (GShard, arXiv 2006.16668, section 2.2; Switch Transformer, arXiv 2101.03961, equation 3).
    """
    return np.where(x.moe_capacity_factor > 0, x.moe_capacity_factor / HUNDREDTHS, f.cal.expert_imbalance)


def uneven_share(f: Facts, x: Axes) -> Num:
    """Share of the fullest device's tokens that uneven routing adds; a capacity is no matter of routing."""
    return np.where(x.moe_capacity_factor > 0, 0.0, 1.0 - 1.0 / f.cal.expert_imbalance)


def capacity_over_mean(x: Axes) -> Num:
    """Tokens of the mean device's experts over those routed to them: 1 but for a capacity."""
    return np.where(x.moe_capacity_factor > 0, x.moe_capacity_factor / HUNDREDTHS, 1.0)


def sub_blocks(f: Facts) -> Num:
    """Sub-blocks of the average layer: 2 for attention and an MLP, 1 where a layer is only one of them."""
    return f.model.attention_share + f.model.mixer_share + f.model.mlp_share


def has_mixers(f: Facts) -> bool:
    """Whether any case has layers with a mixer; the others skip its work."""
    return bool(np.any(f.model.mixer_share > 0))
