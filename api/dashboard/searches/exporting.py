"""The plans of an answer as CSV: a row for each, every number in its unit without rounding."""

from __future__ import annotations

import csv
import io
from typing import Any

Json = dict[str, Any]


def csv_of(plans: list[Json]) -> str:
    """Rank and id, the axes of the plan, its prediction, and the terms of its time as ``time.TERM_s``."""
    rows = [_row(entry) for entry in plans]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(entry: Json) -> Json:
    prediction, memory = entry["prediction"], entry["prediction"]["memory"]
    low, high = prediction["step_time_interval_s"]
    return {
        "rank": entry["rank"],
        "plan_id": entry["id"],
        "step_time_s": prediction["step_time_s"],
        "step_time_low_s": low,
        "step_time_high_s": high,
        **{name: prediction[name] for name in ("tokens_per_s_per_device", "mfu", "hfu", "provenance")},
        "peak_bytes": memory["peak_bytes"],
        "usable_bytes": memory["usable_bytes"],
        **{name: _cell(value) for name, value in entry["plan"].items()},
        **{f"time.{term}_s": value for term, value in prediction["time"].items()},
    }


def _cell(value: Any) -> Any:
    """Lists as their parts with spaces between them; nested ones with a bar."""
    if not isinstance(value, list):
        return value
    return ("|" if value and isinstance(value[0], list) else " ").join(str(_cell(part)) for part in value)
