"""What is trained: a decoder-only transformer's shape, and how many parameters each of its parts holds.

Sizes are named as Megatron-core names them. Importers fill them in: ``huggingface.py`` from a config.json,
``costmodel.catalog.model_catalog`` from a name or a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import StrictBool, StringConstraints, model_validator

from costmodel.spec.base import Frozen, NonNegativeInt, PositiveInt
from costmodel.spec.validation import Unusable


class Mla(Frozen):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: PositiveInt
    v_head_dim: PositiveInt

    @property
    def qk_head_dim(self) -> int:
        """Width of one head's query: the part without position and the rotated part."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


class Moe(Frozen):
    """Mixture-of-experts MLPs: every layer but the first ``num_dense_layers`` has them.

    Attributes:
        shared_expert_ffn_hidden_size: total width of all shared experts; they act as one MLP of that width.
        score_correction_bias: per-expert bias of the balancing without auxiliary loss (DeepSeek-V3, arXiv 2412.19437,
            section 2.1.2). It is moved by a rule, not by a gradient, so it is no parameter: no count below holds it.
        shared_expert_gate: one sigmoid gate on the shared experts' output (Qwen-MoE).
        max_groups_per_token: experts fall into ``num_groups`` groups; a token goes to experts of at most so many of
            them (device-limited routing).
    """

    num_experts: PositiveInt
    top_k: PositiveInt
    expert_ffn_hidden_size: PositiveInt
    shared_expert_ffn_hidden_size: NonNegativeInt = 0
    num_dense_layers: NonNegativeInt = 0
    router_bias: StrictBool = False
    score_correction_bias: StrictBool = False
    shared_expert_gate: StrictBool = False
    max_groups_per_token: PositiveInt | None = None
    num_groups: PositiveInt | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.top_k > self.num_experts:
            raise Unusable("top_k", self.top_k, f"at most the number of experts ({self.num_experts}) is expected")
        if self.shared_expert_gate and not self.shared_expert_ffn_hidden_size:
            raise Unusable("shared_expert_gate", True, "a gate needs shared experts to act on")
        if self.num_groups is None:
            if self.max_groups_per_token is not None:
                raise Unusable("max_groups_per_token", self.max_groups_per_token, "it needs a number of groups")
            return self
        if self.num_experts % self.num_groups:
            raise Unusable("num_groups", self.num_groups, f"a divisor of the experts ({self.num_experts}) is expected")
        if self.max_groups_per_token is not None and self.max_groups_per_token > self.num_groups:
            expected = f"at most the number of groups ({self.num_groups}) is expected"
            raise Unusable("max_groups_per_token", self.max_groups_per_token, expected)
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class ParamCounts:
    """Parameters by part. ``*_per_layer`` is one layer's; ``mtp`` is extra and in neither ``total`` nor ``active``."""

    embedding: int
    position_embedding: int
    head: int
    attention_per_layer: int
    dense_mlp_per_layer: int
    router_per_layer: int
    per_expert: int
    shared_expert_per_layer: int
    norms_per_layer: int
    final_norm: int
    mtp: int
    num_dense_layers: int
    num_moe_layers: int
    num_experts: int
    top_k: int

    @property
    def dense_layer(self) -> int:
        return self.attention_per_layer + self.norms_per_layer + self.dense_mlp_per_layer

    @property
    def moe_layer(self) -> int:
        """One MoE layer with all of its experts."""
        return self._moe_layer(self.num_experts)

    @property
    def total(self) -> int:
        return self._outside_layers + self.num_dense_layers * self.dense_layer + self.num_moe_layers * self.moe_layer

    @property
    def active(self) -> int:
        """Parameters one token passes through: ``top_k`` experts a layer, input embedding and head included."""
        moe = self.num_moe_layers * self._moe_layer(self.top_k)
        return self._outside_layers + self.num_dense_layers * self.dense_layer + moe

    @property
    def with_mtp(self) -> int:
        """Everything that training keeps and updates, multi-token prediction included."""
        return self.total + self.mtp

    @property
    def _outside_layers(self) -> int:
        return self.embedding + self.position_embedding + self.final_norm + self.head

    def _moe_layer(self, experts: int) -> int:
        mlp = self.router_per_layer + self.shared_expert_per_layer + experts * self.per_expert
        return self.attention_per_layer + self.norms_per_layer + mlp


