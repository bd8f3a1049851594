"""What is trained per step, and in which numbers: batch, sequence, precision and optimizer recipe."""

from __future__ import annotations

from costmodel.spec.base import Frozen, PositiveInt
from costmodel.spec.recipes import GradientDtype, OptimizerRecipe, PrecisionRecipe

__all__ = ["GradientDtype", "OptimizerRecipe", "PrecisionRecipe", "Workload"]


class Workload(Frozen):
    """One training step as the user states it. The global batch is counted in sequences."""

    global_batch_size: PositiveInt
    seq_len: PositiveInt
    precision: PrecisionRecipe
    optimizer: OptimizerRecipe

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch_size * self.seq_len
