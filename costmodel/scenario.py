"""A question to the cost model: which model, on what, with which batch, under which framework and calibration."""

from __future__ import annotations

from costmodel.calibration.calibration import Calibration, Resolved
from costmodel.errors import InvalidInput
from costmodel.spec.base import Frozen, NonNegativeInt, PositiveInt
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.layers import Hybrid
from costmodel.spec.model import ModelSpec
from costmodel.spec.workload import Workload


class Scenario(Frozen):
    """Everything that is given; a plan is what is asked for.

    Attributes:
        min_free_bytes: memory to keep free on every device, where that is more than the calibration leaves free.
        sequence_parallel: whether tensor parallelism also cuts norms and residuals, as in every plan of a search.
        fused_attention: whether scores stay on chip (FlashAttention) instead of in device memory.
    """

    model: ModelSpec
    cluster: ClusterSpec
    devices: PositiveInt
    workload: Workload
    framework: FrameworkSpec
    calibration: Calibration
    min_free_bytes: NonNegativeInt | None = None
    sequence_parallel: bool = True
    fused_attention: bool = True

    @property
    def resolved(self) -> Resolved:
        """The calibration's parameters for this accelerator, precision and framework."""
        accelerator = self.cluster.accelerator
        return self.calibration.resolve(
            accelerator=accelerator.name,
            family=accelerator.family,
            precision=self.workload.precision.name,
            framework=self.framework.engine or self.framework.name,
        )

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one accumulated gradient under this framework and precision.

        Raises:
            InvalidInput: the framework doesn't train in that precision.
        """
        precision = self.workload.precision.name
        if precision not in self.framework.gradient_bytes:
            known = ", ".join(sorted(self.framework.gradient_bytes))
            raise InvalidInput("precision", precision, f"{self.framework.title} trains in {known}")
        return self.framework.gradient_bytes[precision]

    @property
    def usable_bytes(self) -> int:
        """Bytes per device that a plan may allocate."""
        capacity = self.cluster.accelerator.memory_bytes
        usable = int(capacity * float(self.resolved.parameters.usable_fraction))
        return min(usable, capacity - (self.min_free_bytes or 0))

    def check(self) -> None:
        """Accepts a scenario that can be priced: as many devices as there are, in numbers that they compute in.

        Raises:
            InvalidInput: the cluster has fewer devices, its accelerator lacks the format of the GEMMs or of the
                attention core, or the framework doesn't train in that precision.
        """
        self.cluster.check_devices(self.devices)
        precision = self.workload.precision
        for number_format in (precision.compute, precision.attention_compute):
            self.cluster.accelerator.peak(number_format)
        _ = self.gradient_bytes

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but deserves a word."""
        found: list[str] = []
        vendor = self.cluster.accelerator.vendor
        if vendor not in self.framework.vendors:
            found.append(
                f"{self.framework.title} runs on {' and '.join(self.framework.vendors)} accelerators, not on those of "
                f"{vendor}: read the plans as what its rules and habits would give there"
            )
        if self.framework.rules is None:
            found.append(f"no rules of {self.framework.title} are known here: only arithmetic was checked")
        limit = self.model.max_position_embeddings
        if limit is not None and self.workload.seq_len > limit:
            found.append(
                f"seq-len {self.workload.seq_len} is beyond max_position_embeddings {limit} of {self.model.name}: "
                "training at that length needs a position extension"
            )
        if self.model.hybrid is not None:
            found.append(_priced_as_averages(self.model, self.model.hybrid))
        return (*found, *self.model.notes)


def _priced_as_averages(model: ModelSpec, hybrid: Hybrid) -> str:
    return (
        f"{model.name} is a hybrid (of {model.num_layers} layers {hybrid.num_attention_layers} have attention, "
        f"{hybrid.num_mixer_layers} {hybrid.mixer.kind}, {hybrid.num_mlp_layers} an MLP): every layer is priced as the "
        "average, so a stage that happens to hold more of the costlier kinds takes longer and more memory than stated"
    )
