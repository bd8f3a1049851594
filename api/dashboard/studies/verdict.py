"""How a study stands, in words, and what it is about."""

from __future__ import annotations

from statistics import median
from typing import Any

from api.dashboard.searches.verdict import Tone, Verdict
from api.dashboard.words import fine, number, percent
from api.schemas.answers import Study
from api.schemas.answers.studies import STUDY_OVER, Trial
from db import records

Json = dict[str, Any]

_TONES: dict[str, tuple[Tone, str]] = {
    "done": ("good", "Done"),
    "stopped": ("fair", "Stopped"),
    "failed": ("bad", "The study failed"),
}


def is_over(study: Study) -> bool:
    """Nothing of it runs any more."""
    return study.state in STUDY_OVER and all(trial.state == "done" for trial in study.trials)


def verdict(study: Study) -> Verdict:
    """Of a study in any state."""
    begun, running = len(study.trials), sum(trial.state == "running" for trial in study.trials)
    if study.state == "preparing":
        text = f"A worker with the runner {study.runner} finds its candidates first. None at work? "
        return Verdict(tone="waiting", title="Waiting for candidates", text=text)
    best = _best(study)
    figure = f"{fine(best.step_time_s)} s" if best and best.step_time_s else ""
    counted = (
        f"{_count(begun, 'trial')} of at most {number(study.most_trials)} begun" if begun else "No trial begun yet"
    )
    if study.state == "open" or running:
        title = "Trials are run" if study.state == "open" else f"Stopping: {study.ended_because}"
        now = f", {number(running)} running now" if running else ""
        text = f"{counted}{now}; {_count(study.candidates, 'candidate')}. {_gain(study)}"
        return Verdict(tone="waiting", title=title, text=text, figure=figure)
    tone, title = _TONES[study.state]
    text = f"{counted}; {_count(study.candidates, 'candidate')}. {_gain(study)}"
    return Verdict(tone=tone, title=f"{title}: {study.ended_because}", text=text, figure=figure)


def question(study: Study, record: records.Study, scenario: records.Scenario) -> list[tuple[str, str]]:
    """What is tried, on what, and how, as names and values."""
    asked = record.settings.get("question", {})
    found = [
        ("Model", scenario.model.name),
        ("Cluster", f"{number(scenario.devices)} × {scenario.cluster.accelerator}, {scenario.cluster.name}"),
        ("Batch", f"{number(scenario.global_batch_size)} sequences of {number(scenario.seq_len)} tokens"),
        ("Precision", f"{scenario.precision}, {scenario.optimizer}"),
        ("Framework", f"{scenario.framework} {scenario.framework_version}"),
        ("Runner", study.runner),
    ]
    if study.steps is not None:
        found.append(("Steps", f"{study.steps} after {study.warm_up or 0} of warm-up"))
    layers = record.settings.get("trials", {}).get("layers")
    if layers:
        found.append(("Layers run", number(layers)))
    for name, conditions in (("Pins", asked.get("pins")), ("Forbids", asked.get("forbids"))):
        if conditions:
            found.append((name, ", ".join(conditions)))
    return found


def agreement(study: Study) -> list[tuple[str, str]]:
    """How predictions held, as names and values; nothing before a time was measured."""
    timed = [trial for trial in study.trials if trial.measured_over_predicted is not None and trial.step_time_s]
    if not timed:
        return []
    ratio = median(trial.measured_over_predicted or 0.0 for trial in timed)
    inside = sum(_is_inside(trial) for trial in timed)
    found = [
        ("Measured over predicted", f"{ratio:.3f} in the median"),
        ("Inside the interval", f"{inside} of {len(timed)}"),
    ]
    failed = [trial for trial in study.trials if trial.outcome in ("out_of_memory", "failed")]
    if failed:
        full = sum(trial.outcome == "out_of_memory" for trial in failed)
        found.append(("Failed", f"{len(failed)}, {full} of them out of memory"))
    return found


def best_two(study: Study) -> list[Trial]:
    """The fastest trials that ran to their end, of different plans: what a reader would compare."""
    ran = sorted(
        (trial for trial in study.trials if trial.outcome == "ok" and trial.step_time_s),
        key=lambda trial: (trial.step_time_s or 0.0, trial.number),
    )
    return ran[:2] if len({trial.plan_id for trial in ran[:2]}) == 2 else []


def _best(study: Study) -> Trial | None:
    return next((trial for trial in study.trials if trial.number == study.best), None)


def _gain(study: Study) -> str:
    """How the fastest compares with the first that ran to its end, which was predicted to be about the fastest."""
    best = _best(study)
    first = next((trial for trial in study.trials if trial.outcome == "ok" and trial.step_time_s), None)
    if best is None or first is None or not best.step_time_s or not first.step_time_s:
        return "None has run to its end yet." if study.trials else ""
    if best is first:
        return f"Trial {best.number} is the fastest."
    saved = percent(1.0 - best.step_time_s / first.step_time_s)
    return f"Trial {best.number} is the fastest: {saved} % less time than trial {first.number}, the first that ran."


def _is_inside(trial: Trial) -> bool:
    low, high = trial.predicted_step_time_interval_s
    return trial.step_time_s is not None and low <= trial.step_time_s <= high


def _count(count: int, what: str) -> str:
    return f"{number(count)} {what}" if count == 1 else f"{number(count)} {what}s"
