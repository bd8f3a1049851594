"""How far measurements alone are believed, from the catalog."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

from pydantic import Field

from costmodel.catalog.documents import read_mapping
from costmodel.spec.base import Frozen, PositiveFloat, PositiveInt
from costmodel.spec.validation import build


class OwnValue(Frozen):
    """A parameter that one's own devices may have a value of, and how far it may lie from others'."""

    name: str
    by: tuple[Literal["accelerator", "precision"], ...] = Field(min_length=1)
    spread: PositiveFloat


class Scales(Frozen):
    """Relative errors of the formulas on single rows; those of collectives are of messages below and above a size."""

    gemm: PositiveFloat
    attention: PositiveFloat
    small_collective: PositiveFloat
    collective: PositiveFloat
    small_message_bytes: PositiveInt


class Kernels(Frozen):
    """What rows of kernels can be.

    Attributes:
        above_peak: times the peak, at most: peaks are at a clock that a card may exceed.
        same_count: how far FLOPs of attention may lie from a count of them, relative, and be that count.
    """

    above_peak: PositiveFloat
    same_count: PositiveFloat


class MicrobenchmarkSettings(Frozen):
    """As ``microbenchmarks.yaml`` has it."""

    scales: Scales
    kernels: Kernels
    parameters: tuple[OwnValue, ...]


@lru_cache(maxsize=1)
def microbenchmark_settings() -> MicrobenchmarkSettings:
    """Those of the catalog."""
    file = resources.files("costmodel.catalog") / "microbenchmarks.yaml"
    return build(MicrobenchmarkSettings, read_mapping(file, "microbenchmarks"), "microbenchmarks")
