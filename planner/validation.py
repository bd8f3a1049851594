"""The use case of ``planner validate``: predictions against measurements, two rules of thumb, levels held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.calibration.calibration import DEFAULT_CALIBRATION, Calibration, load_calibration
from costmodel.errors import InvalidInput
from costmodel.fidelity.baselines import constant_mfu, one_line
from costmodel.fidelity.devices import class_of, device_of
from costmodel.fidelity.folds import levels_held_out, levels_in_sample
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.scores import Fidelity, score
from costmodel.runs.carried import default_runs
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction
from costmodel.runs.reader import problems_of, read_runs

Predictor = Callable[[Sequence[Run], Calibration], Sequence[RunPrediction]]

_MEASURED = ("measured_step_time_s", "measured_tokens_per_s_per_device", "measured_peak_mem_gb")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What was found.

    Attributes:
        runs: how many there are.
        judged: how many of them are judged on time or memory.
        not_judged: why the others are not, and how many.
        problems: what is wrong with their rows.
        planner: the figures of the predictions as they are.
        levels_in_sample, levels_held_out: the same after levels were refitted, on all runs and on the other folds; the
            parameters below the levels stay. None unless asked.
        baselines: name -> its figures.
    """

    runs: int
    judged: int
    not_judged: dict[str, int]
    problems: tuple[str, ...]
    calibration: str
    folds: int | None
    planner: Fidelity
    levels_in_sample: Fidelity | None
    levels_held_out: Fidelity | None
    baselines: dict[str, Fidelity]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the planner's own figures at the top level."""
        found: dict[str, Any] = {
            "runs": self.runs,
            "judged": self.judged,
            "not_judged": self.not_judged,
            "calibration": self.calibration,
            "problems": list(self.problems),
            **self.planner.as_dict(),
            "baselines": {name: figures.as_dict() for name, figures in self.baselines.items()},
        }
        if self.levels_in_sample and self.levels_held_out:
            found |= {
                "folds": self.folds,
                "levels_in_sample": self.levels_in_sample.as_dict(),
                "levels_held_out": self.levels_held_out.as_dict(),
            }
        return found


def validate(
    predict: Predictor, *, runs: str | None = None, calibration: str | None = None, folds: int | None = None
) -> Validation:
    """Predict runs and hold the predictions against what was measured.

    Args:
        predict: gives one prediction per run, in order.
        runs: a file; None for the measured runs that ship with the planner.
        calibration: a name of the catalog, or a file; None for the default.
        folds: also refit levels on all folds of groups but one, and score that one; None not to.

    Raises:
        InvalidInput: a file is unusable, nothing in it is measured, or ``folds`` does not suit it.
    """
    used = load_calibration(calibration or DEFAULT_CALIBRATION)
    rows = read_runs(runs) if runs is not None else default_runs()
    if not any(getattr(run, name) for run in rows for name in _MEASURED):
        expected = f"no row says what was measured; one of {', '.join(_MEASURED)} is needed"
        raise InvalidInput("runs", runs, expected)
    observed = Observed.of(rows)
    predicted = Predicted.of(predict(rows, used))
    refitted: tuple[Fidelity | None, Fidelity | None] = (None, None)
    if folds is not None:
        classes = [class_of(run) for run in rows]
        inside = levels_in_sample(observed, predicted, classes)
        outside = levels_held_out(observed, predicted, classes, folds=folds)
        refitted = score(observed, inside), score(observed, outside)
    return Validation(
        runs=len(rows),
        judged=observed.judged,
        not_judged=observed.not_judged,
        problems=tuple(problems_of(rows)),
        calibration=used.name,
        folds=folds,
        planner=score(observed, predicted),
        levels_in_sample=refitted[0],
        levels_held_out=refitted[1],
        baselines={
            "constant_mfu": score(observed, Predicted.of(constant_mfu(rows, device_of))),
            "one_line": score(observed, Predicted.of(one_line(rows, device_of))),
        },
    )
