"""Replays tuning on published sweeps: a trial is answered with what was measured there, or with its failure.

    python -m tests.published.replay            the table of docs/tuning.md; a few minutes

The cost model is fitted without the runs of the cell's group. Beside the study of the planner three others play:
Optuna's TPE without the cost model, plans in random order, and a grid in the order of PaddlePaddle's auto-tuner (the
largest micro-batch first), which leaves out larger micro-batches of a mesh that ran out of memory.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, TypeAlias

import numpy as np
import optuna

from costmodel.calibration.calibration import load_calibration
from costmodel.fidelity.observed import Cell, Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.plan_errors import plan_errors
from costmodel.runs.carried import default_runs
from costmodel.runs.cases import Case, cases_of
from costmodel.runs.columns import Run
from planner.tuning.belief import Candidates, Tried
from planner.tuning.proposals import why_enough
from planner.tuning.study import Study

STUDIES = ("uss", "vtrain-multi", "bloom-prequel")
WITHIN = (0.01, 0.05)
SEEDS = 5
_FEWEST_PLANS = 5
_GIB = 2**30
_OF_RUN = {"micro_batch_size": "micro_batch"}
# What else tells published plans apart.
_BESIDE = (
    "layers",
    "hidden",
    "heads",
    "head_dim",
    "vocab",
    "sp",
    "dp",
    "dist_opt",
    "offload",
    "compile",
    "overlap_notes",
)
_AXES = (*plan_errors().axes, *_BESIDE)

Order: TypeAlias = Iterator[int]
"""Candidates in the order in which they are tried; the last one's outcome is sent in."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A cell whose plans were run.

    Attributes:
        measured_s: step time of each candidate; NaN where it ran out of memory.
    """

    cell: Cell
    candidates: Candidates
    measured_s: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def best_s(self) -> float:
        return float(np.nanmin(self.measured_s))

    def outcome(self, place: int) -> Tried:
        """How the candidate did."""
        seconds = float(self.measured_s[place])
        if np.isnan(seconds):
            return Tried(place=place, status="out_of_memory")
        return Tried(place=place, status="ok", step_time_s=seconds)


@dataclass(frozen=True, kw_only=True)
class Played:
    """How a strategy did on a sweep.

    Attributes:
        trials: share of the best -> trials until a plan within it was found.
        failed: share -> how many of these failed.
    """

    trials: dict[float, int]
    failed: dict[float, int]


def sweeps_of(predicted: Predicted) -> list[Sweep]:
    """The sweeps of the carried runs that are large enough, with what was predicted of their plans."""
    runs = default_runs()
    observed, cases = Observed.of(runs), cases_of(tuple(runs), load_calibration())
    found = []
    for cell, points in observed.points.items():
        known = [list(rows) for rows in points if np.isfinite(predicted.step_time_s[rows[0]])]
        if cell.study not in STUDIES or len(known) < _FEWEST_PLANS:
            continue
        measured = np.array([_median(observed.step_time_s[rows]) for rows in known])
        if np.isfinite(measured).any():
            first = [rows[0] for rows in known]
            found.append(Sweep(cell=cell, candidates=_candidates(runs, predicted, cases, first), measured_s=measured))
    return found


def _median(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else np.nan


def _candidates(runs: Sequence[Run], predicted: Predicted, cases: Sequence[Any], rows: list[int]) -> Candidates:
    errors = predicted.peak_mem_high_gb[rows] / predicted.peak_mem_gb[rows] - 1.0
    usable = {case.scenario.usable_bytes for row in rows if isinstance(case := cases[row], Case)}
    return Candidates(
        predicted_s=predicted.step_time_s[rows],
        peak_bytes=predicted.peak_mem_gb[rows] * _GIB,
        plans=[{axis: getattr(runs[row], _OF_RUN.get(axis, axis)) for axis in _AXES} for row in rows],
        limit_bytes=float(max(usable)),
        memory_error=float(np.median(errors)),
    )


def play(sweep: Sweep, order: Callable[[Sweep, random.Random], Any], seed: int = 0) -> Played:
    """Tries candidates in an order until the best is found."""
    rng = random.Random(seed)
    choosing = order(sweep, rng)
    trials: dict[float, int] = {}
    failed: dict[float, int] = {}
    place, failures, best = next(choosing), 0, np.inf
    for count in range(1, len(sweep.candidates) + 1):
        outcome = sweep.outcome(place)
        failures += outcome.status != "ok"
        best = min(best, outcome.step_time_s or np.inf)
        for share in WITHIN:
            if share not in trials and best <= sweep.best_s * (1.0 + share):
                trials[share], failed[share] = count, failures
        if len(trials) == len(WITHIN):
            break
        place = choosing.send(outcome)
    return Played(trials=trials, failed=failed)


def ours(sweep: Sweep, rng: random.Random) -> Any:
    """By what the cost model and the trials so far say."""
    study = Study(sweep.candidates)
    while (place := study.ask()) is not None:
        study.tell((yield place))


def tpe(sweep: Sweep, rng: random.Random) -> Any:
    """Optuna's TPE over the axes; a combination that nobody ran is passed over, as is one that was tried."""
    sampler = optuna.samplers.TPESampler(seed=rng.randrange(2**31), n_startup_trials=5)
    study = Study(sweep.candidates, sampler)
    left = set(range(len(sweep.candidates)))
    while left:
        place = next((found for _ in range(20) if (found := study.ask()) is not None), None)
        place = rng.choice(sorted(left)) if place is None else place
        left.remove(place)
        study.tell((yield place))


