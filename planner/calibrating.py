"""The use case of ``planner calibrate``: from what was measured to a calibration, and what moved.

Kernels and collectives come first, since they say something of one parameter each; runs begin where those end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from costmodel.calibration.calibration import DEFAULT_CALIBRATION, Calibration, load_calibration
from costmodel.calibration.fit.fit import Fitted, fit
from costmodel.calibration.fit.measured import CasesOf
from costmodel.calibration.fit.moved import Moved, moved_rows
from costmodel.calibration.fit.priors import Priors, calibration_of, load_priors, priors_from
from costmodel.calibration.microbenchmarks.learned import Learned, learn
from costmodel.catalog.cluster_catalog import cluster_names, load_cluster
from costmodel.errors import InvalidInput
from costmodel.runs.carried import default_runs
from costmodel.runs.cases import cases_of
from costmodel.runs.columns import Run
from costmodel.runs.reader import problems_of, read_runs
from costmodel.spec.cluster import ClusterSpec
from planner.profiling.probe.folder import probed

if TYPE_CHECKING:
    from planner.stored.measured_runs import StoredRuns

Base = Literal["shipped", "none"]

CARRIED = "published runs"


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What ``planner calibrate`` found.

    Attributes:
        alone: what kernels and collectives say; None where none were given.
        runs: how many rows were read.
        figures: measured figure -> how many runs have it and could be priced.
        shares: measured figure -> how much of the move that the fit asked for the runs support, being of one mind.
        moved: what lies elsewhere than before, the surest first.
        steady: how many parameters could have moved and didn't.
        problems: what is wrong with rows.
    """

    calibration: Calibration
    base: str
    alone: Learned | None
    runs: int
    figures: dict[str, int]
    shares: dict[str, float]
    moved: tuple[Moved, ...]
    steady: int
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the calibration itself."""
        return {
            "calibration": self.calibration.name,
            "base": self.base,
            "alone": self.alone.as_dict() if self.alone else None,
            "runs": self.runs,
            "figures": self.figures,
            "shares": self.shares,
            "moved": [row.as_dict() for row in self.moved],
            "steady": self.steady,
            "problems": list(self.problems),
        }


def calibrate(
    *,
    runs: str | None,
    base: Base,
    collectives: Sequence[str] = (),
    gemm: Sequence[str] = (),
    accelerator: str | None = None,
    cluster: str | None = None,
    name: str | None = None,
    probe: Sequence[str] = (),
    stored: StoredRuns | None = None,
) -> Calibrated:
    """Fit a calibration.

    Args:
        runs: a file; None for none where kernels or collectives are given, else for the measured runs that ship with
            the planner.
        base: ``none`` begins at the priors, as the shipped calibration did; ``shipped`` at that calibration, and learns
            what one place has in common.
        collectives: logs of nccl-tests or rccl-tests.
        gemm: tables of GEMMs and attention cores.
        accelerator: what was measured, for files that don't name it.
        cluster: what collectives were measured on, a catalog name or a file; None for the usual one.
        name: of the calibration; None for one that says where it comes from.
        probe: folders that the probe has written to: its kernels, collectives and runs count beside the others, on the
            machine that it measured unless ``cluster`` says another.
        stored: measurements of the store, beside the others.

    Raises:
        InvalidInput: a file is unusable, or nothing in it is measured and can be priced.
    """
    priors = load_priors() if base == "none" else priors_from(load_calibration(DEFAULT_CALIBRATION))
    begin = priors.name
    alone = None
    found = probed(probe)
    collectives, gemm = (*collectives, *found.collectives), (*gemm, *found.gemm)
    cluster = cluster or found.cluster
    if collectives or gemm:
        alone = learn(priors, collectives=collectives, gemm=gemm, accelerator=accelerator, cluster=cluster)
        priors = alone.priors
    files = (*(() if runs is None else (runs,)), *found.runs)
    own = bool(files) or stored is not None
    name = name or _name(base, own=own or alone is not None)
    fitted: Fitted | None = None
    rows: Sequence[Run] = ()
    if own or alone is None:
        rows = tuple(row for file in files for row in read_runs(file)) if own else default_runs()
        rows = (*rows, *(stored.runs if stored else ()))
        known = None if cluster is None else load_cluster(cluster)
        as_cases = stored.as_cases if stored else cases_of
        fitted = _fitted(rows, priors, base, name, own=own, known=known, as_cases=as_cases)
    moved, steady = moved_rows(fitted) if fitted else ((), 0)
    return Calibrated(
        calibration=fitted.calibration if fitted else _of_priors(priors, base, name),
        base=begin if base == "shipped" else f"none ({begin})",
        alone=alone,
        runs=len(rows),
        figures={str(figure): count for figure, count in fitted.figures.items()} if fitted else {},
        shares={str(figure): round(of.share, 4) for figure, of in fitted.solutions.items()} if fitted else {},
        moved=moved,
        steady=steady,
        problems=(*(alone.notes if alone else ()), *problems_of(rows), *(stored.left_out if stored else ())),
    )


def _name(base: Base, *, own: bool) -> str:
    if not own:
        return DEFAULT_CALIBRATION if base == "none" else f"{DEFAULT_CALIBRATION}-again"
    return f"{DEFAULT_CALIBRATION}-and-own" if base == "shipped" else "own"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _fitted(
    rows: Sequence[Run],
    priors: Priors,
    base: Base,
    name: str,
    *,
    own: bool,
    known: ClusterSpec | None,
    as_cases: CasesOf,
) -> Fitted:
    return fit(
        rows,
        priors,
        name=name,
        retrieved=_today() if own else priors.retrieved,
        what="runs of one's own" if own else CARRIED,
        carried=not own or base == "shipped",
        study_effects=not own or base == "none",
        known=known,
        as_cases=as_cases,
    )


def _of_priors(priors: Priors, base: Base, name: str) -> Calibration:
    """Where no run is to be fitted."""
    return calibration_of(priors, name=name, retrieved=_today(), carried=base == "shipped")


def calibration_text(calibration: Calibration) -> str:
    """The calibration as a JSON file that ``--calibration`` takes, one parameter per line."""
    record = calibration.model_dump(mode="json", exclude={"parameters"})
    rows = [json.dumps(row.model_dump(mode="json", exclude_none=True)) for row in calibration.parameters]
    head = json.dumps(record, indent=2)[:-2]
    return head + ',\n  "parameters": [\n    ' + ",\n    ".join(rows) + "\n  ]\n}\n"


def cluster_text(alone: Learned, option: str) -> str:
    """The measured cluster as a JSON file that ``--cluster`` takes: the one of the catalog with its own sweeps.

    Raises:
        InvalidInput: sweeps are of none or of several clusters, or of one that only a file describes.
    """
    measured = alone.for_cluster_files
    if len(measured) != 1:
        found = " and ".join(measured) or "none"
        raise InvalidInput(option, found, "collectives of one cluster are needed, of two sizes of message at least")
    ((cluster, sweeps),) = measured.items()
    if cluster not in cluster_names():
        expected = "the catalog doesn't have it: its sweeps belong into its own file, under collectives"
        raise InvalidInput(option, cluster, expected)
    record = {
        "name": f"{cluster}-measured",
        "extends": cluster,
        "collectives": [of.model_dump(mode="json", exclude={"retrieved"}) for of in sweeps],
        "source": f"{cluster} with collectives of one's own",
    }
    return json.dumps(record, indent=1) + "\n"
