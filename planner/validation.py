"""The use case of ``planner validate``: predictions against measurements, beside two rules of thumb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costmodel.calibration.calibration import DEFAULT_CALIBRATION, Calibration, load_calibration
from costmodel.errors import InvalidInput
from costmodel.fidelity.observed import Observed
from costmodel.fidelity.scores import Fidelity, score
from costmodel.fidelity.unseen import Unseen
from costmodel.runs.carried import default_runs
from costmodel.runs.reader import problems_of, read_runs
from planner.judging import Judged, Predictor

_MEASURED = ("measured_step_time_s", "measured_tokens_per_s_per_device", "measured_peak_mem_gb")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What was found.

    Attributes:
        runs: how many there are.
        judged: how many of them are judged on time or memory.
        not_judged: why the others are not, and how many.
        problems: what is wrong with their rows.
        planner: the figures of the predictions by the calibration as it is.
        in_sample: whether that was fitted to these very runs, which flatters.
        held_out: the same where every run is predicted by a calibration that was fitted without its group; None unless
            asked.
        unseen: the figures of whole studies left out; None unless folds were asked for and there are enough studies.
        baselines: name -> its figures.
    """

    runs: int
    judged: int
    not_judged: dict[str, int]
    problems: tuple[str, ...]
    calibration: str
    folds: int | None
    planner: Fidelity
    in_sample: bool
    held_out: Fidelity | None
    unseen: Unseen | None
    baselines: dict[str, Fidelity]

    @property
    def shown(self) -> Fidelity:
        """The figures to be quoted: those held out, where there are any."""
        return self.held_out or self.planner

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the figures to be quoted at the top level, so that nobody quotes others by accident."""
        found: dict[str, Any] = {
            "runs": self.runs,
            "judged": self.judged,
            "not_judged": self.not_judged,
            "calibration": self.calibration,
            "in_sample": self.in_sample and self.held_out is None,
            "problems": list(self.problems),
            **self.shown.as_dict(),
            "baselines": {name: figures.as_dict() for name, figures in self.baselines.items()},
        }
        if self.held_out:
            found |= {"folds": self.folds, "as_calibrated": self.planner.as_dict()}
        if self.unseen:
            found["unseen"] = self.unseen.as_dict()
        return found


def validate(
    predict: Predictor, *, runs: str | None = None, calibration: str | None = None, folds: int | None = None
) -> Validation:
    """Predict runs and hold the predictions against what was measured.

    Args:
        predict: gives one prediction per run, in order.
        runs: a file; None for the measured runs that ship with the planner.
        calibration: a name of the catalog, or a file; None for the default.
        folds: also refit all that a fit moves on all folds of groups but one, and score that one; None not to. For
            the runs that ship with the planner the fit begins at the priors, for others at the calibration.

    Raises:
        InvalidInput: a file is unusable, nothing in it is measured, or ``folds`` does not suit it.
    """
    used = load_calibration(calibration or DEFAULT_CALIBRATION)
    rows = read_runs(runs) if runs is not None else default_runs()
    if not any(getattr(run, name) for run in rows for name in _MEASURED):
        expected = f"no row says what was measured; one of {', '.join(_MEASURED)} is needed"
        raise InvalidInput("runs", runs, expected)
    judged = Judged.of(rows, predict, used)
    observed = judged.observed
    carried = runs is None
    outside, left_out = (
        (None, None) if folds is None or not observed.judged else _held_out(observed, used, folds, carried=carried)
    )
    return Validation(
        runs=len(rows),
        judged=observed.judged,
        not_judged=observed.not_judged,
        problems=tuple(problems_of(rows)),
        calibration=used.name,
        folds=folds,
        planner=judged.figures,
        in_sample=carried and used.fitted_to_carried_runs,
        held_out=outside,
        unseen=left_out,
        baselines=judged.baseline_figures,
    )


# Of whole studies: as few fits as leave most of the others in each.
_STUDY_FOLDS = 10


def _held_out(
    observed: Observed, calibration: Calibration, folds: int, *, carried: bool
) -> tuple[Fidelity, Unseen | None]:
    # The fit brings scipy, which takes half a second to import.
    from costmodel.calibration.fit.priors import load_priors, priors_from
    from costmodel.fidelity.folds import held_out, studies_left_out
    from costmodel.fidelity.unseen import unseen

    priors = load_priors() if carried else priors_from(calibration)
    outside = score(observed, held_out(observed.runs, priors, folds=folds, study_effects=carried))
    if len(set(observed.studies.tolist())) < _STUDY_FOLDS:
        return outside, None
    return outside, unseen(observed, studies_left_out(observed.runs, priors, folds=_STUDY_FOLDS))
