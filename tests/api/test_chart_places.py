"""Where values lie in a chart, and what is written of them."""

from __future__ import annotations

import math
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dashboard.charts.chart import Axis, Chart, Diagonal, Mark, Series
from api.dashboard.charts.drawing import drawing_of
from api.dashboard.charts.scales import scale_of
from api.dashboard.rendering import environment

_ALONE = '{% from "chart.html" import draw %}{{ draw(chart) }}'
_VALUES = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), max_size=8)
_POSITIVE = st.lists(st.floats(1e-9, 1e12), max_size=8)


def _chart(*series: Series, **how: object) -> Chart:
    fields = {
        "id": "c",
        "title": "Steps",
        "told": "Steps of plans.",
        "x": Axis(title="x"),
        "y": Axis(title="y", unit="s"),
    }
    return Chart(series=series, **(fields | how))  # type: ignore[arg-type]


@given(values=_VALUES, from_zero=st.booleans())
def test_every_value_is_in_sight_and_labels_are_in_order(values: list[float], from_zero: bool) -> None:
    scale = scale_of(Axis(title="x", from_zero=from_zero), values, 60.0, 700.0)
    assert all(60.0 - 0.01 <= scale(value) <= 700.01 for value in values)
    places = [scale(tick) for tick, _ in scale.ticks]
    assert places == sorted(places)
    assert 2 <= len(places) <= 12
    if from_zero:
        assert 60.0 - 0.01 <= scale(0.0) <= 700.01


@given(values=_POSITIVE)
def test_powers_have_equal_distances(values: list[float]) -> None:
    scale = scale_of(Axis(title="x", log=True), values, 60.0, 700.0)
    assert all(60.0 - 0.01 <= scale(value) <= 700.01 for value in values)
    assert len(scale.ticks) >= 2
    assert scale(8.0) - scale(4.0) == pytest.approx(scale(4.0) - scale(2.0), abs=0.05)


def test_ticks_are_round() -> None:
    assert [text for _, text in scale_of(Axis(title="s"), [0.0, 61.0], 0.0, 100.0).ticks] == ["0", "20", "40", "60"]
    by_tens = scale_of(Axis(title="s", log=True), [1.0, 10_000.0], 0.0, 100.0)
    assert [text for _, text in by_tens.ticks] == ["1", "10", "100", "1,000", "10,000"]


def test_bars_stand_on_each_other_and_the_axis_reaches_over_them() -> None:
    axes = {"x": Axis(title="stage", names=("0", "1")), "y": Axis(title="GiB", from_zero=True)}
    lower = Series(name="a", kind="bars", x=(0, 1), y=(40.0, 10.0))
    upper = Series(name="b", kind="bars", x=(0, 1), y=(30.0, None))
    drawing = drawing_of(_chart(lower, upper, marks=(Mark(value=80.0, name="usable"),), **axes))
    first, second = drawing.layers
    assert first.shapes[0].y == pytest.approx(second.shapes[0].y + second.shapes[0].height, abs=0.02)
    assert first.shapes[0].y + first.shapes[0].height == pytest.approx(drawing.bottom, abs=0.02)
    assert first.shapes[0].height / first.shapes[1].height == pytest.approx(4.0, rel=1e-3)
    assert len(second.shapes) == 1
    ((mark, name),) = drawing.marks
    assert name == "usable"
    assert drawing.top <= mark < second.shapes[0].y


def test_a_line_has_holes_where_there_is_no_value() -> None:
    line = Series(name="best", kind="line", x=(1, 2, 3, 4), y=(1.0, 2.0, None, 4.0))
    (layer,) = drawing_of(_chart(line)).layers
    assert re.sub(r"[\d. ]", "", layer.path) == "MLM"
    assert len(layer.shapes) == 3


def test_intervals_and_the_diagonal_lie_on_the_same_scale() -> None:
    points = Series(name="runs", x=(1.0, 10.0), y=(2.0, 8.0), low=(1.0, 5.0), high=(4.0, 12.0))
    both = Axis(title="s", log=True)
    drawing = drawing_of(_chart(points, x=both, y=both, diagonal=Diagonal(name="equal")))
    (layer,) = drawing.layers
    for shape, whisker in zip(layer.shapes, layer.whiskers, strict=True):
        assert whisker.y < shape.y < whisker.y + whisker.height
    assert drawing.diagonal is not None
    x1, y1, x2, y2 = drawing.diagonal
    slope = (y2 - y1) / (x2 - x1)
    # 10 measured and 12 predicted is above the line of equals, 1 and 1 is on it.
    on_line = y1 + slope * (layer.shapes[0].x - x1)
    assert layer.whiskers[0].y + layer.whiskers[0].height == pytest.approx(on_line, abs=0.5)


def test_what_is_said_of_values_is_text() -> None:
    unsafe = "<script>alert(1)</script>"
    points = Series(name=unsafe, x=(1.0,), y=(math.pi,), said=(unsafe,), links=('/plans/"x"',))
    other = Series(name="b", x=(1.0,), y=(1.0,))
    source = environment().from_string(_ALONE).render(chart=_chart(points, other, title=unsafe, told=unsafe))
    assert unsafe not in source
    assert source.count("&lt;script&gt;") >= 4
    assert unescape(re.findall(r'<a href="([^"]*)"', source)[0]) == '/plans/"x"'
