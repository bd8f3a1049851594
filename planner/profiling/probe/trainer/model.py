"""The stretch of a model that one chunk of a pipeline device runs, with parameters that no cut changes.

Every parameter is drawn from a generator of its own, seeded by its name: however layers are dealt out, the model is the
same, so that losses of different plans can be held against each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from costmodel.spec.model import ModelSpec
from planner.profiling.probe.layout import Chunk
from planner.profiling.probe.trainer.parts import Attention, Core, Experts, Mlp, Rotary, norm
from planner.profiling.probe.trainer.recompute import Recompute, again

_DEVIATION = 0.02
EMBEDDING, HEAD = "embedding.weight", "head.weight"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a part is built of beside the model.

    Attributes:
        vocab: rows of embedding and head, with those that padding adds.
        dtype: of activations between layers.
        positions: of the tokens that this rank has of every sequence.
    """

    spec: ModelSpec
    vocab: int
    dtype: torch.dtype
    positions: Tensor
    core: Core
    seed: int


class Block(nn.Module):
    """A decoder layer."""

    def __init__(self, shape: Shape, layer: int, recompute: Recompute) -> None:
        super().__init__()
        spec = shape.spec
        rotary = None if spec.learned_position_embeddings else Rotary(spec, shape.positions)
        has_experts = spec.moe is not None and spec.moe.has_experts(layer)
        self.recompute = recompute
        self.attention_norm = norm(spec, spec.hidden_size)
        self.attention = Attention(spec, shape.core, rotary)
        self.mlp_norm = norm(spec, spec.hidden_size) if spec.norms_per_layer > 1 else None
        self.mlp: nn.Module
        if has_experts and spec.moe is not None:
            self.mlp = Experts(spec, spec.moe)
        else:
            self.mlp = Mlp(spec, spec.ffn_hidden_size, bias=spec.mlp_bias)
        after = spec.norms_per_layer > 2
        self.attention_after = norm(spec, spec.hidden_size) if after else nn.Identity()
        self.mlp_after = norm(spec, spec.hidden_size) if after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return again(self.recompute, self._layer, x)

    def _layer(self, x: Tensor) -> Tensor:
        normed = self.attention_norm(x)
        if self.mlp_norm is None:
            return x + self.attention(normed) + self.mlp(normed)
        x = x + self.attention_after(self.attention(normed))
        return x + self.mlp_after(self.mlp(self.mlp_norm(x)))


class Part(nn.Module):
    """A chunk: token ids or activations in, activations or logits out.

    Attributes:
        width: of activations; ``vocab`` of whole logits; ``dtype`` of both.
        spans: layers that share a checkpoint, which runs again where the second is true.
    """

    def __init__(self, shape: Shape, chunk: Chunk) -> None:
        super().__init__()
        spec = shape.spec
        self.positions = shape.positions
        self.width, self.vocab, self.dtype = spec.hidden_size, shape.vocab, shape.dtype
        self.embedding = nn.Embedding(shape.vocab, spec.hidden_size) if chunk.has_embedding else None
        learned = chunk.has_embedding and spec.learned_position_embeddings
        rows = (spec.max_position_embeddings or 0) + spec.extra_position_embeddings
        self.position_embedding = nn.Embedding(rows, spec.hidden_size) if learned else None
        embedding_norm = chunk.has_embedding and spec.embedding_norm
        self.embedding_norm = norm(spec, spec.hidden_size) if embedding_norm else None
        self.blocks = nn.ModuleDict()
        self.norm = norm(spec, spec.hidden_size) if chunk.has_head else None
        self.head = nn.Linear(spec.hidden_size, shape.vocab, bias=spec.head_bias) if chunk.has_head else None
        self.spans: Sequence[tuple[Sequence[nn.Module], bool]] = ()

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            tokens, x = x, self.embedding(x)
            if self.position_embedding is not None:
                x = x + self.position_embedding(self.positions.expand(tokens.shape[0], -1))
            if self.embedding_norm is not None:
                x = self.embedding_norm(x)
            # Autocast leaves tables and norms in 32 bits.
            x = x.to(self.dtype)
        for blocks, recomputed in self.spans:
            x = again(Recompute(whole=recomputed), partial(_in_turn, blocks), x)
        if self.norm is None or self.head is None:
            return x
        return self.head(self.norm(x))

    def tie(self) -> None:
        """Make one parameter of embedding and head, where both are here."""
        if self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight


def _in_turn(blocks: Sequence[nn.Module], x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def initialise(module: nn.Module, prefix: str, shape: Shape) -> None:
    """Draw the parameters of a module that has all of them yet; ``prefix`` is its name in the whole model."""
    for name, parameter in module.named_parameters():
        full = f"{prefix}{name}"
        drawn_as = EMBEDDING if full == HEAD and shape.spec.tie_word_embeddings else full
        with torch.no_grad():
            _draw(parameter, drawn_as, shape)


def _draw(parameter: Tensor, name: str, shape: Shape) -> None:
    if parameter.dim() == 1:
        parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        return
    generator = torch.Generator(device=parameter.device).manual_seed(shape.seed * 2**32 + zlib.crc32(name.encode()))
    padded = name in (EMBEDDING, HEAD)
    rows = parameter[: shape.spec.vocab_size] if padded else parameter
    parameter.zero_()
    # In 32 bits, so that a model in 16 starts from the same numbers.
    drawn = torch.empty(rows.shape, device=rows.device, dtype=torch.float32)
    rows.copy_(drawn.normal_(0.0, _DEVIATION, generator=generator))
