"""Held-out levels: no run is corrected by what was learnt from its own group."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.calibration.levels import Class
from costmodel.errors import InvalidInput
from costmodel.fidelity.folds import levels_held_out, levels_in_sample
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction

GROUPS = 20
RUNS_PER_GROUP = 4


def sample(*, slow_by: float = 1.6, odd_by: float = 1.0) -> tuple[Observed, Predicted, list[Class]]:
    """Groups of one class that all take ``slow_by`` as long as predicted; the first group ``odd_by`` longer still."""
    runs = [
        Run(
            id=f"{group}-{number}",
            group=f"s/{group}",
            measured_step_time_s=slow_by * (odd_by if group == 0 else 1.0) * (1 + 0.01 * number),
        )
        for group in range(GROUPS)
        for number in range(RUNS_PER_GROUP)
    ]
    predicted = Predicted.of(
        [RunPrediction(id=run.id, step_time_s=1.0, step_time_low_s=0.9, step_time_high_s=1.2) for run in runs]
    )
    return Observed.of(runs), predicted, [("megatron", "hopper", "bf16")] * len(runs)


def test_a_level_that_all_groups_share_is_found_without_the_group_itself() -> None:
    observed, predicted, classes = sample()
    for found in (
        levels_in_sample(observed, predicted, classes),
        levels_held_out(observed, predicted, classes, folds=5),
    ):
        assert found.step_time_s == pytest.approx(np.full(GROUPS * RUNS_PER_GROUP, 1.6), rel=0.05)
        assert found.step_time_high_s / found.step_time_s == pytest.approx(1.2)


def test_a_group_of_a_class_of_its_own_is_helped_in_sample_only() -> None:
    observed, predicted, classes = sample(slow_by=1.0, odd_by=3.0)
    classes[:RUNS_PER_GROUP] = [("nanotron", "hopper", "bf16")] * RUNS_PER_GROUP
    assert levels_in_sample(observed, predicted, classes).step_time_s[0] > 1.2
    assert levels_held_out(observed, predicted, classes, folds=5).step_time_s[:RUNS_PER_GROUP].tolist() == [1.0] * 4


def test_runs_of_a_group_share_their_fold_so_they_share_their_factor() -> None:
    observed, predicted, _ = sample(odd_by=2.0)
    rng = np.random.default_rng(1)
    classes: list[Class] = [("f", str(rng.integers(3)), "bf16") for _ in range(GROUPS)]
    of_runs = [classes[row // RUNS_PER_GROUP] for row in range(GROUPS * RUNS_PER_GROUP)]
    times = levels_held_out(observed, predicted, of_runs, folds=4).step_time_s.reshape(GROUPS, RUNS_PER_GROUP)
    assert (times == times[:, :1]).all()


def test_the_same_seed_deals_the_same_folds_and_another_seed_others() -> None:
    observed, predicted, classes = sample(odd_by=5.0)

    def times(seed: int) -> list[float]:
        ratios = np.linspace(0.5, 2.0, GROUPS * RUNS_PER_GROUP)
        uneven = predicted.slowed(ratios)
        return levels_held_out(observed, uneven, classes, folds=4, seed=seed).step_time_s.tolist()

    assert times(0) == times(0)
    assert times(0) != times(1)


@pytest.mark.parametrize(("folds", "said"), [(1, "2 to 20"), (0, "2 to 20"), (21, "2 to 20")])
def test_folds_out_of_range_are_bad_input(folds: int, said: str) -> None:
    observed, predicted, classes = sample()
    with pytest.raises(InvalidInput, match=said):
        levels_held_out(observed, predicted, classes, folds=folds)


def test_fewer_groups_than_folds_are_bad_input() -> None:
    runs = [Run(id=name, group=f"s/{name}", measured_step_time_s=1.0) for name in "ab"]
    predicted = Predicted.of([RunPrediction(id=run.id, step_time_s=1.0) for run in runs])
    with pytest.raises(InvalidInput, match="folds: 3 is not usable; the runs are of 2 groups"):
        levels_held_out(Observed.of(runs), predicted, [("m",)] * 2, folds=3)
