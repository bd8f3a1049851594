"""The use of measurements alone: files in, sharper priors out, with what moved and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.calibration.calibration import ParameterRow, rounded
from costmodel.calibration.fit.priors import Prior, Priors, calibration_of
from costmodel.calibration.microbenchmarks.collectives import PlacedSweep, collective_evidence
from costmodel.calibration.microbenchmarks.devices import Devices
from costmodel.calibration.microbenchmarks.estimate import Estimate, estimate
from costmodel.calibration.microbenchmarks.evidence import Evidence
from costmodel.calibration.microbenchmarks.kernels import kernel_evidence
from costmodel.calibration.microbenchmarks.settings import microbenchmark_settings
from costmodel.calibration.parameters import SHARES_OF_ONE
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.spec.collective import MeasuredCollective

# Of the log: devices in a training run are hotter than in a sweep, and share memory and links.
_CARRIES_OVER = 0.03
_MISSED = 0.5
_TELLS = 1.0  # standard errors that a value has moved at least, to be called moved


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What files of measurements say.

    Attributes:
        priors: where a fit to runs may begin.
        estimates: every parameter that the rows depend on.
        rows: kind of evidence -> how many; ``errors``: median relative error of the formulas on them, before and after.
        sweeps: of collectives, on their clusters.
        notes: what was passed over or taken, and why.
    """

    priors: Priors
    estimates: tuple[Estimate, ...]
    rows: Mapping[str, int]
    errors: Mapping[str, tuple[float, float]]
    sweeps: tuple[PlacedSweep, ...]
    notes: tuple[str, ...]

    @property
    def moved(self) -> tuple[Estimate, ...]:
        """What lies further from before than its standard error, the surest first."""
        found = [of for of in self.estimates if of.told and _surety(of) > _TELLS]
        return tuple(sorted(found, key=lambda of: -_surety(of)))

    @property
    def confirmed(self) -> tuple[Estimate, ...]:
        """What the rows tell, and have where it was."""
        return tuple(of for of in self.estimates if of.told and _surety(of) <= _TELLS)

    @property
    def untold(self) -> tuple[Estimate, ...]:
        """What the rows depend on and can't tell, so that it stayed."""
        return tuple(of for of in self.estimates if not of.told)

    @property
    def for_cluster_files(self) -> dict[str, list[MeasuredCollective]]:
        """Cluster -> its sweeps as ``collectives`` of a cluster file has them; of the same shape the first."""
        found: dict[str, dict[tuple[str, int, int], MeasuredCollective]] = {}
        for of in self.sweeps:
            measured = of.for_cluster_file
            if measured is not None:
                shape = measured.op, measured.ranks, measured.domains
                found.setdefault(of.cluster.name, {}).setdefault(shape, measured)
        return {cluster: list(shapes.values()) for cluster, shapes in found.items()}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rows": dict(self.rows),
            "median_errors": {
                kind: {"before": before, "after": after} for kind, (before, after) in self.errors.items()
            },
            "moved": [_as_dict(of) for of in self.moved],
            "confirmed": [_as_dict(of) for of in self.confirmed],
            "untold": [
                {"name": of.name, "accelerator": of.accelerator, "precision": of.precision} for of in self.untold
            ],
            "collectives": {
                cluster: [of.model_dump(mode="json", exclude={"retrieved"}) for of in measured]
                for cluster, measured in self.for_cluster_files.items()
            },
        }


def learn(
    priors: Priors,
    *,
    collectives: Sequence[str] = (),
    gemm: Sequence[str] = (),
    accelerator: str | None = None,
    cluster: str | None = None,
) -> Learned:
    """Sharpen priors by kernels and collectives that were measured alone.

    Args:
        collectives: logs of nccl-tests or rccl-tests; ``gemm``: tables of GEMMs or attention cores, CSV.
        accelerator: what devices are that files don't name.
        cluster: that they were measured on, a name or a file; None for the one in which such devices usually sit.

    Raises:
        InvalidInput: a file is unusable; the message names it and the line.
    """
    known = load_cluster(cluster) if cluster is not None else None
    calibration, devices = calibration_of(priors), Devices(stated=accelerator, cluster=known)
    evidence: list[Evidence] = []
    notes: list[str] = []
    placed: list[PlacedSweep] = []
    if gemm:
        evidence, notes = kernel_evidence(gemm, devices, calibration)
    if collectives:
        told, placed, passed_over = collective_evidence(collectives, devices, calibration)
        evidence.append(told)
        notes += passed_over
    found = estimate(evidence, priors, microbenchmark_settings())
    return Learned(
        priors=_with(priors, found.estimates),
        estimates=found.estimates,
        errors=found.errors,
        rows={of.kind: len(of) for of in evidence},
        sweeps=tuple(placed),
        notes=(*devices.notes, *notes, *_missed(found.errors)),
    )


