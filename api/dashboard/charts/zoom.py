"""A chart as a figure of Plotly's, for those who zoom into it: the same values in the same box.

Colours are variables of the style sheet (``var(--h0)``); ``zoom.js`` puts in what they are at that moment.
"""

from __future__ import annotations

import math
from typing import Any

from api.dashboard.charts.chart import Axis, Chart, Diagonal, Mark, Series
from api.dashboard.charts.drawing import BAR, BOTTOM, LEFT, RIGHT, TOP, scales_of, thinned
from api.dashboard.charts.scales import Scale

Json = dict[str, Any]

_TEXT, _QUIET, _LINE, _EDGE, _RAISED = (f"var(--{name})" for name in ("text", "quiet", "line", "edge", "raised"))
_FONT = 11.5
_OPACITY = 0.75  # of points, which may lie on each other


def figure_of(chart: Chart) -> Json:
    """``{data, layout}``, in pixels of the picture."""
    x, y = scales_of(chart)
    layout: Json = {
        "width": chart.width,
        "height": chart.height,
        "margin": {"l": LEFT, "r": RIGHT, "t": TOP, "b": BOTTOM},
        "font": {"size": _FONT, "color": _QUIET},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "modebar": {"color": _QUIET, "activecolor": _TEXT, "bgcolor": _RAISED},
        "hoverlabel": {"bgcolor": _RAISED, "bordercolor": _EDGE, "font": {"color": _TEXT}},
        "showlegend": False,
        "barmode": "stack",
        "bargap": 1 - BAR,
        "dragmode": "zoom",
        "hovermode": "closest",
        # What a reader has zoomed to stays when the colours change.
        "uirevision": "kept",
        "xaxis": {**_axis(chart.x, x), "showgrid": False, "linecolor": _EDGE, "showline": True},
        "yaxis": _axis(chart.y, y),
        "shapes": [_line_at(mark) for mark in chart.marks],
        "annotations": [_name_at(mark, y) for mark in chart.marks],
    }
    if chart.diagonal:
        layout["shapes"].append(_diagonal(chart.diagonal, x, y))
    return {"data": [_trace(series) for series in chart.series], "layout": layout}


def _axis(axis: Axis, scale: Scale) -> Json:
    found: Json = {
        "title": {"text": _plain(axis.label), "font": {"color": _TEXT, "size": _FONT}, "standoff": 14},
        "type": "log" if scale.log else "linear",
        "range": [scale.low, scale.high],
        "gridcolor": _LINE,
        "zeroline": False,
        "automargin": False,
        # As the other picture has them: 20,000 and not 20k.
        "exponentformat": "none",
        "separatethousands": True,
        "minorloglabels": "complete",
    }
    # Round values are Plotly's own, so that there are new ones when a part is looked at.
    if axis.names or axis.ticks:
        ticks = thinned(scale.ticks)
        found |= {"tickvals": [tick for tick, _ in ticks], "ticktext": [_plain(label) for _, label in ticks]}
    return found


def _trace(series: Series) -> Json:
    hue = f"var(--h{series.hue})"
    found: Json = {
        "type": "bar" if series.kind == "bars" else "scatter",
        "name": _plain(series.name),
        "x": list(series.x),
        "y": list(series.y),
        "marker": {"color": hue},
    }
    if series.said:
        found |= {"hovertext": [_plain(text) for text in series.said], "hoverinfo": "text"}
    if series.links:
        found["customdata"] = list(series.links)
    if series.kind == "bars":
        return found
    strong = [place in series.strong for place in range(len(series.x))]
    found["mode"] = "markers" if series.kind == "points" else "lines+markers" if series.dots else "lines"
    found["line"] = {"color": hue, "width": 2}
    found["marker"] |= {
        "size": [11 if stands_out else 8 for stands_out in strong],
        "opacity": [1 if stands_out else _OPACITY for stands_out in strong],
        "line": {"color": _TEXT, "width": [1.5 if stands_out else 0 for stands_out in strong]},
    }
    if series.low:
        ends = list(zip(series.low, series.y, series.high, strict=True))
        found["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [None if y is None else high - y for _, y, high in ends],
            "arrayminus": [None if y is None else y - low for low, y, _ in ends],
            "color": hue,
            "thickness": 1.5,
            "width": 0,
        }
    return found


def _line_at(mark: Mark) -> Json:
    line = {"color": _TEXT, "width": 1, "dash": "5px,4px"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": mark.value, "y1": mark.value, "line": line}


def _name_at(mark: Mark, y: Scale) -> Json:
    return {
        "xref": "paper",
        "x": 1,
        # Of a log axis, annotations are placed by the logarithm and shapes by the value.
        "y": math.log10(mark.value) if y.log else mark.value,
        "xanchor": "right",
        "yanchor": "bottom",
        "text": _plain(mark.name),
        "showarrow": False,
        "font": {"color": _TEXT},
    }


def _diagonal(diagonal: Diagonal, x: Scale, y: Scale) -> Json:
    low, high = max(x.low, y.low), min(x.high, y.high)
    start, end = (10.0**low, 10.0**high) if x.log else (low, high)
    line = {"color": _TEXT, "width": 1, "dash": "5px,4px"}
    return {"type": "line", "x0": start, "y0": start, "x1": end, "y1": end, "line": line, "name": _plain(diagonal.name)}


def _plain(text: str) -> str:
    """Text that stays text: Plotly reads some tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", "<br>")
