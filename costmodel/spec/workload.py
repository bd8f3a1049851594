"""What is trained per step, and in which numbers: batch, sequence, precision and optimizer recipe."""

from __future__ import annotations

from costmodel.spec.base import Frozen, NonNegativeFloat, NonNegativeInt, PositiveInt
from costmodel.spec.cluster import Precision


class PrecisionRecipe(Frozen):
    """Which number format each part of the step uses.

    Attributes:
        compute: the format of the large GEMMs, a key of ``AcceleratorSpec.peak_flops_per_s``.
        param_bytes: bytes of one parameter as the forward pass reads it.
        weight_copy_bytes: further bytes per parameter for quantised copies that live beside it.
        activation_bytes: bytes of one saved activation element.
        attention_compute: the format of the attention core, which stays in 16 bits in fp8 recipes.
        keeps_master: whether the optimizer holds a separate 32-bit copy of the parameters.
    """

    name: str
    compute: Precision
    param_bytes: PositiveInt
    weight_copy_bytes: NonNegativeInt = 0
    activation_bytes: PositiveInt = 2
    attention_compute: Precision
    keeps_master: bool = True
    source: str


class OptimizerRecipe(Frozen):
    """Bytes per parameter that the optimizer keeps beside the parameters and gradients.

    Attributes:
        master_bytes: the 32-bit copy of a 16-bit parameter (unused when the precision recipe keeps none).
        moment_bytes: all moments together.
    """

    name: str
    master_bytes: NonNegativeInt
    moment_bytes: NonNegativeFloat
    source: str


class Workload(Frozen):
    """One training step as the user states it. The global batch is counted in sequences."""

    global_batch_size: PositiveInt
    seq_len: PositiveInt
    precision: PrecisionRecipe
    optimizer: OptimizerRecipe

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch_size * self.seq_len