class ModelSpec(Frozen):
    """A decoder-only transformer. Layers are alike, but for the first dense ones of an MoE and for windows.

    Attributes:
        head_dim: width of one head's query; with MLA both of its parts, and ``mla.v_head_dim`` is the value's.
        qkv_bias: with MLA on the down-projections only, as in DeepSeek's code.
        norms_per_layer: norms of width ``hidden_size``: 2 (before attention and MLP), 4 where their outputs are
            normalised too (Gemma 2).
        qk_norm: ``head`` has one weight per element of a head (Qwen 3), ``full`` is over all heads at once (OLMo 2).
    """

    name: Annotated[str, StringConstraints(strict=True, min_length=1)]
    num_layers: PositiveInt
    hidden_size: PositiveInt
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt
    ffn_hidden_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt | None = None
    gated_mlp: StrictBool = True
    tie_word_embeddings: StrictBool
    learned_position_embeddings: StrictBool = False
    qkv_bias: StrictBool = False
    attention_out_bias: StrictBool = False
    mlp_bias: StrictBool = False
    expert_bias: StrictBool = False
    norm_bias: StrictBool = False
    norms_per_layer: PositiveInt = 2
    qk_norm: Literal["none", "head", "full"] = "none"
    attention_sinks: StrictBool = False
    sliding_window: PositiveInt | None = None
    num_sliding_layers: NonNegativeInt = 0
    mla: Mla | None = None
    moe: Moe | None = None
    num_mtp_layers: NonNegativeInt = 0
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        at_most_layers = f"at most the number of layers ({self.num_layers}) is expected"
        if self.num_heads % self.num_kv_heads:
            expected = f"a divisor of the number of attention heads ({self.num_heads}) is expected"
            raise Unusable("num_kv_heads", self.num_kv_heads, expected)
        if self.num_sliding_layers > self.num_layers:
            raise Unusable("num_sliding_layers", self.num_sliding_layers, at_most_layers)
        if self.num_sliding_layers and self.sliding_window is None:
            raise Unusable("sliding_window", None, "layers with a window need its size")
        if self.sliding_window is not None and not self.num_sliding_layers:
            raise Unusable("num_sliding_layers", 0, "say how many layers use the sliding window")
        if self.moe and self.moe.num_dense_layers > self.num_layers:
            raise Unusable("moe.num_dense_layers", self.moe.num_dense_layers, at_most_layers)
        if self.learned_position_embeddings and self.max_position_embeddings is None:
            raise Unusable("max_position_embeddings", None, "learned position embeddings need their number")
        if self.mla and self.qk_norm != "none":
            raise Unusable("qk_norm", self.qk_norm, "latent attention has norms of its own, 'none' is expected")
        if self.mla and self.head_dim != self.mla.qk_head_dim:
            expected = f"with latent attention qk_nope_head_dim + qk_rope_head_dim ({self.mla.qk_head_dim}) is expected"
            raise Unusable("head_dim", self.head_dim, expected)
        return self

    @property
    def num_dense_layers(self) -> int:
        """Leading layers with a dense MLP: all of them when there are no experts."""
        return self.moe.num_dense_layers if self.moe else self.num_layers

    @property
    def params(self) -> ParamCounts:
        """Parameters of each part; the published totals in catalog/models/SOURCES.csv pin them."""
        moe = self.moe
        norm = self.hidden_size * (2 if self.norm_bias else 1)
        shared_width = moe.shared_expert_ffn_hidden_size if moe else 0
        shared = self._mlp(shared_width, bias=self.expert_bias) if shared_width else 0
        gate = self.hidden_size if moe and moe.shared_expert_gate else 0
        router = moe.num_experts * (self.hidden_size + (1 if moe.router_bias else 0)) if moe else 0
        counts = {
            "embedding": self.vocab_size * self.hidden_size,
            "position_embedding": self._position_embedding(),
            "head": 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size,
            "attention_per_layer": self._mla(self.mla) if self.mla else self._attention(),
            "dense_mlp_per_layer": self._mlp(self.ffn_hidden_size, bias=self.mlp_bias),
            "router_per_layer": router,
            "per_expert": self._mlp(moe.expert_ffn_hidden_size, bias=self.expert_bias) if moe else 0,
            "shared_expert_per_layer": shared + gate,
            "norms_per_layer": self.norms_per_layer * norm,
            "final_norm": norm,
            "num_dense_layers": self.num_dense_layers,
            "num_moe_layers": self.num_layers - self.num_dense_layers,
            "num_experts": moe.num_experts if moe else 0,
            "top_k": moe.top_k if moe else 0,
        }
        layers = ParamCounts(**counts, mtp=0)
        # DeepSeek-V3 (arXiv 2412.19437, section 2.2): two input norms, a projection of the two halves joined, one
        # layer like the last and an output norm; embedding and head are the main model's.
        module = (layers.moe_layer if moe else layers.dense_layer) + 3 * norm + 2 * self.hidden_size**2
        return ParamCounts(**counts, mtp=self.num_mtp_layers * module)

    def _position_embedding(self) -> int:
        return self.hidden_size * (self.max_position_embeddings or 0) if self.learned_position_embeddings else 0

    def _mlp(self, width: int, *, bias: bool) -> int:
        inputs = 2 if self.gated_mlp else 1
        return (inputs + 1) * self.hidden_size * width + (inputs * width + self.hidden_size if bias else 0)

    def _attention(self) -> int:
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        count = self.hidden_size * (queries + 2 * keys) + queries * self.hidden_size
        count += queries + 2 * keys if self.qkv_bias else 0
        count += self.hidden_size if self.attention_out_bias else 0
        count += self.num_heads if self.attention_sinks else 0
        return count + {"none": 0, "head": 2 * self.head_dim, "full": queries + keys}[self.qk_norm]

    def _mla(self, mla: Mla) -> int:
        """DeepSeek-V2, equations 37 to 47 (appendix C); each latent is normalised before it is projected up."""
        queries, values = self.num_heads * mla.qk_head_dim, self.num_heads * mla.v_head_dim
        down = mla.kv_lora_rank + mla.qk_rope_head_dim
        count = self.hidden_size * down + mla.kv_lora_rank
        count += mla.kv_lora_rank * (self.num_heads * mla.qk_nope_head_dim + values) + values * self.hidden_size
        if mla.q_lora_rank is None:
            count += self.hidden_size * queries
        else:
            down += mla.q_lora_rank
            count += self.hidden_size * mla.q_lora_rank + mla.q_lora_rank + mla.q_lora_rank * queries
        count += down if self.qkv_bias else 0
        count += self.hidden_size if self.attention_out_bias else 0
        return count + (self.num_heads if self.attention_sinks else 0)
