"""What the baselines need to know of a run: its device, by any spelling."""

from __future__ import annotations

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
