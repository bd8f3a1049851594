"""Charts as pictures and as figures to zoom into: both show the same values at the same places."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from api.dashboard.charts.chart import Axis, Chart, Line, Mark, ParallelCoordinates, Series
from api.dashboard.charts.drawing import drawing_of
from api.dashboard.charts.parallel import parallel_drawing_of
from api.dashboard.charts.zoom import figure_of
from api.dashboard.rendering import environment
from tests.api.pages import Page

_HOSTILE = "</script><script>alert('x')</script> <b>8</b>"


def _chart(**changed: object) -> Chart:
    given = {
        "id": "steps",
        "title": "Step time",
        "told": "Step time by devices",
        "x": Axis(title="Devices", log=True, ticks=(8, 16, 32)),
        "y": Axis(title="Step time", unit="s", log=True),
        "series": (
            Series(
                name=_HOSTILE,
                kind="line",
                x=(8, 16, 32),
                y=(4.0, None, 1.0),
                low=(3.0, 1.5, 0.5),
                high=(6.0, 2.5, 2.0),
                said=(_HOSTILE, "", "32"),
                links=("/plans/a", "/plans/b", "/plans/c"),
                strong=frozenset({2}),
            ),
        ),
        "marks": (Mark(value=2.0, name="goal"),),
    }
    return Chart(**(given | changed))  # type: ignore[arg-type]


def test_the_figure_has_the_places_of_the_picture() -> None:
    chart = _chart()
    drawing, figure = drawing_of(chart), figure_of(chart)
    layout, (trace,) = figure["layout"], figure["data"]
    width, height = layout["width"], layout["height"]
    assert (width, height) == (drawing.width, drawing.height)
    assert layout["margin"] == {
        "l": drawing.left,
        "r": width - drawing.right,
        "t": drawing.top,
        "b": height - drawing.bottom,
    }
    low, high = layout["yaxis"]["range"]
    # 4 s at the place that the picture has it: log10(4) between the ends of the range.
    share = (0.60206 - low) / (high - low)
    assert drawing.layers[0].shapes[0].y == pytest.approx(
        drawing.bottom - share * (drawing.bottom - drawing.top), abs=0.01
    )
    assert trace["error_y"]["arrayminus"] == [1.0, None, 0.5]
    assert trace["error_y"]["array"] == [2.0, None, 1.0]
    assert trace["customdata"] == ["/plans/a", "/plans/b", "/plans/c"]
    assert trace["marker"]["opacity"][2] == 1
    (line,), (name,) = layout["shapes"], layout["annotations"]
    assert line["y0"] == 2.0
    assert name["y"] == pytest.approx(0.30103)  # annotations go by the logarithm


def test_text_stays_text_in_both() -> None:
    chart = _chart()
    assert figure_of(chart)["data"][0]["hovertext"][0].startswith("&lt;/script&gt;&lt;script&gt;")
    template = environment().from_string('{% from "chart.html" import draw %}{{ draw(chart) }}')
    source = template.render(chart=chart)
    page = Page(source=source)
    assert "<script>alert" not in source
    (embedded,) = re.findall(r'<script type="application/json">(.*?)</script>', source)
    assert json.loads(embedded) == json.loads(json.dumps(figure_of(chart)))
    assert page.attributes("svg", role="group")
    assert [link["href"] for link in page.attributes("a")] == ["/plans/a", "/plans/c"]


def test_bars_stand_on_each_other() -> None:
    series = tuple(Series(name=name, kind="bars", x=(0, 1), y=(1.0, 2.0)) for name in ("weights", "activations"))
    chart = _chart(
        x=Axis(title="Stage", names=("first", "last")), y=Axis(title="Memory", from_zero=True), series=series, marks=()
    )
    figure = figure_of(chart)
    assert [trace["type"] for trace in figure["data"]] == ["bar", "bar"]
    assert figure["layout"]["barmode"] == "stack"
    assert figure["layout"]["xaxis"]["ticktext"] == ["first", "last"]
    assert figure["layout"]["yaxis"]["range"][1] > 4.0  # both of them, on each other


def test_a_line_goes_through_all_axes_and_the_strong_one_lies_on_top() -> None:
    chart = ParallelCoordinates(
        id="axes",
        title="Axes",
        told="Axes of plans",
        axes=(Axis(title="tp", log=True, ticks=(1, 8)), Axis(title="recompute", names=("none", "full"))),
        lines=(
            Line(values=(8, 1), said="best", strong=True),
            Line(values=(1, 0), said="other"),
            Line(values=(1, None), said="half"),
        ),
    )
    drawing = parallel_drawing_of(chart)
    assert [course.line.said for course in drawing.courses] == ["other", "half", "best"]
    (tp, recompute) = drawing.axes
    assert [label for _, label in tp.ticks] == ["1", "8"]
    places = {label: at for at, label in (*tp.ticks, *recompute.ticks)}
    assert drawing.courses[2].path == f"M{tp.x:g} {places['8']:g}L{recompute.x:g} {places['full']:g}"
    assert drawing.courses[1].path == f"M{tp.x:g} {places['1']:g}"


def test_labels_of_an_upright_axis_can_be_read() -> None:
    sizes = tuple(float(size) for size in range(1, 62))
    lines = tuple(Line(values=(size,), said=str(size)) for size in sizes)
    chart = ParallelCoordinates(id="pp", title="pp", told="pp", axes=(Axis(title="pp", ticks=sizes),), lines=lines)
    (axis,) = parallel_drawing_of(chart).axes
    places = [at for at, _ in axis.ticks]
    assert len(places) > 10
    assert all(below - above >= 13 for below, above in pairwise(places))
