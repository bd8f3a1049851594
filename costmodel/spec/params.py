"""How many parameters each part of a model holds; the published totals in catalog/models/SOURCES.csv pin them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ParamCounts:
    """Parameters by part. ``*_per_layer`` is one layer's; ``mtp`` is extra and in neither ``total`` nor ``active``.

    ``num_*_layers`` say how many layers have the part; norms are in all of ``num_layers``.
    """

    embedding: int
    position_embedding: int
    embedding_norm: int
    head: int
    attention_per_layer: int
    mixer_per_layer: int
    dense_mlp_per_layer: int
    router_per_layer: int
    per_expert: int
    shared_expert_per_layer: int
    norms_per_layer: int
    final_norm: int
    mtp: int
    num_layers: int
    num_attention_layers: int
    num_mixer_layers: int
    num_dense_layers: int
    num_moe_layers: int
    num_experts: int
    top_k: int

    @property
    def dense_layer(self) -> int:
        """A layer of attention and a dense MLP."""
        return self.attention_per_layer + self.norms_per_layer + self.dense_mlp_per_layer

    @property
    def moe_layer(self) -> int:
        """A layer of attention and all of its experts."""
        return self.attention_per_layer + self.norms_per_layer + self.expert_mlp(self.num_experts)

    @property
    def total(self) -> int:
        return self._outside_mlps + self.num_moe_layers * self.expert_mlp(self.num_experts)

    @property
    def active(self) -> int:
        """Parameters one token passes through: ``top_k`` experts a layer, input embedding and head included."""
        return self._outside_mlps + self.num_moe_layers * self.expert_mlp(self.top_k)

    @property
    def with_mtp(self) -> int:
        """Everything that training keeps and updates, multi-token prediction included."""
        return self.total + self.mtp

    def expert_mlp(self, experts: int) -> int:
        """Router, shared experts and so many routed ones of one layer."""
        return self.router_per_layer + self.shared_expert_per_layer + experts * self.per_expert

    @property
    def _outside_mlps(self) -> int:
        """Everything but the layers with experts' MLPs."""
        layers = self.num_layers * self.norms_per_layer + self.num_dense_layers * self.dense_mlp_per_layer
        mixers = self.num_attention_layers * self.attention_per_layer + self.num_mixer_layers * self.mixer_per_layer
        ends = self.embedding + self.position_embedding + self.embedding_norm + self.final_norm + self.head
        return layers + mixers + ends
