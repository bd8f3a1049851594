"""A question to the cost model: which model, on what, with which batch, under which framework and calibration."""

from __future__ import annotations

from functools import cached_property

from pydantic import BaseModel, ConfigDict

from costmodel.calibration.calibration import Calibration, Resolved
from costmodel.errors import InvalidInput
from costmodel.spec.base import PositiveInt
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.model import ModelSpec
from costmodel.spec.workload import Workload


class Scenario(BaseModel):
    """Everything that is given; a plan is what is asked for.

    Attributes:
        min_free_bytes: memory to keep free on every device; None applies the calibration's usable fraction.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    model: ModelSpec
    cluster: ClusterSpec
    devices: PositiveInt
    workload: Workload
    framework: FrameworkSpec
    calibration: Calibration
    min_free_bytes: int | None = None

    @cached_property
    def resolved(self) -> Resolved:
        """The calibration's parameters for this accelerator, precision and framework."""
        accelerator = self.cluster.accelerator
        return self.calibration.resolve(
            accelerator=accelerator.name,
            family=accelerator.family,
            precision=self.workload.precision.name,
            framework=self.framework.name,
        )

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one accumulated gradient under this framework and precision."""
        precision = self.workload.precision.name
        if precision not in self.framework.gradient_bytes:
            known = ", ".join(sorted(self.framework.gradient_bytes))
            raise InvalidInput("precision", precision, f"{self.framework.title} trains in {known}")
        return self.framework.gradient_bytes[precision]

    @property
    def usable_bytes(self) -> int:
        """Bytes per device that a plan may allocate."""
        capacity = self.cluster.accelerator.memory_bytes
        if self.min_free_bytes is not None:
            return capacity - self.min_free_bytes
        return int(capacity * float(self.resolved.parameters.usable_fraction))

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but deserves a word."""
        limit = self.model.max_position_embeddings
        found: list[str] = []
        if limit is not None and self.workload.seq_len > limit:
            found.append(
                f"seq-len {self.workload.seq_len} is beyond max_position_embeddings {limit} of {self.model.name}: "
                "training at that length needs a position extension"
            )
        return tuple(found)
