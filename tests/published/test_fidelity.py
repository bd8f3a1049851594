"""What the planner reaches on the published runs that it carries, against what two rules of thumb reach on the same.

The shipped calibration was fitted to these runs: the figures say that it holds them together, and guard what
docs/fidelity.md prints. They are no estimate of the error on a run that it has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from costmodel.calibration.calibration import Calibration
from costmodel.fidelity.scores import Fidelity
from costmodel.runs.carried import default_runs
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction
from costmodel.runs.predictions import predict_runs
from planner.validation import Validation, validate


class Published:
    """The carried runs, what is predicted of them, and the figures; predicted once for all tests."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.predictions: list[RunPrediction] = []
        self.validation: Validation = validate(self._predict)

    def _predict(self, runs: Sequence[Run], calibration: Calibration) -> list[RunPrediction]:
        self.runs, self.predictions = list(runs), predict_runs(runs, calibration)
        return self.predictions


@pytest.fixture(scope="module")
def published() -> Published:
    return Published()


@pytest.fixture(scope="module")
def planner(published: Published) -> Fidelity:
    return published.validation.planner


@pytest.fixture(scope="module")
def baselines(published: Published) -> dict[str, Fidelity]:
    return published.validation.baselines


def figure(found: Fidelity, name: str) -> float:
    value = getattr(found, name)
    assert value is not None, name
    return float(value)


def test_every_run_has_its_row_in_order_and_a_reason_where_nothing_is_predicted(published: Published) -> None:
    assert tuple(published.runs) == default_runs()
    assert [row.id for row in published.predictions] == [run.id for run in published.runs]
    assert [row.id for row in published.predictions if row.step_time_s is None and not row.reason] == []


def test_nearly_every_usable_run_is_predicted(planner: Fidelity) -> None:
    assert figure(planner, "coverage") >= 0.97
    # Nothing is covered by leaving runs out: each is judged, or counted under the reason why it is not.
    assert planner.scorable > 1500


def test_no_run_is_dropped_in_silence(published: Published) -> None:
    validation = published.validation
    assert validation.judged + sum(validation.not_judged.values()) == validation.runs == len(published.runs)


@pytest.mark.parametrize("rule", ["constant_mfu", "one_line"])
@pytest.mark.parametrize("name", ["time_median_ape_macro", "regret_top1_mean"])
def test_times_and_the_first_plan_are_better_than_both_rules(
    planner: Fidelity, baselines: dict[str, Fidelity], rule: str, name: str
) -> None:
    assert figure(planner, name) < figure(baselines[rule], name)


def test_memory_is_better_than_the_one_line_formula(planner: Fidelity, baselines: dict[str, Fidelity]) -> None:
    line = baselines["one_line"]
    assert figure(planner, "mem_median_ape_macro") < figure(line, "mem_median_ape_macro")
    assert figure(planner, "oom_recall") > figure(line, "oom_recall")
    # On as many runs: a better median must not come from skipping the hard ones.
    assert planner.mem_rows >= line.mem_rows
    assert planner.oom_rows >= line.oom_rows


def test_most_measured_times_lie_inside_their_interval(planner: Fidelity) -> None:
    assert figure(planner, "interval_coverage") > 0.8
    # Each of them has one, and no width of everything.
    assert planner.interval_rows == round(figure(planner, "coverage") * planner.scorable)
    assert figure(planner, "interval_median_width") < 1.5


@pytest.mark.parametrize(
    ("rule", "name", "value"),
    [
        ("constant_mfu", "time_median_ape_macro", 0.27),
        ("constant_mfu", "regret_top1_mean", 0.31),
        ("one_line", "time_median_ape_macro", 0.28),
        ("one_line", "regret_top1_mean", 0.25),
        ("one_line", "mem_median_ape_macro", 0.33),
        ("one_line", "oom_recall", 0.46),
        ("one_line", "fit_recall", 0.94),
    ],
)
def test_the_rules_reach_what_was_published_of_them(
    baselines: dict[str, Fidelity], rule: str, name: str, value: float
) -> None:
    """A bar that moved would make every comparison above mean something else."""
    assert figure(baselines[rule], name) == pytest.approx(value, abs=0.005)


@pytest.mark.parametrize("rule", ["constant_mfu", "one_line"])
def test_the_rules_speak_of_nearly_all_runs(baselines: dict[str, Fidelity], rule: str) -> None:
    assert figure(baselines[rule], "coverage") > 0.95
