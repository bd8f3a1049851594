"""What the baselines and the classes of a fit need to know of a run: its device and software, by any spelling."""

from __future__ import annotations

from costmodel.calibration.levels import Class
from costmodel.catalog.framework_catalog import recognise_framework
from costmodel.catalog.spellings import recognise_accelerator
from costmodel.fidelity.baselines import Device
from costmodel.runs.columns import Run
from costmodel.runs.words import precision_of


def device_of(run: Run) -> Device:
    """Memory, and the dense peak in the precision that the device runs; nothing when the text names no device."""
    found = recognise_accelerator(run.accelerator)
    if found.how == "default":
        return Device()
    recipe, _ = precision_of(run.precision, found.accelerator)
    return Device(peak_flops_per_s=found.accelerator.peak(recipe.compute), memory_bytes=found.accelerator.memory_bytes)


def class_of(run: Run) -> Class:
    """What a level is fitted for: framework, family of the accelerator, precision."""
    found = recognise_accelerator(run.accelerator)
    framework, known = recognise_framework(run.framework)
    family = run.accelerator.lower() if found.how == "default" else found.accelerator.family
    recipe, _ = precision_of(run.precision, found.accelerator)
    return framework.name if known else run.framework.strip().lower(), family, recipe.name
