"""What is trained: a decoder-only model's shape, and how many parameters each of its parts holds.

Sizes are named as Megatron-core names them. Importers fill them in: ``huggingface.py`` from a config.json,
``native`` from a framework's own file, ``costmodel.catalog.model_catalog`` from a name or a path.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator

from costmodel.spec.base import MOST_LAYERS, Frozen, NonNegativeInt, PositiveInt
from costmodel.spec.layers import Hybrid, LinearMixer, Mla, Moe
from costmodel.spec.params import ParamCounts
from costmodel.spec.validation import Unusable

__all__ = ["DenseLayers", "Hybrid", "LinearMixer", "Mla", "ModelSpec", "Moe", "ParamCounts"]

DenseLayers = int | tuple[int, ...]
"""How many layers at the front have a dense MLP, or which ones when they come between layers with experts."""


class ModelSpec(Frozen):
    """A decoder-only model. Layers are alike, but for the dense ones of an MoE, for windows and for hybrids.

    Attributes:
        head_dim: width of one head's query; with MLA both of its parts, and ``mla.v_head_dim`` is the value's.
        extra_position_embeddings: rows of learned position embeddings beyond ``max_position_embeddings`` (OPT's 2).
        attention_output_gate: attention's output is multiplied by a gate that the query projection computes too.
        qkv_bias: with MLA on the down-projections only, as in DeepSeek's code.
        head_bias: the output projection adds one bias a vocabulary entry (GPT-J).
        norms_per_layer: norms of width ``hidden_size``: 2 (before attention and MLP), 4 where their outputs are
            normalised too (Gemma 2), 1 where both read the same norm, or where a layer is only one of them.
        embedding_norm: the embedding's output is normalised (BLOOM).
        norm_weight: norms have weights (and biases with ``norm_bias``); OLMo's have neither.
        qk_norm: ``head`` has one weight per element of a head (Qwen 3), ``full`` is over all heads at once (OLMo 2).
        ffn_hidden_size: of the dense MLP, in whichever layers have one.
        num_sliding_layers: of the layers with attention, those with ``sliding_window``.
        notes: what an importer assumed or left out, in words for the user.
    """

    name: Annotated[str, StringConstraints(strict=True, min_length=1)]
    num_layers: Annotated[int, Field(strict=True, ge=1, le=MOST_LAYERS)]
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
    extra_position_embeddings: NonNegativeInt = 0
    attention_output_gate: StrictBool = False
    qkv_bias: StrictBool = False
    attention_out_bias: StrictBool = False
    mlp_bias: StrictBool = False
    expert_bias: StrictBool = False
    head_bias: StrictBool = False
    norm_bias: StrictBool = False
    norm_weight: StrictBool = True
    norms_per_layer: PositiveInt = 2
    embedding_norm: StrictBool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    attention_sinks: StrictBool = False
    sliding_window: PositiveInt | None = None
    num_sliding_layers: NonNegativeInt = 0
    mla: Mla | None = None
    moe: Moe | None = None
    hybrid: Hybrid | None = None
    num_mtp_layers: NonNegativeInt = 0
    source: str = ""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        at_most_layers = f"at most the number of layers ({self.num_layers}) is expected"
        if self.num_heads % self.num_kv_heads:
            expected = f"a divisor of the number of attention heads ({self.num_heads}) is expected"
            raise Unusable("num_kv_heads", self.num_kv_heads, expected)
        if self.num_sliding_layers > self.num_attention_layers:
            expected = f"at most the number of layers with attention ({self.num_attention_layers}) is expected"
            expected = expected if self.hybrid else at_most_layers
            raise Unusable("num_sliding_layers", self.num_sliding_layers, expected)
        if self.num_sliding_layers and self.sliding_window is None:
            raise Unusable("sliding_window", None, "layers with a window need its size")
        if self.sliding_window is not None and not self.num_sliding_layers:
            raise Unusable("num_sliding_layers", 0, "say how many layers use the sliding window")
        if self.moe and self.moe.num_dense_layers > self.num_layers:
            raise Unusable("moe.num_dense_layers", self.moe.num_dense_layers, at_most_layers)
        if self.moe and self.moe.layer_step > self.num_layers:
            raise Unusable("moe.layer_step", self.moe.layer_step, at_most_layers)
        if self.learned_position_embeddings and self.max_position_embeddings is None:
            raise Unusable("max_position_embeddings", None, "learned position embeddings need their number")
        if self.mla and self.qk_norm != "none":
            raise Unusable("qk_norm", self.qk_norm, "latent attention has norms of its own, 'none' is expected")
        if self.mla and self.head_dim != self.mla.qk_head_dim:
            expected = f"with latent attention qk_nope_head_dim + qk_rope_head_dim ({self.mla.qk_head_dim}) is expected"
            raise Unusable("head_dim", self.head_dim, expected)
        if self.hybrid:
            self._consistent_hybrid(self.hybrid)
        return self

    def _consistent_hybrid(self, hybrid: Hybrid) -> None:
        mixing = hybrid.num_attention_layers + hybrid.num_mixer_layers
        if mixing > self.num_layers:
            expected = f"attention and mixer layers are at most the number of layers ({self.num_layers})"
            raise Unusable("hybrid.num_mixer_layers", hybrid.num_mixer_layers, expected)
        if not self.num_layers - mixing <= hybrid.num_mlp_layers <= self.num_layers:
            expected = f"{self.num_layers - mixing} to {self.num_layers} are expected, so that no layer is empty"
            raise Unusable("hybrid.num_mlp_layers", hybrid.num_mlp_layers, expected)
        if hybrid.num_mlp_layers < self.num_layers and self.dense_layers not in (0, self.num_layers):
            expected = "0 is expected where some layers have no MLP at all"
            raise Unusable("moe.num_dense_layers", self.num_dense_layers, expected)

    @property
    def dense_layers(self) -> DenseLayers:
        """Where the layers without experts are."""
        moe = self.moe
        if moe is None:
            return self.num_layers
        if moe.layer_step == 1:
            return moe.num_dense_layers
        dense = tuple(layer for layer in range(self.num_layers) if not moe.has_experts(layer))
        return len(dense) if dense == tuple(range(len(dense))) else dense

    @property
    def num_dense_layers(self) -> int:
        """Layers without experts: all of them when there are none."""
        dense = self.dense_layers
        return dense if isinstance(dense, int) else len(dense)

    @property
    def num_attention_layers(self) -> int:
        return self.hybrid.num_attention_layers if self.hybrid else self.num_layers

    @property
    def num_mixer_layers(self) -> int:
        return self.hybrid.num_mixer_layers if self.hybrid else 0

    @property
    def num_mlp_layers(self) -> int:
        return self.hybrid.num_mlp_layers if self.hybrid else self.num_layers

    @property
    def params(self) -> ParamCounts:
        """Parameters of each part; the published totals in catalog/models/SOURCES.csv pin them."""
        moe, hybrid = self.moe, self.hybrid
        norm = self.hidden_size * (self.norm_weight + self.norm_bias)
        shared_width = moe.shared_expert_ffn_hidden_size if moe else 0
        shared = self._mlp(shared_width, bias=self.expert_bias) if shared_width else 0
        gate = self.hidden_size if moe and moe.shared_expert_gate else 0
        latent = 2 * self.hidden_size * moe.latent_size if moe and moe.latent_size else 0
        router = moe.num_experts * (self.hidden_size + (1 if moe.router_bias else 0)) if moe else 0
        head = 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size
        num_dense = min(self.num_dense_layers, self.num_mlp_layers)
        counts = {
            "embedding": self.vocab_size * self.hidden_size,
            "position_embedding": self._position_embedding(),
            "embedding_norm": norm if self.embedding_norm else 0,
            "head": head + (self.vocab_size if self.head_bias else 0),
            "attention_per_layer": self._mla(self.mla) if self.mla else self._attention(),
            "mixer_per_layer": hybrid.mixer.params(self.hidden_size) if hybrid else 0,
            "dense_mlp_per_layer": self._mlp(self.ffn_hidden_size, bias=self.mlp_bias),
            "router_per_layer": router + latent,
            "per_expert": self._expert(moe) if moe else 0,
            "shared_expert_per_layer": shared + gate,
            "norms_per_layer": self.norms_per_layer * norm,
            "final_norm": norm,
            "num_layers": self.num_layers,
            "num_attention_layers": self.num_attention_layers,
            "num_mixer_layers": self.num_mixer_layers,
            "num_dense_layers": num_dense,
            "num_moe_layers": self.num_mlp_layers - num_dense,
            "num_experts": moe.num_experts if moe else 0,
            "top_k": moe.top_k if moe else 0,
        }
        layers = ParamCounts(**counts, mtp=0)
        # DeepSeek-V3 (arXiv 2412.19437, section 2.2): two input norms, a projection of the two halves joined, one
        # layer like the last and an output norm; embedding and head are the main model's.
        module = (layers.moe_layer if moe else layers.dense_layer) + 3 * norm + 2 * self.hidden_size**2
        # Where a layer is attention or an MLP, the module has one layer of each.
        module += layers.norms_per_layer if self.num_mlp_layers < self.num_layers else 0
        return ParamCounts(**counts, mtp=self.num_mtp_layers * module)

    def _position_embedding(self) -> int:
        if not self.learned_position_embeddings:
            return 0
        return self.hidden_size * ((self.max_position_embeddings or 0) + self.extra_position_embeddings)

    def _mlp(self, width: int, *, bias: bool) -> int:
        inputs = 2 if self.gated_mlp else 1
        return (inputs + 1) * self.hidden_size * width + (inputs * width + self.hidden_size if bias else 0)

    def _expert(self, moe: Moe) -> int:
        inputs, outer = 2 if self.gated_mlp else 1, moe.latent_size or self.hidden_size
        width = moe.expert_ffn_hidden_size
        return (inputs + 1) * outer * width + (inputs * width + outer if self.expert_bias else 0)

    def _attention(self) -> int:
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        projected = queries * (1 + self.attention_output_gate) + 2 * keys
        count = self.hidden_size * projected + queries * self.hidden_size
        count += projected if self.qkv_bias else 0
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
