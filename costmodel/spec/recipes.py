"""Precision and optimizer recipes: which numbers each part of a step uses, and what the optimizer keeps and moves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from costmodel.spec.base import Frozen, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from costmodel.spec.cluster import BlockFormat, Precision

GradientDtype = Literal["fp32", "bf16", "fp16"]
KeptPart = Literal["embedding", "head", "norms", "attention_core"]

_WIDE_BYTES = 2.0
"""What is quantised comes from 16 bits."""
_LAYOUTS = 2.0
"""A tensor enters one product along its rows and one along its columns, and is kept for both."""


class Quantisation(Frozen):
    """How the inputs of the large GEMMs get into the format that they are multiplied in.

    Attributes:
        element_bytes: of one quantised element.
        block, weight_block: elements that share a scale, in activations and in weights; None where the whole tensor
            does.
        scale_bytes: of one scale.
        reads: how often the 16-bit tensor is read: once more where its maximum is needed before any element.
        transposed_bytes: of an intermediate 16-bit copy, written by one kernel and read by the next, per element.
        fused: whether the kernel that computes a tensor (a norm, an activation function) writes it quantised, which
            then costs no pass of its own.
    """

    element_bytes: PositiveFloat
    block: PositiveInt | None = None
    weight_block: PositiveInt | None = None
    scale_bytes: PositiveFloat
    reads: PositiveInt
    transposed_bytes: NonNegativeFloat = 0.0
    fused: bool = False

    @property
    def copy_bytes(self) -> float:
        """Of one quantised activation element in one layout, with its share of a scale."""
        return self.element_bytes + (self.scale_bytes / self.block if self.block else 0.0)

    @property
    def weight_copy_bytes(self) -> float:
        """Of one parameter in both layouts, with its share of the scales."""
        scale = self.scale_bytes / self.weight_block if self.weight_block else 0.0
        return _LAYOUTS * (self.element_bytes + scale)

    @property
    def pass_bytes(self) -> float:
        """Moved to quantise one activation element into both layouts."""
        return self.reads * _WIDE_BYTES + self.transposed_bytes + _LAYOUTS * self.copy_bytes

    @property
    def weight_pass_bytes(self) -> float:
        """Moved to quantise one parameter into both layouts."""
        return self.reads * _WIDE_BYTES + self.transposed_bytes + self.weight_copy_bytes


class PrecisionRecipe(Frozen):
    """Which number format each part of the step uses.

    Attributes:
        aliases: other names of it.
        compute: the format of the large GEMMs, a key of ``AcceleratorSpec.peak_flops_per_s``.
        block_format: the kind of scaled product that the device must have beside the format; None for a plain one.
        param_bytes: bytes of one parameter as the forward pass reads it.
        activation_bytes: bytes of one saved activation element.
        attention_compute: the format of what stays in higher precision.
        kept: the parts that do.
        kept_layer_share: share of the layers whose GEMMs do as well.
        quantisation: how inputs of GEMMs get into ``compute``; None where they are in it.
        keeps_master: whether the optimizer holds a separate 32-bit copy of the parameters.
        state_element_bytes: the most that one element of a moment takes: moments have the type of the parameters where
            there is no 32-bit copy.
        loss_scaling: whether gradients are scaled, so that each is read and written once more to unscale and check it.
        calibrated_as: the recipe whose rows of a calibration hold for this one; None for its own.
    """

    name: str
    aliases: tuple[str, ...] = ()
    compute: Precision
    block_format: BlockFormat | None = None
    param_bytes: PositiveInt
    activation_bytes: PositiveInt = 2
    attention_compute: Precision
    kept: tuple[KeptPart, ...] = ()
    kept_layer_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    quantisation: Quantisation | None = None
    keeps_master: bool = True
    state_element_bytes: PositiveFloat = 4.0
    loss_scaling: bool = False
    calibrated_as: str | None = None
    source: str


class OptimizerRecipe(Frozen):
    """What the optimizer keeps beside parameters and gradients, and how much work its step is.

    Attributes:
        master_bytes: the 32-bit copy of a 16-bit parameter (unused when the precision recipe keeps none).
        moments: full-size moments: a number for every parameter in each.
        moment_element_bytes: of one such number, with its share of what it is scaled by.
        factored_moments: moments of a matrix that are kept as one row and one column of 32-bit numbers.
        gradient_reads: how often the step reads the gradient.
        newton_schulz_iterations: of three products each, for every matrix; 0 where the step is elementwise.
        rest_moments: moments of what is no matrix of a layer (tables, norms), where those are optimized differently.
    """

    name: str
    master_bytes: NonNegativeInt
    moments: NonNegativeFloat
    moment_element_bytes: NonNegativeFloat = 4.0
    factored_moments: NonNegativeInt = 0
    gradient_reads: PositiveInt = 1
    newton_schulz_iterations: NonNegativeInt = 0
    rest_moments: NonNegativeFloat | None = None
    source: str
