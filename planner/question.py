"""A question in the words of the flags, with the defaults of what may be left out; light enough for the CLI to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.calibration.calibration import Calibration
    from costmodel.spec.cluster import ClusterSpec
    from costmodel.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Question:
    """What ``suggest`` is asked, in the words of its flags.

    Attributes:
        model: the model itself, or text as a command line has it: a catalog name or the path of a file.
        cluster: the same.
        allow: what plans may use beside what frameworks do by default: ``offload``.
        devices: how many there are.
        min_devices: fewest that a plan may use, in place of ``min_used``; None to go by that.
        max_step_time_s: what a step may take at most; None for any time.
        batch_tolerance: share by which the global batch of a plan may differ.
        pareto: whether the plans that no other beats in time, devices and free memory at once are wanted too.
        shortlist: the probability with which the fastest plan is to be in a short list for trials; None for no list.
        calibration: a catalog name, or the path of a file, or the calibration itself; None for the default.
        gradient_dtype: what gradients are accumulated and reduced in; None for what the framework usually does.
    """

    model: str | ModelSpec
    cluster: str | ClusterSpec
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str = "bf16"
    optimizer: str = "adamw"
    gradient_dtype: str | None = None
    framework: str = "megatron-core"
    framework_version: str | None = None
    calibration: str | Calibration | None = None
    objective: str = "step_time"
    price_per_device_hour: float | None = None
    pins: Sequence[str] = ()
    forbids: Sequence[str] = ()
    allow: Sequence[str] = ()
    min_free_gib: float | None = None
    min_used: float = 0.9
    top: int = 10
    max_seconds: float = 60.0
    seed: int = 0
    explain: bool = False
    min_devices: int | None = None
    max_step_time_s: float | None = None
    batch_tolerance: float = 0.0
    pareto: bool = False
    shortlist: float | None = None
