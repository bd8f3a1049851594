"""The parts of a decoder layer that a model may have: latent attention, experts, and mixers with a fixed-size state."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import StrictBool, model_validator

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
    """Mixture-of-experts MLPs.

    After the first ``num_dense_layers`` every ``layer_step``-th layer has them, the last of each group of so many.

    Attributes:
        latent_size: width that tokens are projected to before they are sent to their experts, and back from after
            (LatentMoE); None when experts work on ``hidden_size``.
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
    latent_size: PositiveInt | None = None
    shared_expert_ffn_hidden_size: NonNegativeInt = 0
    num_dense_layers: NonNegativeInt = 0
    layer_step: PositiveInt = 1
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

    def has_experts(self, layer: int) -> bool:
        """Whether that decoder layer, counted from 0, has experts."""
        return layer >= self.num_dense_layers and (layer - self.num_dense_layers + 1) % self.layer_step == 0


class LinearMixer(Frozen):
    """What takes attention's place in the layers of a hybrid: a state of fixed size instead of keys and values.

    Mamba-2 (arXiv 2405.21060), gated delta net (arXiv 2412.06464), lightning attention (arXiv 2401.04658). All three
    project a token to keys, queries, values and an output gate, and the result back.

    Attributes:
        num_heads, head_dim: heads of the values; their product is the mixer's inner width.
        num_key_heads, key_head_dim: of keys and of queries; Mamba-2 calls them groups and state size.
        conv_kernel: tokens that the short convolution over keys, queries and values sees; 0 without one.
    """

    kind: Literal["mamba2", "gated_delta_net", "lightning"]
    num_heads: PositiveInt
    head_dim: PositiveInt
    num_key_heads: PositiveInt
    key_head_dim: PositiveInt
    conv_kernel: NonNegativeInt = 0
    conv_bias: StrictBool = False
    projection_bias: StrictBool = False

    @property
    def inner_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def mixed_width(self) -> int:
        """Keys, queries and values of one token."""
        return self.inner_width + 2 * self.num_key_heads * self.key_head_dim

    @property
    def state_elements(self) -> int:
        """Of all heads: every head keeps a matrix of its width by that of a key."""
        return self.inner_width * self.key_head_dim

    @property
    def projected_width(self) -> int:
        """Outputs of the input projection: the mixed ones, the gate, and one or two scalars a head."""
        scalars = {"mamba2": 1, "gated_delta_net": 2, "lightning": 0}[self.kind]
        return self.mixed_width + self.inner_width + scalars * self.num_heads

    def params(self, hidden_size: int) -> int:
        """Parameters of one mixer, its inner norm included."""
        count = hidden_size * self.projected_width + self.inner_width * hidden_size
        count += self.projected_width + hidden_size if self.projection_bias else 0
        count += self.mixed_width * (self.conv_kernel + self.conv_bias) if self.conv_kernel else 0
        # Mamba-2 learns decay, step and skip of every head, the delta net decay and step.
        count += {"mamba2": 3, "gated_delta_net": 2, "lightning": 0}[self.kind] * self.num_heads
        return count + (self.head_dim if self.kind == "gated_delta_net" else self.inner_width)


class Hybrid(Frozen):
    """How many decoder layers have which sub-blocks, where not every layer has attention and an MLP.

    Layers with attention, those with ``mixer``, and those with an MLP (dense or of experts). A layer may have one of
    them only (Nemotron-H) or a mixer and an MLP (Qwen3-Next).
    """

    mixer: LinearMixer
    num_attention_layers: PositiveInt
    num_mixer_layers: PositiveInt
    num_mlp_layers: PositiveInt
