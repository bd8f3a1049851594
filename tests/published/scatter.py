"""Pictures of predictions held out; ``python -m tests.published.scatter`` draws those of docs/fidelity.md anew.

Needs the extra ``plots``. A second run writes the same bytes: ids are salted with a fixed word, nothing is dated, and
coordinates are rounded to a tenth of a point, below which machines may differ.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.calibration.fit.priors import load_priors
from costmodel.fidelity.folds import held_out
from costmodel.fidelity.observed import Observed
from costmodel.runs.carried import default_runs
from tests.published.held_out import FOLDS
from tests.published.residuals import AXES, Points, binned, points_of_memory, points_of_time, table

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "fidelity"

# Okabe and Ito's palette, which colour-blind readers tell apart; greys for what is only there to compare with.
POINT, BOX, MEDIAN, GRID = "#0072B2", "#BBD9EA", "#D55E00", "#DDDDDD"
BANDS = {0.25: "#EEEEEE", 0.10: "#D5D5D5"}

LARGEST = 6
"""Studies whose residuals are drawn against properties of their runs."""
LEAST_OF_A_BAR = 5
"""Runs that percentiles are taken of; fewer are drawn one by one."""
MOST_OF_A_STRIP = 200
"""Points that a strip has room for; of a larger study only those beyond the whiskers are drawn, evenly thinned."""
WIDE, NARROW = (-0.75, -0.5, -0.25, 0.0, 0.33, 1.0), (-0.5, -0.25, 0.0, 0.33)
"""Ticks of residuals, as relative errors; what lies well beyond them is drawn on the edge of the picture."""

_WIDTH_IN = 9.0
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "parallelism-planner",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.6,
    "savefig.facecolor": "white",
}
_FRACTION = re.compile(r"-?\d+\.\d{2,}")
_DOT = re.compile(r'style="(fill: #0072b2; fill-opacity: [\d.]+)"')


def predicted_against_measured(points: Points) -> str:
    """SVG: a panel per study, on logarithmic axes, with bands of 10 and 25 %."""
    panels = points.panels()
    columns = min(5 if len(panels) > 6 else 3, len(panels))
    with Panels(len(panels), columns, height_in=0.3 + 7.6 / columns) as figure:
        for axes, study in zip(figure.axes, panels, strict=False):
            part = points.of(study)
            both = np.concatenate([part.measured, part.predicted])
            limits = np.array([both.min() / 1.3, both.max() * 1.3])
            for band, colour in BANDS.items():
                axes.fill_between(limits, limits * (1 - band), limits * (1 + band), color=colour, linewidth=0)
            axes.plot(limits, limits, color="#888888", linewidth=0.6)
            _dots(axes, part.measured, part.predicted)
            axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
            _plain_ticks(axes)
            axes.set_title(_title(study, part), loc="left")
        figure.label(f"measured {points.what} ({points.unit})", f"predicted {points.what} ({points.unit})")
        return figure.svg()


def residuals_by_study(both: Sequence[Points]) -> str:
    """SVG: a panel per figure, a line per study: its runs, half of them in a box, eight of ten on its whiskers."""
    rows = max(len(points.panels()) for points in both)
    with Panels(len(both), len(both), height_in=0.8 + 0.21 * rows) as figure:
        for axes, points in zip(figure.axes, both, strict=True):
            parts = {study: points.of(study).residuals for study in points.panels()}
            order = sorted(parts, key=lambda study: (float(np.median(parts[study])), study))
            for row, study in enumerate(order):
                residuals = _clipped(np.sort(parts[study]), WIDE)
                low, left, median, right, high = np.percentile(residuals, [10, 25, 50, 75, 90])
                if residuals.size > MOST_OF_A_STRIP:
                    outside = residuals[(residuals < low) | (residuals > high)]
                    residuals = outside[:: 1 + outside.size // MOST_OF_A_STRIP]
                axes.plot([low, high], [row, row], color="#555555", linewidth=0.8)
                axes.barh(row, right - left, left=left, height=0.62, color=BOX, edgecolor="#555555", linewidth=0.6)
                _dots(axes, residuals, row + _jitter(residuals.size, 0.2), size=1.6)
                axes.plot([median, median], [row - 0.4, row + 0.4], color=MEDIAN, linewidth=1.8)
            names = [f"{study} ({parts[study].size})" for study in order]
            axes.set_yticks(range(len(order)), names)
            axes.set_ylim(len(order) - rows - 0.7, len(order) - 0.3)
            axes.set_title(points.what, loc="left")
            _error_ticks(axes.xaxis, axes.set_xlim, axes.axvline, WIDE)
        figure.label("error of the prediction (logarithmic)", "study (runs)")
        return figure.svg()


def residuals_by_axis(points: Points) -> str:
    """SVG: a column per large study, a row per property: median, half and eight of ten of the runs at each value."""
    studies = list(points.sizes())[:LARGEST]
    with Panels(len(AXES) * len(studies), len(studies), height_in=1.45) as figure:
        panels = iter(figure.axes)
        for number, (name, value_of) in enumerate(AXES.items()):
            for column, study in enumerate(studies):
                axes = next(panels)
                bins = binned(points.of(study), value_of)
                for found in bins:
                    _bar(axes, found.exponent, found.residuals)
                exponents = [found.exponent for found in bins] or [0]
                least, most = min(exponents), max(exponents)
                shown = range(least, most + 1, 1 + (most - least) // 4)
                axes.set_xticks(shown, [_power_of_two(exponent) for exponent in shown])
                axes.set_xlim(min(least - 0.7, (least + most) / 2 - 2), max(most + 0.7, (least + most) / 2 + 2))
                _error_ticks(axes.yaxis, axes.set_ylim, axes.axhline, NARROW, labels=column == 0)
                axes.set_xlabel(name, fontsize=7)
                if number == 0:
                    axes.set_title(_title(study, points.of(study)), loc="left")
        figure.label("", f"error of the predicted {points.what} (logarithmic)")
        return figure.svg()


def _bar(axes: Any, x: float, residuals: Any) -> None:
    residuals = _clipped(residuals, NARROW)
    if residuals.size < LEAST_OF_A_BAR:
        _dots(axes, np.full(residuals.size, x), residuals)
        return
    low, lower, median, upper, high = np.percentile(residuals, [10, 25, 50, 75, 90])
    axes.plot([x, x], [low, high], color=POINT, linewidth=1.0)
    axes.plot([x, x], [lower, upper], color=POINT, linewidth=4.0, solid_capstyle="butt")
    axes.plot([x - 0.3, x + 0.3], [median, median], color=MEDIAN, linewidth=1.8)


# -- what all have in common -------------------------------------------------------------------------------------------


class Panels:
    """A figure of panels in rows of ``columns``, closed when the block ends."""

    def __init__(self, panels: int, columns: int, *, height_in: float) -> None:
        self._panels, self._columns, self._height_in = panels, columns, height_in
        self._style = ExitStack()

    def __enter__(self) -> Panels:
        # Here, since the package is an extra that nothing else needs.
        import matplotlib as mpl
        from matplotlib.figure import Figure

        rows = -(-self._panels // self._columns)
        with ExitStack() as style:
            style.enter_context(mpl.rc_context(_STYLE))
            self._figure = Figure(figsize=(_WIDTH_IN, 0.5 + self._height_in * rows), layout="constrained")
            every = self._figure.subplots(rows, self._columns, squeeze=False).ravel().tolist()
            self._style = style.pop_all()
        self.axes = every[: self._panels]
        for unused in every[self._panels :]:
            unused.set_axis_off()
        return self

    def __exit__(self, *_: object) -> None:
        self._style.close()

    def label(self, x: str, y: str) -> None:
        self._figure.supxlabel(x, fontsize=9)
        self._figure.supylabel(y, fontsize=9)

    def svg(self) -> str:
        written = io.StringIO()
        self._figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
        return _slim(written.getvalue())


def _slim(svg: str) -> str:
    """With coordinates rounded, and what thousands of dots have in common said once."""
    lines = []
    for line in svg.splitlines():
        tag, closing, content = line.partition(">") if "<text" in line else (line, "", "")
        lines.append(_FRACTION.sub(lambda number: f"{float(number.group()):.1f}", tag).strip() + closing + content)
    text = "\n".join(lines) + "\n"
    dot = _DOT.search(text)
    if dot is None:
        return text
    return text.replace(dot.group(), 'class="d"').replace("<defs>", f"<defs>\n<style>.d {{{dot.group(1)}}}</style>", 1)


def _dots(axes: Any, x: Any, y: Any, size: float = 2.4) -> None:
    axes.plot(x, y, "o", markersize=size, color=POINT, alpha=0.45, markeredgewidth=0)


def _jitter(n: int, width: float) -> Any:
    """Steps of the golden ratio, which never bunch, in place of chance."""
    return (np.arange(n) * 0.618034 % 1.0 - 0.5) * 2 * width


def _plain_ticks(axes: Any) -> None:
    """At most four numbers on each of two equal logarithmic axes, as round as will do."""
    low, high = axes.get_xlim()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high))
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [tick for tick in np.outer(decades, steps).ravel().tolist() if low < tick < high]
        if len(ticks) <= 4:
            break
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([], minor=True)
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])


def _error_ticks(axis: Any, set_limits: Any, line: Any, errors: Sequence[float], *, labels: bool = True) -> None:
    """Relative errors at the logarithms that they are."""
    axis.set_ticks(np.log1p(errors), [f"{error:+.0%}".replace("+0%", "0") if labels else "" for error in errors])
    set_limits(*_limits(errors))
    for error in errors:
        line(np.log1p(error), color="#888888" if error == 0 else GRID, linewidth=0.6, zorder=0)


def _limits(errors: Sequence[float]) -> tuple[float, float]:
    return float(np.log1p(errors[0])) - 0.2, float(np.log1p(errors[-1])) + 0.2


def _clipped(residuals: Any, errors: Sequence[float]) -> Any:
    low, high = _limits(errors)
    return np.clip(residuals, low + 0.03, high - 0.03)


def _power_of_two(exponent: int) -> str:
    return f"{2**exponent}" if exponent >= 0 else f"1/{2**-exponent}"


def _title(study: str, points: Points) -> str:
    return f"{study}\n{len(points.runs)} runs"


def pictures(time: Points, memory: Points) -> Iterable[tuple[str, str]]:
    """(name, content) of every file."""
    yield "time.svg", predicted_against_measured(time)
    yield "memory.svg", predicted_against_measured(memory)
    yield "residuals-by-study.svg", residuals_by_study([time, memory])
    yield "residuals-by-axis.svg", residuals_by_axis(time)
    yield "residuals.csv", table([time, memory])


def main() -> None:
    """Draw today's product."""
    runs = default_runs()
    observed = Observed.of(runs)
    predicted = held_out(runs, load_priors(), folds=FOLDS, workers=min(2, os.cpu_count() or 1))
    FOLDER.mkdir(exist_ok=True)
    for name, content in pictures(points_of_time(observed, predicted), points_of_memory(observed, predicted)):
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
