"""The modules of a decoder-only transformer, as ``ModelSpec`` describes it: no dropout, nothing fused by hand.

Activations are ``[sequences, tokens, width]``; inside attention ``[sequences, tokens, heads, head_dim]``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from costmodel.spec.model import ModelSpec, Moe

Core = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values of a rank's tokens in, what its queries attend to out."""
Kernel = Callable[..., Tensor]
"""The same, and takes a mask: queries by keys, true where a query sees a key; None for the causal one."""

_ROTARY_BASE = 10_000.0


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """The causal core; a mask stands in where queries are not all tokens."""
    query, key, value = (of.transpose(1, 2) for of in (query, key, value))
    grouped = query.shape[1] != key.shape[1]
    found = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped
    )
    return found.transpose(1, 2)


def unfused_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same with scores in memory."""
    with sdpa_kernel(SDPBackend.MATH):
        return attention(query, key, value, mask)


def norm(spec: ModelSpec, width: int) -> nn.Module:
    """LayerNorm where norms have biases, else RMSNorm."""
    if spec.norm_bias:
        return nn.LayerNorm(width, elementwise_affine=spec.norm_weight)
    return nn.RMSNorm(width, eps=1e-6, elementwise_affine=spec.norm_weight)


class Rotary:
    """Rotary embeddings (Su 2021, arXiv 2104.09864) of a rank's tokens: the halves of a head are the pairs."""

    def __init__(self, spec: ModelSpec, positions: Tensor) -> None:
        half = torch.arange(0, spec.head_dim, 2, device=positions.device, dtype=torch.float32) / spec.head_dim
        angles = positions.float()[:, None] * _ROTARY_BASE**-half
        self.cos, self.sin = angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]

    def __call__(self, heads: Tensor) -> Tensor:
        first, second = heads.chunk(2, dim=-1)
        cos, sin = self.cos.to(heads.dtype), self.sin.to(heads.dtype)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class AttentionCore(nn.Module):
    """A module of its own, so that it can be recomputed alone."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.core(query, key, value)


class Attention(nn.Module):
    """Grouped-query attention; heads are what a rank has of them."""

    def __init__(self, spec: ModelSpec, core: Core, rotary: Rotary | None) -> None:
        super().__init__()
        queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.head_dim, self.full_norm = spec.head_dim, spec.qk_norm == "full"
        self.rotary = rotary
        self.query = nn.Linear(spec.hidden_size, queries, bias=spec.qkv_bias)
        self.key = nn.Linear(spec.hidden_size, keys, bias=spec.qkv_bias)
        self.value = nn.Linear(spec.hidden_size, keys, bias=spec.qkv_bias)
        self.out = nn.Linear(queries, spec.hidden_size, bias=spec.attention_out_bias)
        self.core: nn.Module = AttentionCore(core)
        if spec.qk_norm != "none":
            self.query_norm = nn.RMSNorm(queries if self.full_norm else spec.head_dim, eps=1e-6)
            self.key_norm = nn.RMSNorm(keys if self.full_norm else spec.head_dim, eps=1e-6)
        self.normed = spec.qk_norm != "none"

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.full_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key, value = (of.unflatten(-1, (-1, self.head_dim)) for of in (query, key, value))
        if self.normed and not self.full_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        # Norms and rotations may widen what they return.
        return self.out(self.core(query.to(value.dtype), key.to(value.dtype), value).flatten(-2))


class Mlp(nn.Module):
    """SwiGLU, or two products with GELU between them."""

    def __init__(self, spec: ModelSpec, width: int, *, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.hidden_size, width, bias=bias) if spec.gated_mlp else None
        self.up = nn.Linear(spec.hidden_size, width, bias=bias)
        self.down = nn.Linear(width, spec.hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        return self.down(F.gelu(up) if self.gate is None else F.silu(self.gate(x)) * up)


class Experts(nn.Module):
    """Top-k routing to experts that are all here, one after the other; plus shared experts."""

    def __init__(self, spec: ModelSpec, moe: Moe) -> None:
        super().__init__()
        self.top_k = moe.top_k
        self.router = nn.Linear(spec.hidden_size, moe.num_experts, bias=moe.router_bias)
        self.experts = nn.ModuleList(
            Mlp(spec, moe.expert_ffn_hidden_size, bias=spec.expert_bias) for _ in range(moe.num_experts)
        )
        width = moe.shared_expert_ffn_hidden_size
        self.shared = Mlp(spec, width, bias=spec.expert_bias) if width else None
        self.shared_gate = nn.Linear(spec.hidden_size, 1, bias=False) if moe.shared_expert_gate else None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        weights, chosen = self.router(tokens).float().softmax(dim=-1).topk(self.top_k, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
        sent = tokens[order // self.top_k].split(counts)
        # An expert without tokens takes part too: its gradient is zero, not absent.
        back = torch.cat([expert(of) for expert, of in zip(self.experts, sent, strict=True)])
        weighted = back * weights.flatten()[order, None]
        found = torch.zeros_like(tokens).index_add(0, order // self.top_k, weighted.to(tokens.dtype))
        if self.shared is not None:
            shared = self.shared(tokens)
            found = found + (shared if self.shared_gate is None else self.shared_gate(tokens).sigmoid() * shared)
        return found.view_as(x)
