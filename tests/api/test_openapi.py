"""The OpenAPI document: committed, complete, with examples that work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.settings import Settings
from tests.api.asking import ask

_COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The application's."""
    return create_app(Settings(needs_keys=False)).openapi()


def _operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method} {path}", found) for path, methods in document["paths"].items() for method, found in methods.items()
    ]


def test_the_committed_document_is_the_applications(document: dict[str, Any]) -> None:
    committed = json.loads(_COMMITTED.read_text(encoding="utf-8"))

    assert committed == json.loads(json.dumps(document)), "docs/openapi.json is not up to date: run make openapi"


def test_a_server_serves_it(document: dict[str, Any], client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == json.loads(json.dumps(document))


def test_every_operation_says_what_it_does(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in _operations(document)]

    assert len(set(names)) == len(names)
    tags = {tag["name"] for tag in document["tags"]}
    for where, operation in _operations(document):
        assert operation["summary"], where
        assert operation["description"], where
        assert set(operation["tags"]) <= tags, where
        for parameter in operation.get("parameters", ()):
            assert {"type": "null"} not in parameter["schema"].get("anyOf", ()), (where, parameter["name"])


def test_every_field_of_a_request_says_what_it_is_or_has_a_default(document: dict[str, Any]) -> None:
    for name in ("SearchBody", "StudyBody", "PredictionItem", "PredictionsBody", "MeasurementBody"):
        schema = document["components"]["schemas"][name]
        assert schema["additionalProperties"] is False
        for field in schema.get("required", ()):
            assert schema["properties"][field].get("description") or field == "items", (name, field)


def test_every_operation_with_a_body_has_examples(document: dict[str, Any]) -> None:
    bodies = [operation for _, operation in _operations(document) if "requestBody" in operation]

    assert len(bodies) == 4
    for operation in bodies:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["examples"]


def test_the_examples_of_searches_work(document: dict[str, Any], client: httpx.Client) -> None:
    for example in document["components"]["schemas"]["SearchBody"]["examples"]:
        answer = ask(client, example).json()
        assert answer["state"] == "done"
        assert answer["plans"], answer["infeasibility"]


def test_the_examples_of_studies_work(document: dict[str, Any], client: httpx.Client) -> None:
    for example in document["components"]["schemas"]["StudyBody"]["examples"]:
        assert client.post("/v1/studies", json=example).json()["state"] == "preparing"


def test_the_examples_of_predictions_and_measurements_work(document: dict[str, Any], client: httpx.Client) -> None:
    schemas = document["components"]["schemas"]
    for example in schemas["PredictionsBody"]["examples"]:
        results = client.post("/v1/predictions", json=example).json()["items"]
        assert [result["status"] for result in results] == ["fits"] * len(results)
        # The example's own id is of no plan: there is none that every database has.
        for measured in schemas["MeasurementBody"]["examples"]:
            response = client.post("/v1/measurements", json=measured | {"plan_id": results[0]["plan_id"]})
            assert response.status_code == 201
