"""The matrices of a model, which some optimizers treat as such: Muon makes them orthogonal, Adafactor factors them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import Num, num
from costmodel.model_facts import ModelFacts
from costmodel.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """``count`` matrices of one shape; counts may be fractions, as layers of a hybrid are priced as their average.

    Attributes:
        table: whether it is the embedding's or the head's.
    """

    count: float
    rows: float
    columns: float
    table: bool = False


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The same as columns: ``count`` matrices of ``rows x columns`` on one rank."""

    count: Num
    rows: Num
    columns: Num


def mixing_shapes(model: ModelFacts, tp: Num) -> Iterator[Shape]:
    """Of one layer's attention or mixer, on one of ``tp`` ranks."""
    h, heads = model.hidden, model.heads / tp
    kv = np.maximum(model.kv_heads / tp, 1.0)
    plain, latent = model.attention_share * (1.0 - model.is_mla), model.attention_share * model.is_mla
    query = heads * model.qk_head_dim
    yield Shape(count=plain, rows=h, columns=query * (1.0 + model.attention_gate))
    yield Shape(count=plain, rows=h, columns=kv * model.qk_head_dim)
    yield Shape(count=plain, rows=h, columns=kv * model.v_head_dim)
    has_query_latent = model.q_latent > 0
    yield Shape(count=latent * has_query_latent, rows=h, columns=model.q_latent)
    yield Shape(count=latent, rows=np.where(has_query_latent, model.q_latent, h), columns=query)
    yield Shape(count=latent, rows=h, columns=model.kv_latent + model.kv_rope_width)
    nope_and_value = heads * (model.qk_head_dim - model.kv_rope_width + model.v_head_dim)
    yield Shape(count=latent, rows=model.kv_latent, columns=nope_and_value)
    yield Shape(count=model.attention_share, rows=heads * model.v_head_dim, columns=h)
    yield Shape(count=model.mixer_share, rows=h, columns=model.mixer_input / tp)
    yield Shape(count=model.mixer_share, rows=model.mixer_inner / tp, columns=h)


def dense_mlp_shapes(model: ModelFacts, tp: Num) -> Iterator[Shape]:
    """Of one layer's dense MLP."""
    yield from _mlp(model, model.mlp_share, model.hidden, model.ffn / tp)


def shared_expert_shapes(model: ModelFacts, tp: Num) -> Iterator[Shape]:
    """Of one MoE layer's router and shared experts."""
    yield Shape(count=model.mlp_share, rows=model.hidden, columns=model.experts)
    yield from _mlp(model, model.mlp_share, model.hidden, model.shared_ffn / tp)


def expert_shapes(model: ModelFacts, ep: Num, etp: Num) -> Iterator[Shape]:
    """Of one MoE layer's routed experts."""
    yield from _mlp(model, model.mlp_share * model.experts / ep, model.expert_hidden, model.expert_ffn / etp)


def _mlp(model: ModelFacts, count: Num, outer: Num, width: Num) -> Iterator[Shape]:
    yield Shape(count=count * (1.0 + model.gated) * (width > 0), rows=outer, columns=width)
    yield Shape(count=count * (width > 0), rows=width, columns=outer)


def model_matrices(model: ModelSpec) -> tuple[Matrix, ...]:
    """Every matrix of a model, uncut, without those of multi-token prediction beside its layers."""
    facts, one = ModelFacts.of(model), num(1)
    deeper = float(facts.mtp_layers * facts.mtp_depth)
    dense, moe = float(facts.dense_layers), float(facts.moe_layers)
    dense, moe = (dense, moe + deeper) if moe > 0 else (dense + deeper, moe)
    kinds = [(dense + moe, mixing_shapes(facts, one)), (dense, dense_mlp_shapes(facts, one))]
    if moe > 0:
        kinds += [(moe, shared_expert_shapes(facts, one)), (moe, expert_shapes(facts, one, one))]
    found = [
        Matrix(count=layers * float(shape.count), rows=float(shape.rows), columns=float(shape.columns))
        for layers, shapes in kinds
        for shape in shapes
        if layers * float(shape.count) > 0
    ]
    tables = 1 if model.tie_word_embeddings else 2
    return (*found, Matrix(count=tables, rows=model.vocab_size, columns=model.hidden_size, table=True))
