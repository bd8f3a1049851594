"""``/v1/models``, ``/v1/clusters``, ``/v1/calibrations``: what a question may name, and what answers rest on."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.auth import KeyFirst, Reader
from api.conditional import body_of, conditional
from api.problems import not_found
from api.routes.common import Named, Served, problems
from api.schemas.answers import (
    CalibrationDetails,
    Calibrations,
    ClusterDetails,
    Clusters,
    ListedCalibration,
    ListedCluster,
    ListedModel,
    ModelDetails,
    Models,
)
from costmodel.calibration.calibration import DEFAULT_CALIBRATION, calibration_names, load_calibration
from costmodel.catalog import folders
from costmodel.catalog.cluster_catalog import cluster_names, named_cluster
from costmodel.catalog.model_catalog import model_names, named_model
from costmodel.errors import UnknownName
from db import records
from planner.stored.records import calibration_record, cluster_record, model_record

router = APIRouter(prefix="/v1", tags=["catalog"], route_class=KeyFirst)


@router.get("/models", response_model=Models, responses=problems(304), summary="The models of the catalog")
def list_models(request: Request, principal: Reader) -> Response:
    """Any other model is given as an object: a Hugging Face ``config.json``, say."""
    return conditional(request, _models(folders.user_dir()))


@router.get("/models/{name}", response_model=ModelDetails, responses=problems(304, 404), summary="A model")
def get_model(request: Request, name: Named, principal: Reader) -> Response:
    """Its shape, parameters and source."""
    try:
        model = model_record(named_model(name))
    except UnknownName as error:
        raise not_found("model", name, error.nearest) from error
    return conditional(request, body_of(ModelDetails(**_of_model(model), id=model.id, spec=model.spec)))


@router.get("/clusters", response_model=Clusters, responses=problems(304), summary="The clusters of the catalog")
def list_clusters(request: Request, principal: Reader) -> Response:
    """Any other cluster is given as an object, ``{"extends": "dgx-h100", ...}`` say."""
    return conditional(request, _clusters(folders.user_dir()))


@router.get("/clusters/{name}", response_model=ClusterDetails, responses=problems(304, 404), summary="A cluster")
def get_cluster(request: Request, name: Named, principal: Reader) -> Response:
    """Its accelerator, tiers and source."""
    try:
        cluster = cluster_record(named_cluster(name))
    except UnknownName as error:
        raise not_found("cluster", name, error.nearest) from error
    return conditional(request, body_of(ClusterDetails(**_of_cluster(cluster), id=cluster.id, spec=cluster.spec)))


@router.get("/calibrations", response_model=Calibrations, responses=problems(304), summary="Calibrations")
def list_calibrations(request: Request, state: Served, principal: Reader) -> Response:
    """Those of the catalog, and those that stored plans were priced under."""
    items = [_of_calibration(found) for found in all_calibrations(state)]
    return conditional(request, body_of(Calibrations(items=items)))


@router.get(
    "/calibrations/{name}", response_model=CalibrationDetails, responses=problems(304, 404), summary="A calibration"
)
def get_calibration(request: Request, name: Named, state: Served, principal: Reader) -> Response:
    """By name (the one of the catalog first) or by id, with every parameter."""
    for found in all_calibrations(state):
        if name in (found.name, found.id):
            details = CalibrationDetails(**_of_calibration(found).model_dump(), spec=found.spec)
            return conditional(request, body_of(details))
    raise not_found("calibration", name)


def all_calibrations(state: Served) -> list[records.Calibration]:
    """Those of the catalog, the current one first, then those that stored plans were priced under, newest first."""
    names = sorted(calibration_names(), key=lambda name: (name != DEFAULT_CALIBRATION, name))
    found = {record.id: record for record in (calibration_record(load_calibration(name)) for name in names)}
    with state.store.reading() as repos:
        return list((found | {record.id: record for record in repos.calibrations.list()}).values())


def _of_calibration(record: records.Calibration) -> ListedCalibration:
    current = calibration_record(load_calibration()).id
    return ListedCalibration(
        id=record.id, name=record.name, retrieved=record.retrieved, source=record.source, current=record.id == current
    )


def _of_model(model: records.Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "params": model.params_total,
        "active_params": model.params_active,
        "num_layers": model.num_layers,
        "source": model.source,
    }


def _of_cluster(cluster: records.Cluster) -> dict[str, Any]:
    names = ListedCluster.model_fields
    return {name: getattr(cluster, name) for name in names}


# Keyed by the user's directory as well, since the catalog depends on it.
@lru_cache(maxsize=4)
def _models(user_dir: object) -> bytes:
    found = (model_record(named_model(name)) for name in model_names())
    return body_of(Models(items=[ListedModel.model_validate(_of_model(model)) for model in found]))


@lru_cache(maxsize=4)
def _clusters(user_dir: object) -> bytes:
    found = (cluster_record(named_cluster(name)) for name in cluster_names())
    return body_of(Clusters(items=[ListedCluster.model_validate(_of_cluster(cluster)) for cluster in found]))
