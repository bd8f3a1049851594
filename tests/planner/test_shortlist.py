"""The short list for trials: what its probability says, and what held in the runs that are carried."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.scores import LEAST_PLANS_OF_A_CELL
from costmodel.plan_errors import plan_errors, trials
from costmodel.runs.carried import default_runs
from costmodel.runs.columns import Run
from costmodel.runs.predictions import predict_runs
from planner.answering.whole_answer import whole_answer
from tests.scenarios import scenario_of
from tests.searches import request_of


def test_one_plan_far_ahead_is_enough() -> None:
    slowness = plan_errors().slowness([1.0, 3.0, 3.0], [{"tp": 1}, {"tp": 2}, {"tp": 4}])
    (only,) = trials(slowness, 0.95, 0.02)
    assert only.place == 0
    assert only.probability > 0.95
    assert only.loss < 0.01


def test_plans_that_are_as_fast_as_each_other_are_as_likely_the_best() -> None:
    plans = [{"tp": tp, "pp": tp} for tp in (1, 2, 4, 8)]
    slowness = plan_errors().slowness([1.0] * 4, plans)
    fast = (slowness == 1.0).mean(axis=0)
    assert fast == pytest.approx([0.25] * 4, abs=0.03)
    assert len(trials(slowness, 0.999, 0.0)) == 4


def test_plans_of_another_family_come_before_twins_of_the_best() -> None:
    """Two that share all axes but one err together, so the third says more though it is predicted slower."""
    plans = [
        {"tp": 1, "pp": 8, "cp": 1, "micro_batch_size": 1, "recompute": "none", "ep": 1},
        {"tp": 1, "pp": 8, "cp": 1, "micro_batch_size": 2, "recompute": "none", "ep": 1},
        {"tp": 8, "pp": 1, "cp": 2, "micro_batch_size": 4, "recompute": "full", "ep": 8},
    ]
    errors = plan_errors()
    order = [trial.place for trial in trials(errors.slowness([1.0, 1.004, 1.01], plans), 0.97, errors.indistinct)]
    assert order.index(2) < order.index(1) or 1 not in order


def test_probabilities_rise_and_losses_fall_along_the_list() -> None:
    rng = np.random.default_rng(3)
    plans = [{"tp": int(tp), "pp": int(pp)} for tp, pp in rng.choice([1, 2, 4, 8], size=(30, 2))]
    errors = plan_errors()
    found = trials(errors.slowness(rng.uniform(1.0, 1.3, size=30).tolist(), plans), 0.95, errors.indistinct)
    assert [t.probability for t in found] == sorted(t.probability for t in found)
    assert [t.loss for t in found] == sorted((t.loss for t in found), reverse=True)
    assert found[-1].probability >= 0.95 > found[-2].probability


def test_the_same_question_gets_the_same_list() -> None:
    request = request_of(scenario_of("llama-3.2-1b", "dgx-h100", 8, 8, 4096), shortlist=0.8, top=3)
    first, second = whole_answer(request)["shortlist"], whole_answer(request)["shortlist"]
    assert first == second
    assert first["asked"] == 0.8 <= first["probability"]
    assert first["plans"][0]["rank"] == 1
    assert first["considered"] > len(first["plans"])
    assert len({entry["id"] for entry in first["plans"]}) == len(first["plans"])


def test_where_nothing_fits_there_is_nothing_to_try() -> None:
    request = request_of(scenario_of("llama-3.1-405b", "dgx-h100", 16, 16, 4096), shortlist=0.8)
    assert whole_answer(request)["shortlist"] is None


# -- replay ------------------------------------------------------------------------------------------------------------

_OF_RUN = {"micro_batch_size": "micro_batch"}


@lru_cache(maxsize=1)
def measured_cells() -> list[tuple[list[float], list[float], list[Run]]]:
    """(measured, predicted, runs) of the plans of every cell of carried runs that is large enough to rank."""
    runs = default_runs()
    observed, predicted = Observed.of(runs), Predicted.of(predict_runs(runs))
    cells = []
    for points in observed.points.values():
        found = []
        for rows in points:
            measured = observed.step_time_s[list(rows)]
            measured = measured[np.isfinite(measured)]
            time = predicted.step_time_s[rows[0]]
            if measured.size and np.isfinite(time) and predicted.feasible[rows[0]] != 0:
                found.append((float(np.median(measured)), float(time), runs[rows[0]]))
        if len(found) >= LEAST_PLANS_OF_A_CELL:
            measured_s, predicted_s, those = zip(*found, strict=True)
            cells.append((list(measured_s), list(predicted_s), list(those)))
    return cells


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.9])
def test_the_measured_best_is_in_the_list_at_least_as_often_as_stated(probability: float) -> None:
    errors = plan_errors()
    hits, lengths = [], []
    for measured, predicted, runs in measured_cells():
        plans = [{axis: getattr(run, _OF_RUN.get(axis, axis)) for axis in errors.axes} for run in runs]
        chosen = trials(errors.slowness(predicted, plans), probability, errors.indistinct)
        tried = min(measured[trial.place] for trial in chosen)
        hits.append(tried <= min(measured) * (1.0 + errors.indistinct))
        lengths.append(len(chosen))
    assert len(hits) >= 20
    assert np.mean(hits) >= probability
    assert np.mean(lengths) < 8
