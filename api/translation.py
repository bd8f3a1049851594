"""From what is stored or judged to what is answered, and from what is told to what is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from api.schemas.answers import (
    ListedMeasurement,
    ListedPlan,
    ListedSearch,
    Measurement,
    PlanAxes,
    PlanFields,
    PlanFigures,
    Prediction,
    PredictionResult,
    StoredPlan,
    Violation,
)
from api.schemas.requests import MeasurementBody
from db import records
from planner.stored.compared import beside_predicted

_MEASURED = tuple(name for name in ListedMeasurement.model_fields if name in records.Measurement.__dataclass_fields__)


def listed_search(search: records.Search) -> ListedSearch:
    """A search of a list on the wire."""
    found = {name: getattr(search, name) for name in ListedSearch.model_fields if name != "per"}
    per_sequence = search.question.get("batch_tolerance") and search.objective != "fewest_devices"
    return ListedSearch(**found, per="sequence" if per_sequence else "step")


def stored_plan(plan: records.Plan) -> StoredPlan:
    """A plan of the store on the wire."""
    return StoredPlan.model_validate(
        {
            "id": plan.id,
            "scenario_id": plan.scenario_id,
            "calibration_id": plan.calibration_id,
            "cost_model": plan.cost_model_version,
            "created_at": plan.created_at,
            "plan": plan.plan,
            "prediction": plan.prediction,
        }
    )


def listed_plan(plan: records.ListedPlan) -> ListedPlan:
    """A plan of a list on the wire."""
    return ListedPlan(
        id=plan.id,
        scenario_id=plan.scenario_id,
        calibration_id=plan.calibration_id,
        cost_model=plan.cost_model_version,
        model=plan.model,
        cluster=plan.cluster,
        accelerator=plan.accelerator,
        devices=plan.devices,
        global_batch_size=plan.global_batch_size,
        seq_len=plan.seq_len,
        precision=plan.precision,
        framework=plan.framework,
        axes=PlanAxes(**plan.axes),
        figures=PlanFigures(**plan.figures),
        created_at=plan.created_at,
    )


def prediction_result(answer: dict[str, Any], plan_id: str | None) -> PredictionResult:
    """The answer of a check; ``plan_id`` is where it is stored."""
    found: dict[str, Any] = {
        "status": answer["status"],
        "plan": PlanFields.model_validate(answer["plan"]),
        "violations": [Violation(rule=entry["rule"], reason=entry["reason"]) for entry in answer["violations"]],
        "warnings": answer["warnings"],
        "short_of": answer["memory"]["short_of"],
    }
    if plan_id is not None:
        found |= {"plan_id": plan_id, "prediction": Prediction.model_validate(answer["prediction"])}
    return PredictionResult(**found)


def measurement_record(body: MeasurementBody, created_by: str | None, moment: datetime) -> records.Measurement:
    """What is stored of what somebody tells."""
    return records.Measurement(
        id=uuid4().hex,
        plan_id=body.plan_id,
        status=body.status,
        step_time_s=body.step_time_s,
        tokens_per_s_per_device=body.tokens_per_s_per_device,
        peak_allocated_bytes=body.peak_allocated_bytes,
        peak_reserved_bytes=body.peak_reserved_bytes,
        steps=body.steps,
        job_id=body.job_id,
        environment=body.environment,
        note=body.note,
        log_tail=body.log_tail,
        created_by=created_by,
        measured_at=body.measured_at or moment,
        created_at=moment,
    )


def measurement(measured: records.Measurement, plan: records.Plan) -> Measurement:
    """A measurement with its plan's prediction."""
    return Measurement(**_fields(measured, plan), environment=measured.environment, log_tail=measured.log_tail)


def listed_measurement(measured: records.Measurement, plan: records.Plan) -> ListedMeasurement:
    """The same in a list, without what may be long."""
    return ListedMeasurement(**_fields(measured, plan))


def _fields(measured: records.Measurement, plan: records.Plan) -> dict[str, Any]:
    """Beside what was predicted; a throughput alone is turned into the step time that it means."""
    return {name: getattr(measured, name) for name in _MEASURED} | beside_predicted(measured, plan.prediction)
