"""The figures of studies that no fit has seen: cold, and with a few runs of theirs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from costmodel.arrays import Bools, Num
from costmodel.fidelity.exclusions import study_of
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.scores import LEAST_ROWS_OF_A_STUDY, Errors, Fidelity, score
from costmodel.runs.columns import Run

_WORST = 90

ShotKey = tuple[str, str, str]
"""Study, accelerator and precision, as runs have them."""


@dataclass(frozen=True, kw_only=True)
class FewShot:
    """Runs of studies that no fit has seen, but for a few.

    Attributes:
        rows: which of all runs are judged: those of a class with enough runs, that weren't given back.
        before, after: predictions of all runs without, and with, those that were.
    """

    rows: Bools
    before: Predicted
    after: Predicted


@dataclass(frozen=True, kw_only=True)
class ShotClass:
    """Median absolute errors of the runs of one class that weren't given back; None where nothing was measured."""

    study: str
    accelerator: str
    precision: str
    runs: int
    time_before: float | None
    time_after: float | None
    mem_before: float | None
    mem_after: float | None


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """Figures of studies left out.

    Attributes:
        studies: with enough runs to be counted.
        median, worst: over studies, of each one's median absolute error of time; the worst is the 90th percentile.
        cold: all figures without any run of a study.
        time_before, time_after, mem_before, mem_after: medians of classes, averaged over classes.
        worst_step: by how much the median error of a class rose most, of time or memory.
    """

    studies: int
    median: float | None
    worst: float | None
    cold: Fidelity
    classes: tuple[ShotClass, ...]
    time_before: float | None
    time_after: float | None
    mem_before: float | None
    mem_after: float | None
    worst_step: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "cold": self.cold.as_dict()}


def unseen(observed: Observed, shots: FewShot) -> Unseen:
    """The figures of predictions that ``studies_left_out`` made."""
    cold = score(observed, shots.before)
    errors = [study.median_ape for study in cold.per_study.values() if study.n >= LEAST_ROWS_OF_A_STUDY]
    known = [error for error in errors if error is not None]
    classes = _classes(observed, shots)
    steps = [
        after - before
        for entry in classes
        for before, after in ((entry.time_before, entry.time_after), (entry.mem_before, entry.mem_after))
        if before is not None and after is not None
    ]
    return Unseen(
        studies=len(known),
        median=float(np.median(known)) if known else None,
        worst=float(np.percentile(known, _WORST)) if known else None,
        cold=cold,
        classes=classes,
        time_before=_mean([entry.time_before for entry in classes]),
        time_after=_mean([entry.time_after for entry in classes]),
        mem_before=_mean([entry.mem_before for entry in classes]),
        mem_after=_mean([entry.mem_after for entry in classes]),
        worst_step=max(steps, default=None),
    )


def class_of(run: Run) -> ShotKey:
    """What runs are given back by, so that they speak of those that are judged."""
    return study_of(run), run.accelerator, run.precision


def _classes(observed: Observed, shots: FewShot) -> tuple[ShotClass, ...]:
    members: dict[ShotKey, list[int]] = defaultdict(list)
    for index in np.flatnonzero(shots.rows).tolist():
        members[class_of(observed.runs[index])].append(index)
    before, after = (Errors.of(observed, predicted) for predicted in (shots.before, shots.after))
    return tuple(
        ShotClass(
            study=study,
            accelerator=accelerator,
            precision=precision,
            runs=len(rows),
            time_before=_median(before.time, before.timed, rows),
            time_after=_median(after.time, after.timed, rows),
            mem_before=_median(before.memory, before.weighed, rows),
            mem_after=_median(after.memory, after.weighed, rows),
        )
        for (study, accelerator, precision), rows in sorted(members.items())
    )


def _median(errors: Num, judged: Bools, rows: list[int]) -> float | None:
    known = errors[rows][judged[rows]]
    return float(np.median(np.abs(known))) if known.size else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
