"""Context parallelism: every rank has a piece of each sequence, and attention sees all of it.

Written here with differentiable collectives, since ``torch.distributed.tensor.experimental.context_parallel`` (2.13)
takes the CUDA kernels of attention alone. Shapes are ``[sequences, tokens, heads, head_dim]``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_tensor_autograd, all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh

from costmodel.spec.plan import Plan
from planner.profiling.probe.trainer.parts import Core, Kernel


def pieces_of(plan: Plan, rank: int) -> tuple[int, ...]:
    """Which of the sequence's equal pieces a rank has: one, or with balance an early and a late one (zig-zag)."""
    if plan.cp_comm_type == "all_gather" and plan.cp_balanced and plan.cp > 1:
        return rank, 2 * plan.cp - 1 - rank
    return (rank,)


def positions_of(plan: Plan, rank: int, device: torch.device) -> Tensor:
    """Positions of a rank's tokens in the sequence, in the order in which it has them."""
    pieces = pieces_of(plan, rank)
    length = plan.seq_len // (plan.cp * len(pieces))
    ranges = [torch.arange(piece * length, (piece + 1) * length, device=device) for piece in pieces]
    return torch.cat(ranges)


def context_core(plan: Plan, mesh: DeviceMesh, rank: int, core: Kernel) -> Core:
    """The core over a group's ranks."""
    if plan.cp_comm_type == "a2a":
        return ExchangedHeads(mesh, core)
    return GatheredKeys(mesh, core, [pieces_of(plan, other) for other in range(plan.cp)], rank)


class GatheredKeys:
    """Keys and values of all ranks come here; each piece of queries sees what is before and in it."""

    def __init__(self, mesh: DeviceMesh, core: Kernel, pieces: Sequence[tuple[int, ...]], rank: int) -> None:
        self.mesh, self.core, self.mine = mesh, core, pieces[rank]
        flat = [piece for of_rank in pieces for piece in of_rank]
        self.in_order = [flat.index(piece) for piece in range(len(flat))]
        self.masks: dict[tuple[int, int], Tensor] = {}

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = self._whole(key), self._whole(value)
        length = query.shape[1] // len(self.mine)
        found = []
        for piece, of in zip(self.mine, query.split(length, dim=1), strict=True):
            seen = (piece + 1) * length
            found.append(self.core(of, keys[:, :seen], values[:, :seen], self._mask(length, seen, of.device)))
        return torch.cat(found, dim=1)

    def _whole(self, of: Tensor) -> Tensor:
        gathered = all_gather_tensor_autograd(of.contiguous(), gather_dim=1, group=self.mesh)
        pieces = gathered.chunk(len(self.in_order), dim=1)
        return torch.cat([pieces[place] for place in self.in_order], dim=1)

    def _mask(self, queries: int, seen: int, device: torch.device) -> Tensor | None:
        """Of a piece whose last query sees the last key; None for the first piece, which is plainly causal."""
        if queries == seen:
            return None
        if (queries, seen) not in self.masks:
            full = torch.ones(queries, seen, dtype=torch.bool, device=device)
            self.masks[queries, seen] = full.tril(diagonal=seen - queries)
        return self.masks[queries, seen]


class ExchangedHeads:
    """Every rank gets whole sequences of some of the heads, and sends them back after (DeepSpeed Ulysses)."""

    def __init__(self, mesh: DeviceMesh, core: Kernel) -> None:
        self.mesh, self.core, self.ranks = mesh, core, mesh.size()

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        whole = self.core(*(self._to_sequences(of) for of in (query, key, value)))
        return self._to_heads(whole)

    def _exchange(self, of: Tensor) -> Tensor:
        """``of[rank]`` goes to that rank."""
        return all_to_all_single_autograd(of.contiguous(), None, None, self.mesh)

    def _to_sequences(self, of: Tensor) -> Tensor:
        sequences, tokens, heads, width = of.shape
        apart = of.view(sequences, tokens, self.ranks, heads // self.ranks, width).permute(2, 0, 1, 3, 4)
        return self._exchange(apart).transpose(0, 1).reshape(sequences, -1, heads // self.ranks, width)

    def _to_heads(self, of: Tensor) -> Tensor:
        sequences, tokens, heads, width = of.shape
        apart = of.view(sequences, self.ranks, tokens // self.ranks, heads, width).transpose(0, 1)
        return self._exchange(apart).permute(1, 2, 0, 3, 4).reshape(sequences, tokens // self.ranks, -1, width)
