"""Activation checkpoints: of whole layers, of single modules, or of all but every second product."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.addmm.default, _aten.linear.default)
# Of torchtitan 0.3.0, distributed/activation_checkpoint.py: attention cores and what comes over the network are kept.
_KEPT = (
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
)


@dataclass(frozen=True, kw_only=True)
class Recompute:
    """What runs again in the backward pass.

    Attributes:
        whole: everything.
        products: everything but attention cores, exchanges and every second product.
    """

    whole: bool = False
    products: bool = False


def again(what: Recompute, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Run it, under a checkpoint where something of it is to run again."""
    if what.whole:
        found = checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)
    elif what.products:
        contexts = partial(create_selective_checkpoint_contexts, _every_second_product())
        found = checkpoint(function, x, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
    else:
        return function(x)
    assert isinstance(found, Tensor)
    return found


class Checkpointed(nn.Module):
    """A module that runs again in the backward pass."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor:
        found = checkpoint(self.module, *inputs, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(found, Tensor)
        return found


# Name in a plan -> (attribute of the layer, module of it, class that it has to be of).
_MODULES = {
    "core_attn": ("attention", "core"),
    "shared_experts": ("mlp", "shared"),
}


def checkpoint_modules(block: Any, names: Iterable[str]) -> None:
    """Put modules of a layer under checkpoints of their own, by their names in a plan."""
    for name in names:
        if name in _MODULES:
            owner, attribute = _MODULES[name]
            module = getattr(getattr(block, owner), attribute, None)
            if module is not None:
                setattr(getattr(block, owner), attribute, Checkpointed(module))
    has_experts = hasattr(block.mlp, "router")
    if ("moe" if has_experts else "mlp") in names:
        block.mlp = Checkpointed(block.mlp)


def _every_second_product() -> Callable[..., CheckpointPolicy]:
    """A policy that counts products, the forward pass and what runs again each for themselves."""
    seen = {False: 0, True: 0}

    def policy(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operation in _PRODUCTS:
            seen[context.is_recompute] += 1
            kept = seen[context.is_recompute] % 2 == 1
        else:
            kept = operation in _KEPT
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return policy
