"""Predicted against measured, run by run, on equal log axes; of thousands of runs some are drawn, and that is said."""

from __future__ import annotations

import numpy as np

from api.dashboard.charts.chart import Axis, Chart, Diagonal, Series
from api.dashboard.fidelity.runs import View
from api.dashboard.words import fine
from costmodel.fidelity.observed import Floats

MOST_DRAWN = 400
"""A browser draws as many at once; more would only lie on each other."""
_FARTHEST = 40
_HUES = 7
_OTHERS = "others"


def drawn_of(view: View) -> list[int]:
    """Which runs are drawn: all, or those farthest off and evenly spread ones of the rest, from fast to slow."""
    errors, observed = view.judged.errors, view.judged.observed
    timed = np.flatnonzero(errors.timed)
    if timed.size <= MOST_DRAWN:
        return [int(row) for row in timed]
    off = np.abs(np.log1p(errors.time[timed]))
    order = np.argsort(-off, kind="stable")
    farthest, rest = timed[order[:_FARTHEST]], timed[order[_FARTHEST:]]
    by_time = rest[np.argsort(observed.step_time_s[rest], kind="stable")]
    places = np.linspace(0, by_time.size - 1, MOST_DRAWN - _FARTHEST).round().astype(int)
    return sorted(int(row) for row in (*farthest, *by_time[places]))


def scatter(view: View, colour: str) -> Chart | None:
    """None where no run has both times.

    Args:
        colour: ``framework`` or ``accelerator``.
    """
    rows = drawn_of(view)
    if not rows:
        return None
    kinds, named = view.kinds(colour), _named(view, colour)
    groups: dict[str, list[int]] = {name: [] for name in (*named, _OTHERS)}
    for row in rows:
        groups[kinds[row] if kinds[row] in named else _OTHERS].append(row)
    return Chart(
        id="scatter",
        title="Step time, predicted against measured",
        told=f"Predicted over measured step times of {len(rows)} runs on log axes, each with its interval.",
        x=Axis(title="measured step time", unit="s", log=True),
        y=Axis(title="predicted step time", unit="s", log=True),
        series=tuple(_series(view, name, found, hue) for hue, (name, found) in enumerate(groups.items()) if found),
        diagonal=Diagonal(name="predicted as measured"),
        height=500,
    )


def _named(view: View, colour: str) -> list[str]:
    """Kinds with a colour of their own: the most frequent of all runs, so that a filter changes no colour."""
    return [name for name, _ in view.work.offered[colour][:_HUES]]


def _series(view: View, name: str, rows: list[int], hue: int) -> Series:
    judged = view.judged
    predicted, measured = judged.predicted, judged.observed.step_time_s

    def ends(of: Floats) -> tuple[float, ...]:
        return tuple(_short(of[row] if np.isfinite(of[row]) else predicted.step_time_s[row]) for row in rows)

    return Series(
        name=name,
        x=tuple(_short(measured[row]) for row in rows),
        y=tuple(_short(predicted.step_time_s[row]) for row in rows),
        said=tuple(_said(view, row) for row in rows),
        low=ends(predicted.step_time_low_s),
        high=ends(predicted.step_time_high_s),
        hue=hue,
    )


def _said(view: View, row: int) -> str:
    run, judged = view.runs[row], view.judged
    measured, predicted = judged.observed.step_time_s[row], judged.predicted.step_time_s[row]
    where = f"{run.model_name} on {run.devices} {run.accelerator}" if run.devices else run.model_name
    return f"{where}: {fine(measured)} s measured, {fine(predicted)} s predicted ({run.id})"


def _short(value: float) -> float:
    """Five digits are more than a picture shows."""
    return float(f"{value:.5g}")


def farthest_off(view: View, most: int) -> list[int]:
    """The runs whose times are predicted worst, the worst first."""
    errors = view.judged.errors
    timed = np.flatnonzero(errors.timed)
    off = np.abs(np.log1p(errors.time[timed]))
    return [int(row) for row in timed[np.argsort(-off, kind="stable")][:most]]
