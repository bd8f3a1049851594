"""The OpenAPI document: what FastAPI writes, and what it can't know.

That is the headers of responses, and that a parameter which may be left out can't be null. What many operations share
(problems, headers) is said once, under ``components``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.idempotency import REPLAYED
from api.problems import MEDIA_TYPE, problem_object

Json = dict[str, Any]

DESCRIPTION = """\
Ranked, feasible training plans for a model on a cluster.

* A question is answered at once when it was answered before; otherwise with 202 and a `Location` to poll (`ETag`), to
  listen to (`/events`), or to wait for in the first place (`Prefer: wait=30`). "Nothing fits" is an answer: 200 with
  the reasons.
* Errors are RFC 9457 problems: `type` is for programs, `errors` points at each wrong field. Unknown fields are refused.
* Lists have `limit` and `cursor`; `next` of a page is the `cursor` of the next one.
* A POST with an `Idempotency-Key` may be sent again.
* A server that was started with API keys wants one as Bearer token, or as the password of Basic. `read` looks, `write`
  also asks and tells, `admin` also cancels what others asked.
"""

_TAGS = {
    "searches": "Questions and their answers.",
    "plans": "Stored plans, each with its prediction. They never change.",
    "predictions": "What becomes of plans that you have already.",
    "measurements": "What really happened, beside what was predicted.",
    "studies": "Plans that workers try on real machines, predicted beside measured.",
    "catalog": "What a question may name, and what answers rest on.",
    "health": "For whoever watches the server.",
}
_TEXT: Json = {"type": "string"}
_SECONDS: Json = {"type": "integer", "minimum": 0}
_HEADERS: dict[str, tuple[str, Json]] = {
    "X-Request-Id": ("Yours, or one of the server's; its log has it.", _TEXT),
    "ETag": ("For `If-None-Match`.", _TEXT),
    "Cache-Control": ("`immutable` once it can't change any more.", _TEXT),
    "Location": ("Path of the thing.", {"type": "string", "format": "uri-reference"}),
    "Retry-After": ("Seconds after which to ask again.", _SECONDS),
    "Preference-Applied": ("`wait=N`, when the request was waited for.", _TEXT),
    REPLAYED: ("`true`: an earlier request with this `Idempotency-Key` was answered so.", _TEXT),
    "WWW-Authenticate": ("Bearer, or Basic with the API key as password.", _TEXT),
}
_LOCATED = frozenset({"create_search", "cancel_search", "create_measurement", "create_study", "cancel_study"})
_OF_PROBLEMS = {"401": ["WWW-Authenticate"], "409": ["Retry-After"], "503": ["Retry-After"]}
_IF_NONE_MATCH: Json = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The `ETag` of the body that the client has; answered with 304 while it is the same.",
    "schema": {"type": "string"},
}


def openapi_of(app: FastAPI) -> Callable[[], Json]:
    """What to put in the place of ``app.openapi``."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            app.openapi_schema = _completed(document)
        return app.openapi_schema

    return openapi


def _completed(document: Json) -> Json:
    document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
    components = document["components"]
    components["headers"] = {name: {"description": text, "schema": schema} for name, (text, schema) in _HEADERS.items()}
    components["responses"] = {}
    for path in document["paths"].values():
        for method, operation in path.items():
            _complete(method, operation, components["responses"])
    return document


def _complete(method: str, operation: Json, shared: Json) -> None:
    parameters = operation.setdefault("parameters", [])
    for parameter in parameters:
        parameter["schema"] = _not_null(parameter["schema"])
    responses = operation["responses"]
    if "304" in responses:
        parameters.append(_IF_NONE_MATCH)
    if not parameters:
        del operation["parameters"]
    repeatable = any(parameter["name"] == "Idempotency-Key" for parameter in parameters)
    for status, response in responses.items():
        if MEDIA_TYPE in response.get("content", {}):
            responses[status] = _shared_problem(status, response, shared)
        else:
            names = _headers_of(method, operation, status, repeatable=repeatable)
            response["headers"] = _references(names) | response.get("headers", {})


def _shared_problem(status: str, response: Json, shared: Json) -> Json:
    example = problem_object(int(status), response["description"])
    name = str(example["type"])
    shared[name] = {
        "description": response["description"],
        "headers": _references(["X-Request-Id", *_OF_PROBLEMS.get(status, ())]),
        "content": {MEDIA_TYPE: {**response["content"][MEDIA_TYPE], "example": example}},
    }
    return {"$ref": f"#/components/responses/{name}"}


def _headers_of(method: str, operation: Json, status: str, *, repeatable: bool) -> list[str]:
    names = ["X-Request-Id"]
    if method == "get" and "304" in operation["responses"]:
        names += ["ETag", "Cache-Control"]
    if operation["operationId"] in _LOCATED:
        names.append("Location")
    if operation["operationId"] == "create_search":
        names.append("Preference-Applied")
    if operation["operationId"] in ("create_search", "get_search") and status in ("200", "202", "304"):
        names.append("Retry-After")
    if repeatable:
        names.append(REPLAYED)
    return names


def _references(names: list[str]) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _not_null(schema: Json) -> Json:
    """Without ``null``: a parameter is left out or it is there."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return {**kinds[0], **{name: value for name, value in schema.items() if name != "anyOf"}}


def main() -> None:
    """Print the application's document, as it is committed in ``docs/openapi.json``."""
    from api.app import create_app
    from api.settings import Settings

    json.dump(create_app(Settings(needs_keys=False)).openapi(), sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
