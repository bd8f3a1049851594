"""What was observed in a set of runs, as columns: made once, then any number of predictions is held against it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.fidelity.exclusions import Exclusion, Figure, default_exclusions, study_of
from costmodel.fidelity.tasks_and_outcomes import is_offloaded, is_pretraining, outcome_of
from costmodel.runs.cells import shown
from costmodel.runs.columns import Run

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# How the published runs mark a failure that only memory explains: the same layout ran with a smaller micro-batch.
_LIKELY_OOM = "likely_oom"
_CONTEXT_ONLY = "c"

# Runs with all of these in common are one plan tried more than once.
_PLAN = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab"),
    *("tp", "sp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage", "micro_batch"),
    *("recompute", "dist_opt", "offload", "compile", "overlap_notes"),
)


class Cell(NamedTuple):
    """One question a planner is asked: runs that differ in nothing but the plan."""

    study: str
    model_name: str
    devices: int | None
    global_batch: int | None
    seq_len: int | None
    accelerator: str
    precision: str


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A row per run. NaN is "not measured".

    Attributes:
        scorable: whose step time predictions are judged on.
        memory_scorable: whose memory they are judged on: the state is not where a plain plan has it under offload.
        out_of_memory, fits: runs that failed for memory, and that did not fail; neither where nobody can tell.
        points: per cell, the rows of each plan.
        excluded: exclusion -> how many runs it leaves out of the time figures.
        not_judged: why runs are judged on neither time nor memory, and how many, the most frequent reason first.
    """

    runs: tuple[Run, ...]
    studies: NDArray[np.str_]
    step_time_s: Floats
    peak_mem_gb: Floats
    scorable: Bools
    memory_scorable: Bools
    out_of_memory: Bools
    fits: Bools
    points: dict[Cell, tuple[tuple[int, ...], ...]]
    excluded: dict[str, int]
    not_judged: dict[str, int]

    @classmethod
    def of(cls, runs: Sequence[Run], exclusions: Sequence[Exclusion] | None = None) -> Observed:
        """What was observed; by default without the runs of ``catalog/runs/exclusions.yaml``."""
        exclusions = default_exclusions() if exclusions is None else exclusions
        judged = np.array([_is_judged(run) for run in runs], dtype=bool)
        finished = np.array([outcome_of(run.outcome) == "ok" for run in runs], dtype=bool) & judged
        out_of_memory = np.array([_ran_out_of_memory(run) for run in runs], dtype=bool) & judged
        step_time_s = np.array([measured_step_time_s(run) for run in runs], dtype=float)
        peak_mem_gb = np.array([run.measured_peak_mem_gb for run in runs], dtype=float)
        offloaded = np.array([is_offloaded(run.offload) for run in runs], dtype=bool)
        timed = finished & np.isfinite(step_time_s)
        rankable = (timed | out_of_memory) & ~_left_out(runs, exclusions, "ranking")
        scorable = timed & ~_left_out(runs, exclusions, "time")
        memory_scorable = finished & np.isfinite(peak_mem_gb) & ~offloaded
        unjudged = np.flatnonzero(~(scorable | memory_scorable)).tolist()
        return cls(
            runs=tuple(runs),
            studies=np.array([study_of(run) for run in runs], dtype=np.str_),
            step_time_s=np.where(finished, step_time_s, np.nan),
            peak_mem_gb=peak_mem_gb,
            scorable=scorable,
            memory_scorable=memory_scorable,
            out_of_memory=out_of_memory,
            fits=finished & ~out_of_memory,
            points=_points(runs, rankable),
            excluded={
                exclusion.name: int(np.sum(timed & np.array([exclusion.covers(run) for run in runs], dtype=bool)))
                for exclusion in exclusions
                if "time" in exclusion.left_out_of
            },
            not_judged=dict(Counter(_why_not_judged(runs[row]) for row in unjudged).most_common()),
        )

    @property
    def judged(self) -> int:
        """How many runs are judged on time or memory."""
        return int(np.sum(self.scorable | self.memory_scorable))


def measured_step_time_s(run: Run) -> float | None:
    """The step time as measured, or what the measured tokens per second make it."""
    if run.measured_step_time_s:
        return run.measured_step_time_s
    rate = run.measured_tokens_per_s_per_device
    if not (rate and run.devices and run.global_batch and run.seq_len):
        return None
    return run.global_batch * run.seq_len / (rate * run.devices)


def _is_judged(run: Run) -> bool:
    """Only whole training is: adapters and fine-tuning on short answers are another workload."""
    return is_pretraining(run.task) and not _is_context_only(run)


def _is_context_only(run: Run) -> bool:
    return run.tier.lower() == _CONTEXT_ONLY


def _ran_out_of_memory(run: Run) -> bool:
    return outcome_of(run.outcome) == "oom" or _LIKELY_OOM in run.notes.lower()


def _why_not_judged(run: Run) -> str:
    """Of a run that is judged on neither time nor memory, the first thing that stands in the way."""
    if _is_context_only(run):
        return f"context only (tier {run.tier})"
    if not is_pretraining(run.task):
        return f"task {shown(run.task)} is not pretraining"
    if _ran_out_of_memory(run):
        return "ran out of memory: counts for recall and ranking"
    outcome = outcome_of(run.outcome)
    if outcome is None:
        return f"outcome {shown(run.outcome)} is not understood; ok, oom or fail is expected"
    if outcome == "failed":
        return f"outcome {shown(run.outcome)} does not say that memory was why"
    if measured_step_time_s(run):
        return "left out of the time figures, see excluded"
    if run.measured_tokens_per_s_per_device:
        return "tokens per second make no step time without devices, global_batch and seq_len"
    if run.measured_peak_mem_gb:
        return "memory under offload is not judged, and no time was measured"
    return "neither time nor memory was measured: counts for recall"


def _left_out(runs: Sequence[Run], exclusions: Sequence[Exclusion], figure: Figure) -> Bools:
    relevant = [exclusion for exclusion in exclusions if figure in exclusion.left_out_of]
    return np.array([any(exclusion.covers(run) for exclusion in relevant) for run in runs], dtype=bool)


def _points(runs: Sequence[Run], rankable: Bools) -> dict[Cell, tuple[tuple[int, ...], ...]]:
    cells: dict[Cell, dict[tuple[object, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in np.flatnonzero(rankable).tolist():
        plan = tuple(getattr(runs[row], name) for name in _PLAN)
        cells[_cell(runs[row])][plan].append(row)
    return {cell: tuple(tuple(rows) for rows in plans.values()) for cell, plans in cells.items()}


def _cell(run: Run) -> Cell:
    return Cell(
        study=study_of(run),
        model_name=run.model_name,
        devices=run.devices,
        global_batch=run.global_batch,
        seq_len=run.seq_len,
        accelerator=run.accelerator,
        precision=run.precision,
    )
