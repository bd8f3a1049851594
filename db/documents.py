"""What the documents (JSON columns) and words of a row have to hold, as far as anybody reads them.

The planner writes nothing else; this is for rows that come from a file. Fields that are not named here may be there:
a later planner may have more of them, and shows them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from costmodel.errors import InvalidInput
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES, Offload, Plan
from costmodel.spec.validation import build
from db.column_types import is_storable
from db.tables import MEASURED_STATUSES, SEARCH_STATES

Row = Mapping[str, Any]

_DEEPEST = 50
_STATUSES = ("optimal", "feasible", "infeasible", "unknown")
Objective = Literal["step_time", "cost", "fewest_devices"]
_ID = r"^[0-9a-f]{32}$"


class _Document(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _ScenarioWords(_Document):
    id: Annotated[str, Field(pattern=_ID)]
    model: str
    params: int
    cluster: str
    accelerator: str
    devices: int
    global_batch_size: int
    seq_len: int
    precision: str
    optimizer: str
    framework: str
    framework_title: str
    framework_version: str
    not_calibrated: list[str]


class _Question(_Document):
    scenario: _ScenarioWords
    min_free_bytes: int | None
    objective: Objective
    price_per_device_hour: float | None
    pins: list[str]
    forbids: list[str]
    allow: list[str] = []
    min_used: float
    top: int
    max_seconds: float
    seed: int
    explain: bool = False


class _Conflict(_Document):
    rule: str
    meshes: int
    reason: str


class _Infeasibility(_Document):
    conflict: list[_Conflict]
    relaxations: list[dict[str, Any]]


class _SearchFacts(_Document):
    elapsed_s: float
    plans_considered: int
    calibration: str
    calibration_id: Annotated[str, Field(pattern=_ID)]
    calibrated_range: _CalibratedRange | None = None
    calibrated_on: _CalibratedOn | None = None
    cost_model: str
    search_version: str
    meshes: int
    master_solutions: int
    seed: int


class _Step(_Document):
    number: int
    slug: str
    question: str
    verdict: str
    told: str
    numbers: dict[str, bool | int | float | str]


class _Disagreement(_Document):
    axes: list[dict[str, Any]]
    step_time_s: float
    time: dict[str, float]
    memory_bytes: int
    host_bytes_per_node: int = 0
    value: float = 0.0
    fits: bool
    short_of: list[Literal["device", "host"]] = []
    told: str


class _ExplainedPlan(_Document):
    plan: dict[str, Any]
    prediction: dict[str, Any]
    value: float = 0.0


class _Difference(_Document):
    value: float = 0.0
    step_time_s: float
    time: dict[str, float]
    memory_bytes: int
    host_bytes_per_node: int = 0


class _Explanation(_Document):
    objective: Objective = "step_time"
    steps: list[_Step]
    procedure_plan: _ExplainedPlan | None
    disagreements: list[_Disagreement]
    difference: _Difference | None


class _Details(_Document):
    eliminated: dict[str, int]
    infeasibility: _Infeasibility | None
    warnings: list[str]
    search: _SearchFacts
    explanation: _Explanation | None = None
    options: dict[str, list[str]] = {}


class _Utilisation(_Document):
    mfu: float
    hfu: float
    attention: Literal["causal"]
    peak: str
    peak_flops_per_s: float
    parameters: int
    model_flops_per_token: float
    hardware_flops_per_token: float
    model_flops_per_step: float
    model_flops_per_s_per_device: float
    tokens_per_s: float
    mfu_parameters_only: float
    mfu_full_attention: float
    mfu_bf16_peak: float | None


class _CalibratedRange(_Document):
    inside: bool | None
    beyond: list[str]


class _CalibratedOn(_Document):
    text: str
    own_runs: bool | None
    rows: list[dict[str, Any]]


class _MemoryDetails(_Document):
    peak_interval_bytes: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    verdict: Literal["fits", "at_risk", "too_big"] | None = None
    reserved_bytes: int
    device_bytes: int | None = None
    host_bytes_per_node: int
    host_memory_bytes_per_node: int | None


class _PredictionDetails(_Document):
    utilisation: _Utilisation | None = None
    calibrated_range: _CalibratedRange | None = None
    memory: _MemoryDetails | None = None


class _Prediction(_Document):
    time: dict[str, float]
    memory_stages: Annotated[list[dict[str, int]], Field(min_length=1)]
    provenance: Literal["analytic", "calibrated", "measured"]
    details: _PredictionDetails | None


class _Named(_Document):
    name: str


# What is told of a step names these figures.
_FIGURES = {"candidates": ("legal", "meshes"), "incumbents": ("plans",), "listed": ("decisions",)}


def check_row(table: str, row: Row) -> None:
    """Accept a row of a table that everybody who reads it can read.

    Raises:
        InvalidInput: a field holds something else; it is named as ``table.column``, with the place inside a document.
    """
    for name, value in row.items():
        if isinstance(value, dict | list):
            _check_json(f"{table}.{name}", value, _DEEPEST)
    check = _CHECKS.get(table)
    if check is not None:
        check(row)


def _check_json(place: str, value: Any, depth: int) -> None:
    """Both databases, and all who print it, can hold it."""
    if depth == 0:
        raise InvalidInput(place, "...", f"at most {_DEEPEST} levels are expected")
    if isinstance(value, dict):
        for name, part in value.items():
            _check_json(place, name, depth)
            _check_json(f"{place}.{name}", part, depth - 1)
    elif isinstance(value, list):
        for part in value:
            _check_json(place, part, depth - 1)
    elif isinstance(value, float) and not isfinite(value):
        raise InvalidInput(place, value, "it must be finite")
    elif isinstance(value, str) and not is_storable(value):
        raise InvalidInput(place, value, "it must not contain NUL characters or lone surrogates")


def _word(table: str, row: Row, column: str, known: tuple[str, ...]) -> None:
    if row[column] not in known:
        raise InvalidInput(f"{table}.{column}", row[column], f"one of {', '.join(known)} is expected")


def _dict(table: str, row: Row, *columns: str) -> None:
    for column in columns:
        if not isinstance(row[column], dict):
            raise InvalidInput(f"{table}.{column}", row[column], "an object is expected")


def _at_least(least: int, table: str, row: Row, *columns: str) -> None:
    for column in columns:
        if row[column] < least:
            raise InvalidInput(f"{table}.{column}", row[column], f"at least {least} is expected")


def _given(table: str, row: Row, *columns: str) -> None:
    for column in columns:
        if row.get(column) is None:
            raise InvalidInput(f"{table}.{column}", None, f"it is needed when state is {row['state']}")


def _check_named(table: str) -> Callable[[Row], None]:
    def check(row: Row) -> None:
        _dict(table, row, "spec")
        build(_Named, row["spec"], f"{table}.spec")

    return check


def _check_scenario(row: Row) -> None:
    _dict("scenarios", row, "spec")
    _at_least(1, "scenarios", row, "devices", "global_batch_size", "seq_len")


def _check_search(row: Row) -> None:
    table = "searches"
    _word(table, row, "state", SEARCH_STATES)
    _word(table, row, "objective", get_args(Objective))
    _dict(table, row, "question")
    build(_Question, row["question"], f"{table}.question")
    _at_least(0, table, row, "attempt", "seed")
    _at_least(1, table, row, "top")
    if row["state"] in ("done", "failed", "cancelled"):
        _given(table, row, "finished_at")
    if row["state"] == "failed":
        _given(table, row, "problem")
        _dict(table, row, "problem")
    if row["state"] == "done":
        _given(table, row, "status", "proven_top_k", "plans_within", "elapsed_s", "details")
        _word(table, row, "status", _STATUSES)
        build(_Details, row["details"], f"{table}.details")


def _check_event(row: Row) -> None:
    _dict("search_events", row, "data")
    _at_least(1, "search_events", row, "sequence")
    for name in _FIGURES.get(row["kind"], ()):
        if not isinstance(row["data"].get(name), int | float):
            raise InvalidInput(f"search_events.data.{name}", row["data"].get(name), "a number is expected")


def _check_plan(row: Row) -> None:
    table = "plans"
    _word(table, row, "cp_comm_type", CP_COMM_TYPES)
    _word(table, row, "schedule", SCHEDULES)
    _word(table, row, "recompute", RECOMPUTES)
    _word(table, row, "offload", get_args(Offload))
    if row["step_time_s"] <= 0:
        raise InvalidInput(f"{table}.step_time_s", row["step_time_s"], "it must be above 0")


def _check_document(row: Row) -> None:
    build(Plan, row["plan"], "plan_documents.plan")


def _check_prediction(row: Row) -> None:
    # A file of an older planner has no details.
    found = {name: row.get(name) for name in _Prediction.model_fields}
    build(_Prediction, found, "predictions")


def _check_search_plan(row: Row) -> None:
    _at_least(1, "search_plans", row, "rank")


def _check_measurement(row: Row) -> None:
    _word("measurements", row, "status", MEASURED_STATUSES)
    _dict("measurements", row, "environment")


_CHECKS: Mapping[str, Callable[[Row], None]] = {
    "models": _check_named("models"),
    "clusters": _check_named("clusters"),
    "calibrations": _check_named("calibrations"),
    "scenarios": _check_scenario,
    "searches": _check_search,
    "search_events": _check_event,
    "plans": _check_plan,
    "plan_documents": _check_document,
    "predictions": _check_prediction,
    "search_plans": _check_search_plan,
    "measurements": _check_measurement,
}
