"""A study kept by Optuna: what it asks for, and that it makes nothing of its own."""

from __future__ import annotations

import numpy as np
import optuna

from planner.tuning.belief import Candidates, Tried
from planner.tuning.study import MEMORY, Study, space_of

PLANS = [
    {"tp": 1, "recompute": "none", "layers_per_stage": [4]},
    {"tp": 2, "recompute": "none", "layers_per_stage": [4]},
    {"tp": 2, "recompute": "full", "layers_per_stage": [4]},
    {"tp": 4, "recompute": "full", "layers_per_stage": [3, 1]},
]


def four() -> Candidates:
    return Candidates(
        predicted_s=np.array([1.0, 1.05, 1.3, 1.6]),
        peak_bytes=np.array([70.0, 60.0, 40.0, 30.0]),
        plans=PLANS,
        limit_bytes=80.0,
        memory_error=0.1,
    )


def test_only_what_differs_is_a_parameter() -> None:
    same = [{**plan, "pp": 1} for plan in PLANS]
    assert set(space_of(same)) == {"tp", "recompute", "layers_per_stage"}


def test_every_candidate_is_asked_for_once_and_then_nothing() -> None:
    study = Study(four())
    asked = []
    while (place := study.ask()) is not None:
        asked.append(place)
        study.tell(Tried(place=place, status="ok", step_time_s=float(place + 1)))
    assert sorted(asked) == [0, 1, 2, 3]
    assert asked[0] == 0
    assert [tried.place for tried in study.tried] == asked


def test_the_same_trials_ask_for_the_same_next() -> None:
    def after(*tried: Tried) -> int | None:
        study = Study(four())
        for one in tried:
            study.tell(one)
        return study.ask()

    slow = Tried(place=0, status="ok", step_time_s=3.0)
    assert after(slow) == after(slow)
    assert after() == 0
    assert after(Tried(place=0, status="out_of_memory"), Tried(place=1, status="failed")) == 2


def test_what_others_run_is_left_to_them() -> None:
    study = Study(four())
    study.running([0, 1])
    assert study.ask() == 2


def test_optuna_knows_a_failure_for_memory_as_a_broken_constraint() -> None:
    study = Study(four())
    study.tell(Tried(place=0, status="out_of_memory"))
    study.tell(Tried(place=1, status="stopped", step_time_s=2.0, peak_bytes=50.0))
    memory, stopped = study.trials
    assert memory.constraints == {MEMORY: 1.0}
    assert memory.state is stopped.state is optuna.trial.TrialState.PRUNED
    assert stopped.constraints == {MEMORY: 0.0}
    assert study.tried[1] == Tried(place=1, status="stopped", step_time_s=2.0, peak_bytes=50.0)


def test_another_sampler_makes_up_no_candidate() -> None:
    """TPE combines axes as it likes: what nobody listed, or ran already, is not asked for."""
    study = Study(four(), optuna.samplers.TPESampler(seed=1))
    asked = [place for _ in range(60) if (place := study.ask()) is not None]
    assert len(asked) == len(set(asked)) <= 4
