"""Measurements of one kind of kernel or collective, and what the cost model has for them under given parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.arrays import Ints, Num, num
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.parameters import Parameters, stack
from costmodel.catalog.framework_catalog import framework_names, load_framework, load_optimizer
from costmodel.catalog.model_catalog import load_model
from costmodel.curves import NO_CURVE, NO_CURVES
from costmodel.errors import InvalidInput
from costmodel.facts import Facts
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.recipes import PrecisionRecipe
from costmodel.spec.workload import Workload

# A scenario needs a model and a framework. Nothing of either goes into kernels and collectives alone.
_ANY_MODEL = "llama-3-8b"
NO_FRAMEWORK = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What rows were measured on; ``devices`` is the most that a row has."""

    cluster: ClusterSpec
    precision: PrecisionRecipe
    devices: int = 1

    @property
    def calibrated_as(self) -> str:
        """The precision whose rows of a calibration hold for this one."""
        return self.precision.calibrated_as or self.precision.name


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Rows that were measured.

    Attributes:
        kind: what they are, in the plural.
        places: what each row was measured on.
        sweeps: which rows were measured together.
        alike: which of them a formula describes equally well or badly, and whose errors have much in common.
        logs: natural log of the seconds.
        scales: what is known of the formula's relative error on each row.
        base: every parameter per row, as it was before.
        predicted: parameter -> value per row in, log of the cost model's seconds out.
        told_by: parameters that such rows depend on.
    """

    kind: str
    places: tuple[Place, ...]
    sweeps: tuple[str, ...]
    alike: tuple[str, ...]
    logs: Num
    scales: Num
    base: Parameters
    predicted: Callable[[Mapping[str, Num]], Num]
    told_by: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.places)


def facts_of(places: Sequence[Place], calibration: Calibration) -> Facts:
    """One row for each place, bare: no framework's kernels, and collectives by formula, which is what is fitted."""
    kinds = list(dict.fromkeys(places))
    scenarios = [
        Scenario(
            model=load_model(_ANY_MODEL),
            cluster=place.cluster,
            devices=place.devices,
            workload=Workload(
                global_batch_size=1,
                seq_len=1,
                precision=place.precision,
                optimizer=load_optimizer("adamw"),
            ),
            framework=_any_framework(place.precision),
            calibration=calibration,
        )
        for place in kinds
    ]
    facts = Facts.columns(scenarios)
    facts = replace(
        facts,
        hardware=replace(facts.hardware, curve_set=np.full(len(kinds), float(NO_CURVE))),
        curves=NO_CURVES,
        cal=stack([bare(place, calibration) for place in kinds]),
    )
    position = {place: index for index, place in enumerate(kinds)}
    rows: Ints = np.array([position[place] for place in places], dtype=np.int64)
    return facts.take(rows)


def _any_framework(precision: PrecisionRecipe) -> FrameworkSpec:
    """One that trains in that precision."""
    frameworks = (load_framework(name) for name in framework_names())
    found = next((framework for framework in frameworks if precision.name in framework.precisions()), None)
    if found is None:
        raise InvalidInput("precision", precision.name, "no framework of the catalog trains in it")
    return found


def bare(place: Place, calibration: Calibration) -> Parameters:
    """The parameters of a place without a framework's share in them."""
    accelerator, precision = place.cluster.accelerator, place.precision
    resolved = calibration.resolve(
        accelerator=accelerator.name,
        family=accelerator.family,
        precision=precision.name,
        precision_like=precision.calibrated_as,
        framework=NO_FRAMEWORK,
    )
    return replace(resolved.parameters, compute_multiplier=num(1.0))
