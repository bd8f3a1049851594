"""From a request's body to a question. Names are looked up in the catalog; nothing that a request says is opened."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from api.schemas.requests import PlanSpace, PredictionItem, ScenarioFields, SearchBody, StudyBody
from api.schemas.text import LONGEST_LINE, LONGEST_NAME, PRINTABLE, is_printable
from api.settings import Settings
from costmodel.calibration.calibration import named_calibration
from costmodel.catalog.cluster_catalog import named_cluster, parse_cluster
from costmodel.catalog.model_catalog import named_model, parse_model
from costmodel.errors import InvalidInput
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.model import ModelSpec
from planner.check.question import CheckQuestion
from planner.question import Question
from planner.resolving import request_of
from planner.search.constraints import Constraints
from planner.search.request import SearchRequest
from planner.studying.settings import StudySettings
from planner.studying.shallower import with_layers


def search_request(body: SearchBody, settings: Settings) -> SearchRequest:
    """The request to the search.

    Raises:
        InvalidInput: a field is unusable.
    """
    return _request(
        body,
        settings,
        objective=body.objective,
        price_per_device_hour=body.price_per_device_hour,
        top=body.top,
        explain=body.explain,
        min_devices=body.min_devices,
        max_step_time_s=body.max_step_time_s,
        batch_tolerance=body.batch_tolerance,
        pareto=body.pareto,
        shortlist=body.shortlist,
    )


def study_request(body: StudyBody, settings: Settings) -> SearchRequest:
    """The request whose plans a study is about.

    Raises:
        InvalidInput: a field is unusable.
    """
    request = _request(body, settings)
    return request if body.layers is None else with_layers(request, body.layers)


def study_settings(body: StudyBody) -> StudySettings:
    """How the trials of a study are run."""
    names = [field.name for field in fields(StudySettings) if field.name in StudyBody.model_fields]
    return StudySettings(**{name: getattr(body, name) for name in names})


def _request(body: PlanSpace, settings: Settings, **more: Any) -> SearchRequest:
    check_deadline(body.max_seconds, settings)
    _check_conditions("pins", body.pins)
    _check_conditions("forbids", body.forbids)
    return request_of(
        Question(
            **_given(body),
            devices=body.devices,
            global_batch_size=body.global_batch_size,
            seq_len=body.seq_len,
            pins=tuple(body.pins),
            forbids=tuple(body.forbids),
            allow=tuple(body.allow),
            min_used=body.min_used,
            max_seconds=body.max_seconds,
            seed=body.seed,
            **more,
        )
    )


def check_deadline(max_seconds: float, settings: Settings) -> None:
    """Accepts a deadline that this server allows.

    Raises:
        InvalidInput: it is later.
    """
    if max_seconds > settings.most_seconds:
        expected = f"at most {settings.most_seconds:g} are allowed by this server"
        raise InvalidInput("max_seconds", max_seconds, expected)


def check_question(item: PredictionItem) -> CheckQuestion:
    """The question whether a plan is legal, fits, and how long it takes.

    Raises:
        InvalidInput: a name is unknown, or an object is none of a model or a cluster.
    """
    return CheckQuestion(
        plan="plan",
        **_given(item),
        devices=item.devices,
        global_batch_size=item.global_batch_size,
        seq_len=item.seq_len,
        # A batch gets verdicts; what else would do is a search, and those run in processes of their own.
        best=False,
        nearest=False,
    )


def _given(body: ScenarioFields) -> dict[str, Any]:
    fields = ("precision", "optimizer", "gradient_dtype", "framework", "framework_version", "min_free_gib")
    # A plan may say itself what a search has a default for, so what was not sent is not passed on.
    sent = {name: getattr(body, name) for name in fields if name in body.model_fields_set}
    if body.calibration is not None:
        sent["calibration"] = named_calibration(body.calibration)
    return {"model": _model(body.model), "cluster": _cluster(body.cluster), **sent}


def _check_conditions(field: str, conditions: list[str]) -> None:
    """Every condition by itself, so that an error says which one it is about."""
    for place, condition in enumerate(conditions):
        try:
            Constraints.parse([condition], [])
        except InvalidInput as error:
            error.field = f"{field}[{place}]"
            raise


def _model(given: str | dict[str, Any]) -> ModelSpec:
    if isinstance(given, str):
        return named_model(given)
    try:
        model = parse_model(given)
    except InvalidInput as error:
        # The reader names fields as the file has them; here they lie one level deeper.
        if error.field != "model":
            error.field = f"model.{error.field}"
        raise
    # A config.json may say its name elsewhere than in "name".
    key = next((key for key, value in given.items() if value == model.name), "name")
    _check_text(f"model.{key}", model.name)
    _check_text("model.source", model.source, LONGEST_LINE)
    return model


def _cluster(given: str | dict[str, Any]) -> ClusterSpec:
    if isinstance(given, str):
        return named_cluster(given)
    cluster = parse_cluster(given)
    _check_text("cluster.name", cluster.name)
    _check_text("cluster.source", cluster.source, LONGEST_LINE)
    _check_text("cluster.accelerator.name", cluster.accelerator.name)
    return cluster


def _check_text(field: str, text: str, longest: int = LONGEST_NAME) -> None:
    """Of what is stored: indexes hold no long texts, and lists show no others than printable ones."""
    if len(text) > longest or not is_printable(text):
        raise InvalidInput(field, text, f"{PRINTABLE}, at most {longest}")
