"""Predictions held out: every run is predicted by a calibration that was fitted without its group, or its study.

All that a fit moves is refitted, from the priors on, so the errors are those on groups that a fit has never seen. With
whole studies left out nothing is known of how they were made (cold start); with a few runs of theirs given back (few
shot) it is what somebody has who measured three runs on a new cluster.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.calibration.fit.fit import fit
from costmodel.calibration.fit.priors import Priors, priors_from
from costmodel.errors import InvalidInput
from costmodel.fidelity.exclusions import study_of
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.unseen import FewShot, ShotKey, class_of
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction
from costmodel.runs.predictions import predict_runs

FEWEST_FOLDS = 2
MOST_FOLDS = 20

SHOTS = 3
"""Runs of a class that are given back."""
LEAST_RUNS_OF_A_CLASS = 8


def held_out(
    runs: Sequence[Run],
    priors: Priors,
    *,
    folds: int,
    by_study: bool = False,
    study_effects: bool = True,
    seed: int = 0,
    workers: int | None = None,
) -> Predicted:
    """The predictions of every run by what the other folds of groups, or of studies, say.

    Args:
        runs: those that weren't measured are predicted too, and teach nothing.
        priors: where each fit begins.
        folds: how many.
        by_study: whether whole studies are dealt, instead of groups.
        study_effects: as ``fit`` takes it.
        seed: of the deal.
        workers: processes; None for one per core.

    Raises:
        InvalidInput: ``folds`` is out of range, there are fewer groups than that, or some folds measured nothing.
    """
    fold = deal([study_of(run) if by_study else run.group for run in runs], folds, seed)
    tasks = [_Task(runs=tuple(runs), held=fold == n, priors=priors, study_effects=study_effects) for n in range(folds)]
    return Predicted.of(_together(tasks, [found.cold for found in _each(tasks, workers)]))


def studies_left_out(
    runs: Sequence[Run], priors: Priors, *, folds: int, seed: int = 0, workers: int | None = None
) -> FewShot:
    """The predictions of every run by what other studies say, and with ``SHOTS`` runs of each class given back.

    Raises:
        InvalidInput: ``folds`` is out of range, there are fewer studies than that, or some folds measured nothing.
    """
    studies = [study_of(run) for run in runs]
    fold = deal(studies, folds, seed)
    given, judged = _shots(runs, seed)
    tasks = [
        _Task(runs=tuple(runs), held=fold == n, priors=priors, study_effects=True, given=given) for n in range(folds)
    ]
    found = list(_each(tasks, workers))
    return FewShot(
        rows=judged,
        before=Predicted.of(_together(tasks, [part.cold for part in found])),
        after=Predicted.of(_together(tasks, [part.warm for part in found])),
    )


def _by_class(runs: Sequence[Run], rows: Iterable[int]) -> Iterable[list[int]]:
    classes: dict[ShotKey, list[int]] = defaultdict(list)
    for row in rows:
        classes[class_of(runs[row])].append(row)
    return classes.values()


def _shots(runs: Sequence[Run], seed: int) -> tuple[Bools, Bools]:
    """(the runs that are given back, the others of their classes)."""
    observed = Observed.of(runs)
    usable = np.flatnonzero(observed.scorable | observed.memory_scorable).tolist()
    rng = np.random.default_rng(seed)
    given, judged = np.zeros(len(runs), dtype=bool), np.zeros(len(runs), dtype=bool)
    for members in _by_class(runs, usable):
        if len(members) >= LEAST_RUNS_OF_A_CLASS:
            chosen = rng.permutation(members)
            given[chosen[:SHOTS]] = True
            judged[chosen[SHOTS:]] = True
    return given, judged


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Fit without the runs that are held, and predict those.

    Attributes:
        given: runs to learn from after all, once the others are predicted; None for none.
    """

    runs: tuple[Run, ...]
    held: Bools
    priors: Priors
    study_effects: bool
    given: Bools | None = None


@dataclass(frozen=True, kw_only=True)
class _Parts:
    cold: Sequence[RunPrediction]
    warm: Sequence[RunPrediction]


def _each(tasks: Sequence[_Task], workers: int | None) -> Iterator[_Parts]:
    workers = min(workers or os.cpu_count() or 1, len(tasks))
    if workers == 1:
        yield from map(_predicted, tasks)
        return
    # Spawned, since a fork of a process with threads may never get a lock that one of them held.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_predicted, tasks)


def _predicted(task: _Task) -> _Parts:
    held = [run for run, inside in zip(task.runs, task.held.tolist(), strict=True) if inside]
    others = [run for run, inside in zip(task.runs, task.held.tolist(), strict=True) if not inside]
    fitted = fit(
        others, task.priors, name="held-out", retrieved=task.priors.retrieved, study_effects=task.study_effects
    )
    cold = predict_runs(held, fitted.calibration)
    if task.given is None:
        return _Parts(cold=cold, warm=cold)
    warm = list(cold)
    given = task.given[task.held]
    base = priors_from(fitted.calibration)
    for members in _by_class(held, range(len(held))):
        # A run that can't be priced teaches nothing.
        shots = [held[index] for index in members if given[index] and cold[index].step_time_s is not None]
        if shots:
            own = fit(shots, base, name="own", retrieved=base.retrieved, study_effects=False).calibration
            found = predict_runs([held[index] for index in members], own)
            for index, prediction in zip(members, found, strict=True):
                warm[index] = prediction
    return _Parts(cold=cold, warm=warm)


def _together(tasks: Sequence[_Task], parts: Sequence[Sequence[RunPrediction]]) -> list[RunPrediction]:
    found: dict[int, RunPrediction] = {}
    for task, predictions in zip(tasks, parts, strict=True):
        found |= dict(zip(np.flatnonzero(task.held).tolist(), predictions, strict=True))
    return [found[index] for index in range(len(tasks[0].runs))]


def deal(groups: Sequence[str], folds: int, seed: int = 0) -> Ints:
    """The fold of each run. Groups are dealt, never runs: those of one group know of each other.

    Raises:
        InvalidInput: ``folds`` is out of range, or there are fewer groups than that.
    """
    names, of_run = np.unique(np.array(groups, dtype=np.str_), return_inverse=True)
    if not FEWEST_FOLDS <= folds <= MOST_FOLDS:
        raise InvalidInput("folds", folds, f"{FEWEST_FOLDS} to {MOST_FOLDS} are possible")
    if names.size < folds:
        raise InvalidInput("folds", folds, f"the runs are of {names.size} groups only, and groups are never split")
    dealt = np.random.default_rng(seed).permutation(names.size) % folds
    return np.asarray(dealt[of_run], dtype=np.int64)
