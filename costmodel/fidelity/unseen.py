"""The figures of studies that no fit has seen: cold, and with a few runs of theirs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from costmodel.arrays import Bools, Num
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.scores import LEAST_ROWS_OF_A_STUDY, Fidelity, score

_WORST = 90


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


def _classes(observed: Observed, shots: FewShot) -> tuple[ShotClass, ...]:
    members: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index in np.flatnonzero(shots.rows).tolist():
        run = observed.runs[index]
        members[str(observed.studies[index]), run.accelerator, run.precision].append(index)
    found = []
    for (study, accelerator, precision), rows in sorted(members.items()):
        times = [_median(_errors(observed, part, "time"), rows) for part in (shots.before, shots.after)]
        memory = [_median(_errors(observed, part, "memory"), rows) for part in (shots.before, shots.after)]
        entry = ShotClass(
            study=study,
            accelerator=accelerator,
            precision=precision,
            runs=len(rows),
            time_before=times[0],
            time_after=times[1],
            mem_before=memory[0],
            mem_after=memory[1],
        )
        found.append(entry)
    return tuple(found)


def _errors(observed: Observed, predicted: Predicted, figure: str) -> Num:
    if figure == "time":
        return _absolute(predicted.step_time_s, observed.step_time_s, observed.scorable)
    return _absolute(predicted.peak_mem_gb, observed.peak_mem_gb, observed.memory_scorable)


def _absolute(predicted: Num, measured: Num, judged: Bools) -> Num:
    return np.where(judged, np.abs(predicted / measured - 1.0), np.nan)


def _median(errors: Num, rows: list[int]) -> float | None:
    known = errors[rows][~np.isnan(errors[rows])]
    return float(np.median(known)) if known.size else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
