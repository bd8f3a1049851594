"""Products, attention cores and elementwise passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from planner.profiling.probe.measure.timing import Clock
from planner.profiling.probe.trainer.parts import attention

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# (outer sizes, inner sizes) of products; (tokens, heads, head_dim) of cores; numbers of an elementwise pass.
_SIZES = {
    "cpu": ((64, 256, 1024), (64, 256, 1024)),
    "cuda": ((256, 1024, 4096, 16384), (64, 256, 1024, 4096, 16384)),
}
_CORES = {
    "cpu": ((256, 4, 64), (1024, 4, 64)),
    "cuda": ((1024, 32, 128), (4096, 32, 128), (16384, 16, 128)),
}
_NUMBERS = {"cpu": (2**20, 2**24), "cuda": (2**26, 2**28)}


def precisions_of(device: torch.device) -> tuple[str, ...]:
    """What products are measured in."""
    return ("fp32", "bf16") if device.type == "cpu" else ("bf16",)


def gemms(clock: Clock, precision: str) -> Iterator[tuple[str, int, int, int, float]]:
    """(precision, m, n, k, seconds) of ``[m, k] @ [k, n]``."""
    outer, inner = _SIZES[clock.device.type]
    for m, n, k in itertools.product(outer, outer, inner):
        a, b = (torch.randn(shape, device=clock.device, dtype=_DTYPES[precision]) for shape in ((m, k), (k, n)))
        yield precision, m, n, k, clock.seconds(partial(torch.matmul, a, b), best=True)


def cores(clock: Clock, precision: str) -> Iterator[tuple[str, str, int, int, int, int, float]]:
    """(precision, pass, batch, tokens, heads, head_dim, seconds) of the causal core, forward and backward."""
    for tokens, heads, width in _CORES[clock.device.type]:
        inputs = [
            torch.randn(1, tokens, heads, width, device=clock.device, dtype=_DTYPES[precision], requires_grad=True)
            for _ in range(3)
        ]
        with torch.no_grad():
            yield precision, "fwd", 1, tokens, heads, width, clock.seconds(partial(attention, *inputs), best=True)
        out = attention(*inputs)
        backward = partial(torch.autograd.grad, out, inputs, torch.ones_like(out), retain_graph=True)
        yield precision, "bwd", 1, tokens, heads, width, clock.seconds(backward, best=True)


def passes(clock: Clock) -> Iterator[tuple[int, float]]:
    """(bytes read and written, seconds) of a sum of two arrays."""
    for numbers in _NUMBERS[clock.device.type]:
        a, b, out = (torch.ones(numbers, device=clock.device) for _ in range(3))
        moved = 3 * numbers * out.element_size()
        yield moved, clock.seconds(partial(torch.add, a, b, out=out), best=True)
