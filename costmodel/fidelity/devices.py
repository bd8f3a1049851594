"""What the baselines and the classes of a fit need to know of a run's device, from how people spell it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from costmodel.calibration.levels import Class
from costmodel.catalog import folders
from costmodel.catalog.cluster_catalog import accelerator_names, load_accelerator
from costmodel.fidelity.baselines import Device
from costmodel.runs.columns import Run
from costmodel.spec.cluster import AcceleratorSpec, Precision

# From narrow to wide: mixtures are named after the narrowest, which the GEMMs run in.
_PRECISIONS: tuple[tuple[Precision, re.Pattern[str]], ...] = (
    ("fp4", re.compile(r"fp4|float4")),
    ("fp8", re.compile(r"fp8|float8")),
    ("fp16", re.compile(r"^(amp_)?(fp16|float16|half)")),
    ("tf32", re.compile(r"tf32")),
    ("fp32", re.compile(r"^(fp32|float32)")),
)
_DEFAULT_PRECISION: Precision = "bf16"
# What GEMMs run in where the device has no hardware for what was asked.
_INSTEAD: dict[Precision, tuple[Precision, ...]] = {
    "fp4": ("fp8", "bf16", "fp16"),
    "fp8": ("bf16", "fp16"),
    "bf16": ("fp16",),
    "fp16": ("bf16",),
    "tf32": ("fp32",),
    "fp32": (),
}


def device_of(run: Run) -> Device:
    """Memory, and the peak in the precision of the run or in what the device runs instead."""
    accelerator = _accelerator(run.accelerator)
    if accelerator is None:
        return Device()
    asked, peaks = precision_of(run), accelerator.peak_flops_per_s
    peak = next((peaks[precision] for precision in (asked, *_INSTEAD[asked]) if precision in peaks), None)
    return Device(peak_flops_per_s=peak, memory_bytes=accelerator.memory_bytes)


def class_of(run: Run) -> Class:
    """What a level is fitted for: framework, family of the accelerator, precision."""
    accelerator = _accelerator(run.accelerator)
    framework = re.split(r"[\s(]", run.framework.strip().lower(), maxsplit=1)[0]
    return framework, accelerator.family if accelerator else run.accelerator.lower(), precision_of(run)


def precision_of(run: Run) -> Precision:
    """The precision of the GEMMs; bf16 where the run does not say."""
    text = run.precision.lower()
    return next((name for name, pattern in _PRECISIONS if pattern.search(text)), _DEFAULT_PRECISION)


def _accelerator(text: str) -> AcceleratorSpec | None:
    """The accelerator whose name or alias is the longest that the text begins with."""
    spelled = _letters(text)
    known = _known(folders.user_dir())
    longest = max((name for name in known if spelled.startswith(name)), key=len, default=None)
    return load_accelerator(known[longest]) if longest else None


@lru_cache(maxsize=8)
def _known(_: Path | None) -> dict[str, str]:
    """Every spelling of the catalog, in letters and digits; keyed by the user's directory, as names depend on it."""
    found: dict[str, str] = {}
    for name in accelerator_names():
        for spelling in (name, *load_accelerator(name).aliases):
            found.setdefault(_letters(spelling), name)
    return found


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
