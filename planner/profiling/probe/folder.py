"""What the probe has left in folders, for ``planner calibrate --probe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import InvalidInput
from planner.profiling.probe.facts import CLUSTER, RUN
from planner.profiling.probe.machine import ATTENTION, GEMMS

_ONE_AT_A_TIME = "{} machines were measured there; calibrate one at a time"


@dataclass(frozen=True, kw_only=True)
class Probed:
    """Paths by what they are.

    Attributes:
        cluster: of the machine; None where it was not measured.
    """

    collectives: tuple[str, ...]
    gemm: tuple[str, ...]
    runs: tuple[str, ...]
    cluster: str | None


def probed(folders: Sequence[str], field: str = "probe") -> Probed:
    """Everything in the folders and below them.

    Raises:
        InvalidInput: a folder isn't there or holds nothing of the probe, or they are of several machines.
    """
    found = [_in(folder, field) for folder in folders]
    clusters = [of.cluster for of in found if of.cluster is not None]
    if len(clusters) > 1:
        raise InvalidInput(field, ", ".join(folders), _ONE_AT_A_TIME.format(len(clusters)))
    return Probed(
        collectives=tuple(path for of in found for path in of.collectives),
        gemm=tuple(path for of in found for path in of.gemm),
        runs=tuple(path for of in found for path in of.runs),
        cluster=clusters[0] if clusters else None,
    )


def _in(folder: str, field: str) -> Probed:
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InvalidInput(field, folder, "a folder that the probe has written to (--out) is expected")

    def named(pattern: str) -> tuple[str, ...]:
        return tuple(str(file) for file in sorted(path.rglob(pattern)))

    machines = named(CLUSTER)
    if len(machines) > 1:
        raise InvalidInput(field, folder, _ONE_AT_A_TIME.format(len(machines)))
    # Logs beside the cluster's file are of its links; others may be anybody's.
    logs = tuple(str(log) for of in machines for log in sorted(Path(of).parent.glob("*.log")))
    found = Probed(
        collectives=logs,
        gemm=(*named(GEMMS), *named(ATTENTION)),
        runs=named(RUN),
        cluster=machines[0] if machines else None,
    )
    if not (found.collectives or found.gemm or found.runs):
        raise InvalidInput(field, folder, f"it holds neither {RUN} nor {GEMMS}; the probe writes them to its --out")
    return found
