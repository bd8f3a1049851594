"""Predicted against measured, run by run, on equal log axes; of thousands of runs some are drawn, and that is said."""

from __future__ import annotations

import numpy as np

from api.dashboard.charts.chart import HALF, Axis, Chart, Diagonal, Series
from api.dashboard.fidelity.quantities import Quantity
from api.dashboard.fidelity.runs import View
from costmodel.fidelity.observed import Floats

MOST_DRAWN = 300
"""A browser draws as many at once; more would only lie on each other."""
_FARTHEST = 40
_HUES = 7
_OTHERS = "others"


def farthest_off(shown: Quantity, most: int) -> list[int]:
    """The runs that are predicted worst, the worst first."""
    rows = np.flatnonzero(shown.judged)
    off = np.abs(np.log(shown.ratio[rows]))
    return [int(row) for row in rows[np.argsort(-off, kind="stable")][:most]]


def drawn_of(shown: Quantity) -> list[int]:
    """Which runs are drawn: all, or those farthest off and evenly spread ones of the rest, from small to large."""
    rows = shown.rows
    if len(rows) <= MOST_DRAWN:
        return rows
    farthest = farthest_off(shown, _FARTHEST)
    rest = np.array(sorted(set(rows) - set(farthest)))
    by_value = rest[np.argsort(shown.measured[rest], kind="stable")]
    places = np.linspace(0, by_value.size - 1, MOST_DRAWN - _FARTHEST).round().astype(int)
    return sorted((*farthest, *(int(row) for row in by_value[places])))


def scatter(view: View, shown: Quantity, colour: str) -> Chart | None:
    """None where no run has both values.

    Args:
        colour: ``framework`` or ``accelerator``.
    """
    rows = drawn_of(shown)
    if not rows:
        return None
    kinds, named = view.kinds(colour), _named(view, colour)
    groups: dict[str, list[int]] = {name: [] for name in (*named, _OTHERS)}
    for row in rows:
        groups[kinds[row] if kinds[row] in named else _OTHERS].append(row)
    return Chart(
        id="scatter",
        title=f"{shown.name.capitalize()}, predicted against measured",
        told=f"Predicted over measured {shown.name} of {len(rows)} runs on log axes, each with its interval.",
        x=Axis(title=f"measured {shown.name}", unit=shown.unit, log=True),
        y=Axis(title=f"predicted {shown.name}", unit=shown.unit, log=True),
        series=tuple(
            _series(view, shown, name, found, hue) for hue, (name, found) in enumerate(groups.items()) if found
        ),
        diagonal=Diagonal(name="predicted as measured"),
        width=HALF,
        height=500,
    )


def _named(view: View, colour: str) -> list[str]:
    """Kinds with a colour of their own: the most frequent of all runs, so that a filter changes no colour."""
    return [name for name, _ in view.work.offered[colour][:_HUES]]


def _series(view: View, shown: Quantity, name: str, rows: list[int], hue: int) -> Series:
    def ends(of: Floats) -> tuple[float, ...]:
        return tuple(_short(of[row] if np.isfinite(of[row]) else shown.predicted[row]) for row in rows)

    return Series(
        name=name,
        x=tuple(_short(shown.measured[row]) for row in rows),
        y=tuple(_short(shown.predicted[row]) for row in rows),
        said=tuple(_said(view, shown, row) for row in rows),
        low=ends(shown.low),
        high=ends(shown.high),
        hue=hue,
    )


def _said(view: View, shown: Quantity, row: int) -> str:
    run = view.runs[row]
    measured, predicted = shown.text(shown.measured[row]), shown.text(shown.predicted[row])
    where = f"{run.model_name} on {run.devices} {run.accelerator}" if run.devices else run.model_name
    return f"{where}: {measured} {shown.unit} measured, {predicted} predicted ({run.id})"


def _short(value: float) -> float:
    """Five digits are more than a picture shows."""
    return float(f"{value:.5g}")