def _missed(errors: Mapping[str, tuple[float, float]]) -> list[str]:
    return [
        f"{kind} are missed by {after:.0%} in the median: something that no parameter speaks of decides them"
        for kind, (_, after) in errors.items()
        if after > _MISSED
    ]


def _with(priors: Priors, estimates: Sequence[Estimate]) -> Priors:
    """The priors with rows for what was told."""
    rows = list(priors.parameters)
    for of in estimates:
        if of.told:
            new = [_row(of), *_of_frameworks(of, priors)]
            keys = {_key(row) for row in new}
            rows = [row for row in rows if _key(row) not in keys] + new
    told = ", ".join(sorted({kind for of in estimates if of.told for kind in of.kinds}))
    source = f"{priors.source}; {told} measured alone" if told else priors.source
    return priors.model_copy(update={"parameters": tuple(rows), "source": source})


def _row(of: Estimate) -> Prior:
    return Prior(
        name=of.name,
        value=rounded(of.value),
        standard_error=rounded(of.standard_error),
        accelerator=of.accelerator,
        precision=of.precision,
        provenance="measured",
        source=f"fit to {of.rows} rows of {' and '.join(of.kinds)}; before: {of.prior.value:.4g}, {of.prior.source}",
        spread=max(of.standard_error / of.value, _CARRIES_OVER),
    )


def _of_frameworks(of: Estimate, priors: Priors) -> list[Prior]:
    """What frameworks add to bare kernels and collectives stays, over the new value: a row for the device alone would
    take the place of theirs. None makes kernels faster than they are alone, unless it did before.
    """
    found: dict[tuple[str | None, str | None], tuple[int, Prior]] = {}
    for row in priors.parameters:
        if row.name != of.name or row.framework is None or row.value <= 0:
            continue
        if row.accelerator not in (None, of.accelerator) or row.family not in (None, of.family):
            continue
        if of.precision is not None and row.precision not in (None, of.precision):
            continue
        key = of.precision or row.precision, row.framework
        rank = (2 if row.accelerator else 1 if row.family else 0) * 2 + (row.precision is not None)
        if key not in found or rank > found[key][0]:
            found[key] = rank, row
    # What held for the device alone held for the framework too, where it says more than the framework's row.
    held = 2 if of.prior.accelerator else 1 if of.prior.family else 0
    rows: list[Prior] = []
    for (precision, framework), (rank, row) in found.items():
        if rank // 2 < held:
            continue
        value = row.value * of.value / of.prior.value
        if of.name in SHARES_OF_ONE:
            value = min(value, max(of.value, row.value))
        update = {
            "value": rounded(value),
            "accelerator": of.accelerator,
            "family": None,
            "precision": precision,
            "framework": framework,
            "source": f"{row.value:.4g} before the device's own was measured, {row.source}",
        }
        rows.append(row.model_copy(update=update))
    return rows


def _key(row: ParameterRow) -> tuple[str, str | None, str | None, str | None, str | None]:
    return row.name, row.accelerator, row.family, row.precision, row.framework


def _surety(of: Estimate) -> float:
    return abs(of.value - of.prior.value) / of.standard_error


def _as_dict(of: Estimate) -> dict[str, Any]:
    return {
        "name": of.name,
        "accelerator": of.accelerator,
        "precision": of.precision,
        "before": of.prior.value,
        "after": of.value,
        "standard_error": of.standard_error,
        "rows": of.rows,
        "sweeps": of.sweeps,
    }
