"""Tensor and sequence parallelism of a chunk, by DTensor's plans for modules.

Between layers activations are plain tensors: a rank's share of the tokens with sequence parallelism, else all of them.
"""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

_TOKENS, _HEADS, _WIDTH = 1, 2, -1


def cut_block(block: nn.Module, mesh: DeviceMesh, *, sequence: bool) -> None:
    """Cut a decoder layer over the ranks of ``mesh``; its parameters are whole and equal on all of them."""
    out = Shard(_TOKENS) if sequence else Replicate()
    plan: dict[str, ParallelStyle] = {}
    for name in ("attention.query", "attention.key", "attention.value", "mlp.gate", "mlp.up"):
        plan[name] = ColwiseParallel()
    for name in ("attention.out", "mlp.down"):
        plan[name] = RowwiseParallel(output_layouts=out)
    for name in ("attention.query_norm", "attention.key_norm"):
        plan[name] = SequenceParallel(sequence_dim=_HEADS, use_local_output=True)
    if sequence:
        for name in ("attention_norm", "mlp_norm"):
            plan[name] = SequenceParallel()
        for name in ("attention_after", "mlp_after"):
            plan[name] = SequenceParallel(use_local_output=True)
        for name in ("attention", "mlp"):
            plan[name] = PrepareModuleInput(input_layouts=(out,), desired_input_layouts=(Replicate(),))
    _cut(block, mesh, plan)


def cut_ends(part: nn.Module, mesh: DeviceMesh, *, sequence: bool) -> None:
    """Cut embedding and head, where the part has them, by rows of the vocabulary; logits stay cut."""
    inside = Shard(_TOKENS) if sequence else Replicate()
    rows = RowwiseParallel(input_layouts=Replicate(), output_layouts=inside)
    columns = ColwiseParallel(input_layouts=inside, output_layouts=Shard(_WIDTH))
    plan: dict[str, ParallelStyle] = {"embedding": rows, "position_embedding": rows, "head": columns}
    if sequence:
        plan |= {"norm": SequenceParallel(), "embedding_norm": SequenceParallel(use_local_output=True)}
    _cut(part, mesh, plan)


def _cut(module: nn.Module, mesh: DeviceMesh, plan: dict[str, ParallelStyle]) -> None:
    there = {name for name, of in module.named_modules() if not isinstance(of, nn.Identity)}
    # All ranks have drawn the same numbers, so nothing needs to be sent.
    parallelize_module(module, mesh, {name: how for name, how in plan.items() if name in there}, src_data_rank=None)
