"""The charts of a study: its trials one after the other, and predicted against measured."""

from __future__ import annotations

from api.dashboard.charts.chart import HALF, Axis, Chart, Diagonal, Series
from api.dashboard.words import fine
from api.schemas.answers import Study
from api.schemas.answers.studies import Trial

# Values of which the largest is so many times the least are told apart on log axes only.
_FAR_APART = 5.0
_MOST_DRAWN = 300  # one beside the other in this picture
_BLUE, _ORANGE, _GREEN, _RED = 0, 1, 2, 3


def course(study: Study) -> Chart | None:
    """Step time of each trial in order, with the best so far; None before one was measured or failed."""
    ran = [trial for trial in study.trials if trial.outcome == "ok" and trial.step_time_s]
    stopped = [trial for trial in study.trials if trial.outcome == "stopped" and trial.step_time_s]
    failed = [trial for trial in study.trials if trial.outcome in ("out_of_memory", "failed")]
    if not (ran or stopped or failed):
        return None
    series = [
        _so_far(study),
        _measured("measured", ran, _BLUE, study.best),
        _measured("stopped early, until then", stopped, _ORANGE, None),
        Series(
            name="failed, at its predicted time",
            x=tuple(float(trial.number) for trial in failed),
            y=tuple(trial.predicted_step_time_s for trial in failed),
            said=tuple(f"Trial {trial.number} failed: {trial.reason}" for trial in failed),
            links=_links(failed),
            hue=_RED,
        ),
    ]
    best = min((trial.step_time_s or 0.0 for trial in ran), default=None)
    told = f"Step times of {len(ran)} trials that ran, {len(stopped)} stopped early, {len(failed)} failed"
    return Chart(
        width=HALF,
        id="course",
        title="Step time, trial by trial",
        told=told + ("" if best is None else f"; the best is {fine(best)} s."),
        x=Axis(title="trial", ticks=_whole(len(study.trials))),
        y=Axis(title="step time", unit="s"),
        series=tuple(one for one in series if one.x),
    )


def against(study: Study) -> Chart | None:
    """Predicted against measured; None before a trial was measured."""
    known = [trial for trial in study.trials if trial.step_time_s]
    if not known:
        return None
    timed = known[-_MOST_DRAWN:]
    said = "" if len(timed) == len(known) else f", the newest {len(timed)} trials"
    values = [value for trial in timed for value in (trial.step_time_s or 0.0, trial.predicted_step_time_s)]
    log = max(values) > _FAR_APART * min(values)
    return Chart(
        width=HALF,
        id="against",
        title=f"Predicted against measured{said}",
        told=f"Predicted step times of {len(timed)} trials with their intervals, over the measured ones.",
        x=Axis(title="measured step time", unit="s", log=log),
        y=Axis(title="predicted step time", unit="s", log=log),
        series=tuple(
            _beside(name, found, hue)
            for name, hue, found in (
                ("ran to its end", _BLUE, [trial for trial in timed if trial.outcome != "stopped"]),
                ("stopped early", _ORANGE, [trial for trial in timed if trial.outcome == "stopped"]),
            )
            if found
        ),
        diagonal=Diagonal(name="predicted as measured"),
    )


def _so_far(study: Study) -> Series:
    """A step down at each trial that was faster than all before it."""
    x: list[float] = []
    y: list[float] = []
    for trial in study.trials:
        known = trial.outcome == "ok" and trial.step_time_s
        if known and (not y or known < y[-1]):
            x += [float(trial.number)] * (2 if y else 1)
            y += [y[-1], known] if y else [known]
    if x and x[-1] < len(study.trials) - 1:
        x.append(float(len(study.trials) - 1))
        y.append(y[-1])
    return Series(name="best so far", x=tuple(x), y=tuple(y), kind="line", hue=_GREEN, dots=False)


def _measured(name: str, trials: list[Trial], hue: int, best: int | None) -> Series:
    return Series(
        name=name,
        x=tuple(float(trial.number) for trial in trials),
        y=tuple(trial.step_time_s for trial in trials),
        said=tuple(_said(trial) for trial in trials),
        links=_links(trials),
        hue=hue,
        strong=frozenset(place for place, trial in enumerate(trials) if trial.number == best),
    )


def _beside(name: str, trials: list[Trial], hue: int) -> Series:
    return Series(
        name=name,
        x=tuple(trial.step_time_s or 0.0 for trial in trials),
        y=tuple(trial.predicted_step_time_s for trial in trials),
        said=tuple(_said(trial) for trial in trials),
        links=_links(trials),
        low=tuple(trial.predicted_step_time_interval_s[0] for trial in trials),
        high=tuple(trial.predicted_step_time_interval_s[1] for trial in trials),
        hue=hue,
    )


def _said(trial: Trial) -> str:
    measured = f"{fine(trial.step_time_s or 0.0)} s measured"
    return f"Trial {trial.number}: {measured}, {fine(trial.predicted_step_time_s)} s predicted"


def _links(trials: list[Trial]) -> tuple[str, ...]:
    return tuple(f"/plans/{trial.plan_id}" for trial in trials)


def _whole(count: int) -> tuple[float, ...]:
    """Labels at whole numbers, some ten of them."""
    return tuple(float(place) for place in range(0, count, max(1, -(-count // 12))))
