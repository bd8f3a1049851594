"""What is given and what was found, as the store keeps it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from costmodel.calibration.calibration import Calibration
from costmodel.fingerprint import calibration_id, cluster_id, model_id, scenario_id
from costmodel.scenario import Scenario
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.model import ModelSpec
from db import records

Json = dict[str, Any]

# Of an answer, what has columns of its own or is told by the question.
_ELSEWHERE = frozenset(
    {"status", "scenario", "objective", "best", "bound", "gap", "proven_top_k", "plans_within", "plans"}
)


def model_record(model: ModelSpec) -> records.Model:
    """A model with the numbers that lists show."""
    params = model.params
    return records.Model(
        id=model_id(model),
        name=model.name,
        params_total=params.total,
        params_active=params.active,
        num_layers=model.num_layers,
        source=model.source,
        spec=model.model_dump(mode="json"),
    )


def cluster_record(cluster: ClusterSpec) -> records.Cluster:
    """A cluster with the facts that lists show."""
    return records.Cluster(
        id=cluster_id(cluster),
        name=cluster.name,
        accelerator=cluster.accelerator.name,
        devices_per_node=cluster.devices_per_node,
        max_devices=cluster.max_devices,
        price_per_device_hour=cluster.price_per_device_hour,
        source=cluster.source,
        spec=cluster.model_dump(mode="json"),
    )


def calibration_record(calibration: Calibration) -> records.Calibration:
    """A calibration with where it comes from."""
    return records.Calibration(
        id=calibration_id(calibration),
        name=calibration.name,
        retrieved=calibration.retrieved,
        source=calibration.source,
        spec=calibration.model_dump(mode="json"),
    )


def scenario_record(scenario: Scenario) -> records.Scenario:
    """A scenario; its ``spec`` is what model, cluster and the columns do not say."""
    work = scenario.workload
    return records.Scenario(
        id=scenario_id(scenario),
        model=model_record(scenario.model),
        cluster=cluster_record(scenario.cluster),
        devices=scenario.devices,
        global_batch_size=work.global_batch_size,
        seq_len=work.seq_len,
        precision=work.precision.name,
        optimizer=work.optimizer.name,
        framework=scenario.framework.name,
        framework_version=scenario.framework.version,
        min_free_bytes=scenario.min_free_bytes,
        spec=scenario.model_dump(mode="json", exclude={"model", "cluster", "calibration"}),
    )


def scenario_of_records(given: records.Scenario, calibration: records.Calibration) -> Scenario:
    """The scenario that was stored, under a calibration that was stored."""
    parts = {"model": given.model.spec, "cluster": given.cluster.spec, "calibration": calibration.spec}
    return Scenario.model_validate({**given.spec, **parts})


def scenario_of_plan(given: records.Scenario, calibration: records.Calibration, plan: Json) -> Scenario:
    """The scenario that a stored plan works under.

    That is the one it was asked under, but for its batch: where a tolerance was given, a plan may have another one.
    """
    asked = scenario_of_records(given, calibration)
    own = {field: plan[field] for field in ("global_batch_size", "seq_len")}
    return asked.model_copy(update={"workload": asked.workload.model_copy(update=own)})


def plan_record(
    plan_id: str, scenario: str, calibration: str, version: str, plan: Json, prediction: Json, now: datetime
) -> records.Plan:
    """A plan with its prediction."""
    return records.Plan(
        id=plan_id,
        scenario_id=scenario,
        calibration_id=calibration,
        cost_model_version=version,
        plan=plan,
        prediction=prediction,
        created_at=now,
    )


def result_of(answer: Json, now: datetime) -> records.SearchResult:
    """What a search found, from its answer."""
    scenario, search = answer["scenario"]["id"], answer["search"]
    # They follow from plan and scenario, so they are the answer's rather than the plan's.
    options = {entry["id"]: entry["options"] for entry in answer["plans"]}
    return records.SearchResult(
        status=answer["status"],
        best=answer["best"],
        bound=answer["bound"],
        gap=answer["gap"],
        proven_top_k=answer["proven_top_k"],
        plans_within=answer["plans_within"],
        elapsed_s=search["elapsed_s"],
        details={key: value for key, value in answer.items() if key not in _ELSEWHERE} | {"options": options},
        plans=[
            plan_record(
                entry["id"],
                scenario,
                search["calibration_id"],
                search["cost_model"],
                entry["plan"],
                entry["prediction"],
                now,
            )
            for entry in answer["plans"]
        ],
    )
