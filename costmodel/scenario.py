"""A question to the cost model: which model, on what, with which batch, under which framework and calibration."""

from __future__ import annotations

from costmodel.calibration.calibration import Calibration, Resolved
from costmodel.errors import InvalidInput
from costmodel.spec.base import Frozen, NonNegativeInt, PositiveInt
from costmodel.spec.cluster import AcceleratorSpec, ClusterSpec
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.layers import Hybrid
from costmodel.spec.model import ModelSpec
from costmodel.spec.recipes import GradientDtype, PrecisionRecipe
from costmodel.spec.workload import Workload

_DTYPE_BYTES: dict[GradientDtype, int] = {"fp32": 4, "bf16": 2, "fp16": 2}


_FULL_BYTES = 4  # of a number in single precision
_BITS = 8


class Scenario(Frozen):
    """Everything that is given; a plan is what is asked for.

    Attributes:
        gradient_dtype: what gradients are accumulated and reduced in; None for what the framework usually does.
        min_free_bytes: memory to keep free on every device, where that is more than the calibration leaves free.
        sequence_parallel: whether tensor parallelism also cuts norms and residuals, as in every plan of a search.
        fused_attention: whether scores stay on chip (FlashAttention) instead of in device memory.
        fused_pointwise: whether a norm, a rotary embedding and a gated activation are one kernel each (torch.compile,
            or kernels for them) instead of one per elementwise operation.
    """

    model: ModelSpec
    cluster: ClusterSpec
    devices: PositiveInt
    workload: Workload
    framework: FrameworkSpec
    calibration: Calibration
    gradient_dtype: GradientDtype | None = None
    min_free_bytes: NonNegativeInt | None = None
    sequence_parallel: bool = True
    fused_attention: bool = True
    fused_pointwise: bool = True

    @property
    def resolved(self) -> Resolved:
        """The calibration's parameters for this accelerator, precision and framework."""
        accelerator, precision = self.cluster.accelerator, self.workload.precision
        return self.calibration.resolve(
            accelerator=accelerator.name,
            family=accelerator.family,
            precision=precision.name,
            precision_like=precision.calibrated_as,
            framework=self.framework.engine or self.framework.name,
        )

    @property
    def usual_gradient_bytes(self) -> int:
        """Bytes of one accumulated gradient under this framework and precision, where nothing else is asked for.

        Raises:
            InvalidInput: the framework, or this version of it, doesn't train in that precision.
        """
        precision, framework = self.workload.precision.name, self.framework
        if precision not in framework.precisions():
            known = ", ".join(sorted(framework.precisions()))
            version = f" {framework.version}" if precision in framework.gradient_bytes else ""
            raise InvalidInput("precision", precision, f"{framework.title}{version} trains in {known}")
        return framework.gradient_bytes[precision]

    @property
    def gradients(self) -> GradientDtype:
        """What gradients are accumulated and reduced in: as asked for, else as the framework usually does."""
        if self.gradient_dtype is not None:
            return self.gradient_dtype
        return "fp32" if self.usual_gradient_bytes == _DTYPE_BYTES["fp32"] else self._narrow_dtype

    @property
    def gradient_wire_share(self) -> float:
        """Bytes that a gradient has on the wire, over those of what the framework usually reduces."""
        return _DTYPE_BYTES[self.gradients] / self.usual_gradient_bytes

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one accumulated gradient.

        Where the sharded parameters are the 32-bit master copy, what is left of a reduction is added up in their type
        (PyTorch FSDP: ``reduce_dtype`` is that of the wire).

        Raises:
            InvalidInput: the framework doesn't train in that precision.
        """
        usual = self.usual_gradient_bytes
        if self.gradient_dtype is None or (self.framework.fp32_parameters and self.workload.precision.keeps_master):
            return usual
        return _DTYPE_BYTES[self.gradient_dtype]

    @property
    def _narrow_dtype(self) -> GradientDtype:
        """Gradients in 16 bits have the type of the parameters."""
        return "fp16" if self.workload.precision.compute == "fp16" else "bf16"

    @property
    def usable_bytes(self) -> int:
        """Bytes per device that a plan may allocate."""
        capacity = self.cluster.accelerator.memory_bytes
        usable = int(capacity * float(self.resolved.parameters.usable_fraction))
        return min(usable, capacity - (self.min_free_bytes or 0))

    def check(self) -> None:
        """Accepts a scenario that can be asked about: as many devices as there are, in numbers that the framework has.

        Whether the devices compute in them is a rule, ``precision_in_hardware``.

        Raises:
            InvalidInput: the cluster has fewer devices, or the framework doesn't train in that precision, or has no
                such gradients.
        """
        self.cluster.check_devices(self.devices)
        _ = self.gradient_bytes
        self._check_gradient_dtype()

    def _check_gradient_dtype(self) -> None:
        asked, framework = self.gradient_dtype, self.framework
        if asked is None:
            return
        usual: GradientDtype = "fp32" if self.usual_gradient_bytes == _DTYPE_BYTES["fp32"] else self._narrow_dtype
        offered = {usual}
        # A parameter of 16 bits has gradients in its own type or in 32; one of 32 bits in 32.
        if self.workload.precision.param_bytes == _DTYPE_BYTES["bf16"]:
            offered |= {"fp32" if dtype == "fp32" else self._narrow_dtype for dtype in framework.gradient_dtypes}
        if asked not in offered:
            expected = f"{framework.title} has {', '.join(sorted(offered))} with {self.workload.precision.name}"
            raise InvalidInput("gradient-dtype", asked, expected)

    def _calibrated_like(self) -> str | None:
        precision = self.workload.precision
        if precision.calibrated_as is None or not self.resolved.borrowed:
            return None
        names = ", ".join(self.resolved.borrowed)
        return f"no run calibrates {precision.name}: {names} as calibrated for {precision.calibrated_as}"

    def _changed_by_recipes(self) -> list[str]:
        """What the recipes round that full precision would not."""
        precision, optimizer = self.workload.precision, self.workload.optimizer
        found: list[str] = []
        if precision.quantisation is not None:
            found.append(
                f"precision {precision.name} changes the training: inputs of the large products are rounded to "
                f"{precision.block_format or precision.compute}"
            )
        if not precision.keeps_master and precision.param_bytes < _FULL_BYTES:
            found.append(
                f"precision {precision.name} changes the training: without a 32-bit copy of the parameters small "
                "updates are rounded away"
            )
        if optimizer.moments and optimizer.moment_element_bytes < _FULL_BYTES:
            found.append(
                f"optimizer {optimizer.name} changes the training: moments are rounded to "
                f"{round(_BITS * optimizer.moment_element_bytes)} bits"
            )
        return found

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but deserves a word."""
        found: list[str] = []
        vendor = self.cluster.accelerator.vendor
        if vendor not in self.framework.vendors:
            found.append(
                f"{self.framework.title} runs on {' and '.join(self.framework.vendors)} accelerators, not on those of "
                f"{vendor}: read the plans as what its rules and habits would give there"
            )
        found += self._changed_by_recipes()
        if (like := self._calibrated_like()) is not None:
            found.append(like)
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


def lacking_format(precision: PrecisionRecipe, accelerator: AcceleratorSpec) -> str | None:
    """What a device would need for a recipe and what it has, in words; None where it has all."""
    for needed in (precision.compute, precision.attention_compute):
        if needed not in accelerator.peak_flops_per_s:
            return f"{precision.name} computes in {needed}; {accelerator.name} has {accelerator.formats}"
    if precision.block_format is not None and precision.block_format not in accelerator.block_formats:
        return (
            f"{precision.name} needs products of {precision.block_format}; {accelerator.name} has {accelerator.formats}"
        )
    return None


def _priced_as_averages(model: ModelSpec, hybrid: Hybrid) -> str:
    return (
        f"{model.name} is a hybrid (of {model.num_layers} layers {hybrid.num_attention_layers} have attention, "
        f"{hybrid.num_mixer_layers} {hybrid.mixer.kind}, {hybrid.num_mlp_layers} an MLP): every layer is priced as the "
        "average, so a stage that happens to hold more of the costlier kinds takes longer and more memory than stated"
    )
