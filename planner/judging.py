"""Runs with what was observed and what each predictor says: the rows behind the figures of ``planner validate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.calibration.calibration import Calibration
from costmodel.fidelity.baselines import constant_mfu, one_line
from costmodel.fidelity.devices import device_of
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.predicted import Predicted
from costmodel.fidelity.scores import Errors, Fidelity, score
from costmodel.runs.columns import Run
from costmodel.runs.prediction import RunPrediction

Predictor = Callable[[Sequence[Run], Calibration], Sequence[RunPrediction]]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Runs, and predictions of each.

    Attributes:
        predictions: of the cost model, one for each run.
        baselines: name -> those of a rule of thumb.
    """

    runs: tuple[Run, ...]
    predictions: tuple[RunPrediction, ...]
    baselines: dict[str, tuple[RunPrediction, ...]]

    @classmethod
    def of(cls, runs: Sequence[Run], predict: Predictor, calibration: Calibration) -> Judged:
        """Predict runs by a calibration, and by two rules of thumb."""
        return cls(
            runs=tuple(runs),
            predictions=tuple(predict(runs, calibration)),
            baselines={
                "constant_mfu": tuple(constant_mfu(runs, device_of)),
                "one_line": tuple(one_line(runs, device_of)),
            },
        )

    def only(self, rows: Sequence[int]) -> Judged:
        """Some of the runs."""
        return Judged(
            runs=tuple(self.runs[row] for row in rows),
            predictions=tuple(self.predictions[row] for row in rows),
            baselines={name: tuple(of[row] for row in rows) for name, of in self.baselines.items()},
        )

    @cached_property
    def observed(self) -> Observed:
        """What was measured."""
        return Observed.of(self.runs)

    @cached_property
    def predicted(self) -> Predicted:
        """What the cost model says."""
        return Predicted.of(self.predictions)

    @cached_property
    def errors(self) -> Errors:
        """How far off the cost model is, run by run."""
        return Errors.of(self.observed, self.predicted)

    @cached_property
    def figures(self) -> Fidelity:
        """The figures of the cost model."""
        return score(self.observed, self.predicted)

    @cached_property
    def baseline_figures(self) -> dict[str, Fidelity]:
        """The figures of the rules of thumb."""
        return {name: score(self.observed, Predicted.of(found)) for name, found in self.baselines.items()}
