"""The pipeline's timeline as a picture: as large for any plan, and true to what the devices do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from api.dashboard.plans.timeline import ORDER, Pieces, Step, Window, window_of
from api.dashboard.plans.timeline_drawing import WIDTH, height_of, picture_of

FORWARD, BACKWARD = ORDER.index("f"), ORDER.index("b")
_BOX = re.compile(r"M([-\d.]+) ([-\d.]+)h([-\d.]+)v(-?[-\d.]+)h-[\d.]+z")


def _step(devices: int, pieces: int) -> Step:
    """Forward for one unit, backward for two, and a wait of one, over and over."""
    start = np.arange(pieces) // 2 * 4.0 + np.arange(pieces) % 2
    kind = np.where(np.arange(pieces) % 2, BACKWARD, FORWARD)
    rows = Pieces(
        start_s=start,
        end_s=start + 1.0 + np.arange(pieces) % 2,
        kind=kind,
        batch=np.arange(pieces) // 2,
        chunk=np.zeros(pieces, dtype=np.int64),
    )
    step = float(rows.end_s[-1])
    return Step(devices=(rows,) * devices, step_time_s=step, left_out=0, left_out_s=0.0, chunked=False)


@pytest.mark.parametrize(("devices", "pieces"), [(1, 40_000), (16, 16_384), (16, 400), (126, 1_000)])
def test_a_picture_is_small_for_any_plan(devices: int, pieces: int) -> None:
    picture = picture_of(_step(devices, pieces), Window())
    assert sum(len(path) for row in picture.rows for path in row.paths.values()) < 260_000
    assert sum(len(row.shapes) for row in picture.rows) <= 700
    assert picture.height == height_of(devices)
    assert picture.height < 1_000


def test_columns_show_the_share_of_each_kind() -> None:
    picture = picture_of(_step(1, 40_000), Window())
    assert picture.summed
    (row,) = picture.rows
    area = {
        kind: sum(float(width) * abs(float(height)) for _, _, width, height in _BOX.findall(path))
        for kind, path in row.paths.items()
    }
    whole = (picture.right - picture.left) * picture.row_height
    assert area["f"] / whole == pytest.approx(0.25, abs=0.03)
    assert area["b"] / whole == pytest.approx(0.50, abs=0.03)


def test_every_piece_is_drawn_and_named_in_a_narrow_window() -> None:
    step = _step(2, 400)
    picture = picture_of(step, Window(start=50.0, end=52.0))
    first, *_, last = picture.rows[1].shapes
    assert not picture.summed
    assert first.x >= picture.left - 0.01
    assert last.x + last.width <= picture.right + 0.01 <= WIDTH
    assert re.fullmatch(r"(forward|backward) of micro-batch \d+: [\d.]+ to [\d.]+ s", first.said)
    busy = sum(shape.width for shape in picture.rows[0].shapes)
    assert busy / (picture.right - picture.left) == pytest.approx(0.75, abs=0.15)


def test_moves_stay_inside_the_step() -> None:
    step = _step(2, 40)
    whole = {move.name: move.window for move in picture_of(step, Window()).moves}
    assert whole == {"earlier": "", "later": "", "zoom in": "25-75", "zoom out": "", "whole step": ""}
    end = {move.name: move.window for move in picture_of(step, Window(start=90.0, end=100.0)).moves}
    assert end == {"earlier": "85-95", "later": "", "zoom in": "92.5-97.5", "zoom out": "85-100", "whole step": "0-100"}
    for window in (*end.values(), *(part[2] for part in picture_of(step, Window(start=90.0, end=100.0)).parts)):
        assert not window or window_of(window) is not None
    assert window_of("0-0.0001") is None
