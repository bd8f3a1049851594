"""A curve as charts over the device counts: step time, cost of tokens, tokens per device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from api.dashboard.charts.chart import Axis, Chart, Series
from api.dashboard.scaling.points import mesh_of
from api.dashboard.words import number, seconds

Json = dict[str, Any]

_IDEAL_HUE = 7
_MOST_LABELS = 12
_LOW = 220  # pixels, of charts that say less


def pictures_of(points: list[Json]) -> list[Chart]:
    """The charts of the points that have a plan; none where fewer than two have one."""
    known = [point for point in points if point["plan"]]
    return [_time(known), _cost(known), _tokens(known)] if len(known) > 1 else []


def _time(points: list[Json]) -> Chart:
    counts = _counts(points)
    times = [point["prediction"]["step_time_s"] for point in points]
    ends = [point["prediction"]["step_time_interval_s"] for point in points]
    best = replace(
        _best(points, times, [f"{seconds(time)} s" for time in times]),
        name="best plan, with its interval",
        low=tuple(low for low, _ in ends),
        high=tuple(high for _, high in ends),
    )
    ideal = Series(
        name=f"ideal: {number(counts[0])} devices' time shared out",
        kind="line",
        x=counts,
        y=tuple(times[0] * counts[0] / count for count in counts),
        hue=_IDEAL_HUE,
    )
    return Chart(
        id="step-time",
        title="Step time",
        told=f"Step time from {seconds(times[0])} s on {number(counts[0])} devices to {seconds(times[-1])} s on "
        f"{number(counts[-1])}, against ideal scaling.",
        x=_devices(counts),
        y=Axis(title="Step time", unit="s", log=True),
        series=(ideal, best),
    )


def _cost(points: list[Json]) -> Chart:
    """By the price where there is one, else in hours of devices."""
    priced = all(point["cost_per_1e9_tokens"] is not None for point in points)
    name = "cost_per_1e9_tokens" if priced else "device_hours_per_1e9_tokens"
    unit = "the currency of the price" if priced else "device-hours"
    values = [point[name] for point in points]
    return Chart(
        id="cost",
        title=f"Cost of 1e9 tokens, in {unit}",
        told=f"Cost of 1e9 tokens in {unit}, from {values[0]:,.1f} to {values[-1]:,.1f}.",
        x=_devices(_counts(points)),
        y=Axis(title="Cost" if priced else "Device-hours", from_zero=True),
        height=_LOW,
        series=(_best(points, values, [f"{value:,.1f} for 1e9 tokens" for value in values], hue=1),),
    )


def _tokens(points: list[Json]) -> Chart:
    # Of the devices at hand: those that a plan leaves idle cost too.
    rates = [point["tokens_per_s"] / point["devices"] for point in points]
    said = [
        f"{number(rate)} tokens/s/device, {point['efficiency']:.1%} of the first"
        for point, rate in zip(points, rates, strict=True)
    ]
    return Chart(
        id="tokens",
        title="Tokens per second and device at hand",
        told=f"Tokens per second and device at hand, from {number(rates[0])} to {number(rates[-1])}.",
        x=_devices(_counts(points)),
        y=Axis(title="Tokens/s/device", from_zero=True),
        height=_LOW,
        series=(_best(points, rates, said, hue=2),),
    )


def _counts(points: list[Json]) -> tuple[float, ...]:
    return tuple(point["devices"] for point in points)


def _best(points: list[Json], values: list[float], figures: list[str], hue: int = 0) -> Series:
    """A figure of the best plan at every count, with what is said of each."""
    return Series(
        name="best plan",
        kind="line",
        x=_counts(points),
        y=tuple(values),
        said=tuple(
            f"{number(point['devices'])} devices: {figure}; {mesh_of(point['plan'])}"
            for point, figure in zip(points, figures, strict=True)
        ),
        links=tuple(f"/plans/{point['plan_id']}" for point in points),
        hue=hue,
    )


def _devices(counts: tuple[float, ...]) -> Axis:
    """At equal distances for equal factors; labels only where there is room beside the one before."""
    room = math.log(counts[-1] / counts[0]) / _MOST_LABELS
    labelled: list[float] = []
    for count in counts:
        if not labelled or math.log(count / labelled[-1]) >= room:
            labelled.append(count)
    return Axis(title="Devices", log=True, ticks=tuple(labelled))