def at_random(sweep: Sweep, rng: random.Random) -> Any:
    """Any order."""
    yield from rng.sample(range(len(sweep.candidates)), len(sweep.candidates))


def pruned_grid(sweep: Sweep, rng: random.Random) -> Any:
    """Largest micro-batch first, axes in their order; no larger micro-batch of a mesh once one was out of memory."""
    plans = sweep.candidates.plans
    axes = [axis for axis in plan_errors().axes if axis != "micro_batch_size"]
    mesh = [tuple(str(plan[axis]) for axis in axes) for plan in plans]
    size = [plan["micro_batch_size"] or 0 for plan in plans]
    too_large: dict[tuple[str, ...], int] = {}
    order = sorted(range(len(plans)), key=lambda place: (-size[place], [plans[place][axis] or 0 for axis in axes[:6]]))
    skipped = []
    for place in order:
        if size[place] >= too_large.get(mesh[place], size[place] + 1):
            skipped.append(place)
            continue
        outcome = yield place
        if outcome.status != "ok":
            too_large[mesh[place]] = size[place]
    yield from skipped


STRATEGIES = {"search + tuner": ours, "TPE": tpe, "random": at_random, "pruned grid": pruned_grid}
_DETERMINISTIC = ("search + tuner", "pruned grid")


def until_enough(sweep: Sweep) -> tuple[int, float]:
    """Trials until the study says that it has seen enough, and the share that its best is slower than the best."""
    study = Study(sweep.candidates)
    while why_enough(study.belief()) is None and (place := study.ask()) is not None:
        study.tell(sweep.outcome(place))
    return len(study.tried), study.belief().best_s / sweep.best_s - 1.0


def table(sweeps: Sequence[Sweep]) -> dict[str, dict[str, float]]:
    """Strategy -> figure -> its value."""
    found = {}
    for name, order in STRATEGIES.items():
        seeds = 1 if name in _DETERMINISTIC else SEEDS
        played = [[play(sweep, order, seed) for seed in range(seeds)] for sweep in sweeps]
        figures: dict[str, float] = {}
        for share in WITHIN:
            trials = [mean(game.trials[share] for game in games) for games in played]
            failed = [mean(game.failed[share] / game.trials[share] for game in games) for games in played]
            figures[f"median_trials_within_{share:g}"] = median(trials)
            figures[f"mean_trials_within_{share:g}"] = mean(trials)
            figures[f"failed_within_{share:g}"] = mean(failed)
        found[name] = figures
    return found


def main() -> None:
    """Print the tables."""
    from tests.published.held_out import predictions

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sweeps = sweeps_of(predictions())
    lines = [f"{name}: {figures}" for name, figures in table(sweeps).items()]
    for sweep in sweeps:
        cell = sweep.cell
        lines.append(f"{cell.study}, {cell.model_name} on {cell.devices}, {len(sweep.candidates)} plans")
        for name, order in STRATEGIES.items():
            played = play(sweep, order)
            lines.append(f"    {name}: trials until within {played.trials}, of which failed {played.failed}")
        trials, loss = until_enough(sweep)
        lines.append(f"    enough after {trials} trials, the best by then {loss:.1%} slower than the best measured")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
