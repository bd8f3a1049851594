"""Errors as RFC 9457 problems: a stable ``type``, the field by JSON Pointer, never a traceback."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from api.validation import field_errors, json_pointer, name_in_body, parts_of, within
from costmodel.errors import InvalidInput, Missing, PlannerError, UnreadableFile
from db.errors import StoreUnavailable
from planner.logs import request_id
from planner.service import Busy

MEDIA_TYPE = "application/problem+json"
FAILED = "the planner failed on this request; its log has the reason"
_LOG = logging.getLogger("planner.api")
_LONGEST_SHOWN = 200
_TITLES = {
    400: ("bad-request", "Bad request"),
    401: ("unauthorized", "An API key is needed"),
    403: ("forbidden", "Not allowed"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "Method not allowed"),
    406: ("not-acceptable", "Not acceptable"),
    409: ("conflict", "Conflict"),
    413: ("body-too-large", "The body is too large"),
    415: ("unsupported-media-type", "Unsupported media type"),
    421: ("misdirected", "Not a name of this server"),
    422: ("invalid-input", "Bad input"),
    500: ("internal-error", "The planner failed"),
    503: ("unavailable", "Not available now"),
}


class ProblemRaised(Exception):
    """Ends a request with a problem.

    Attributes:
        status: of the response.
        more: further members of the problem object.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        slug: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.slug = status, detail, slug
        self.headers, self.more = dict(headers or {}), more


def unusable(field: str, detail: str) -> ProblemRaised:
    """A parameter or a field can't be used as it was given."""
    return ProblemRaised(422, f"{field}: {detail}", errors=[{"pointer": field, "detail": detail}])


def not_found(what: str, name: str, nearest: Sequence[str] = ()) -> ProblemRaised:
    """There is no such thing; ``nearest`` are names that may be meant."""
    if not nearest:
        return ProblemRaised(404, f"there is no {what} {name!r}")
    meant = " or ".join(nearest)
    return ProblemRaised(404, f"there is no {what} {name!r}; did you mean {meant}?", nearest=list(nearest))


def problem_object(status: int, detail: str, *, slug: str | None = None, **more: Any) -> dict[str, Any]:
    """The members of a problem."""
    known_slug, title = _TITLES.get(status, ("failed", "The request failed"))
    return {"type": slug or known_slug, "title": title, "status": status, "detail": detail, **more}


def problem_of_input(error: InvalidInput, sent: Any = None, within_it: str = "") -> dict[str, Any]:
    """The problem that a user's field causes.

    Args:
        sent: the body, or the part of it that the field belongs to: the problem points at what is there. What ought to
            be there and is not (``Missing``) is pointed at all the same.
        within_it: JSON Pointer of that part.
    """
    path = parts_of(error.field)
    if sent is not None and not isinstance(error, Missing):
        path = within(sent, path)
    more: dict[str, Any] = {
        "field": name_in_body(error.field),
        "value": _shown(error.value),
        "expected": error.expected,
        "errors": [{"pointer": within_it + json_pointer(path), "detail": error.expected}],
    }
    return problem_object(422, str(error), slug=error.slug, **more, **error.members)


def problem_response(problem: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """A problem on the wire, with the request's id."""
    content = json.dumps({**problem, "request_id": request_id()}, ensure_ascii=True, allow_nan=False)
    return Response(content, problem["status"], dict(headers or {}), MEDIA_TYPE)


def pointer_of(field: str) -> str:
    """``cluster.tiers[0].kind`` or ``global-batch-size`` as a JSON Pointer into the body."""
    return json_pointer(parts_of(field))


def install(app: FastAPI) -> None:
    """Turn every error that is raised on purpose into a problem; ``RequestMiddleware`` does so with the others.

    Requests name no files, so a file that can't be read is the server's own, and no fault of the client's.
    """
    app.add_exception_handler(ProblemRaised, _on_raised)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(InvalidInput, _on_input)
    app.add_exception_handler(UnreadableFile, _on_unexpected)
    app.add_exception_handler(Busy, _on_busy)
    app.add_exception_handler(StoreUnavailable, _on_store)
    app.add_exception_handler(PlannerError, _on_unexpected)


def _on_raised(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemRaised)
    found = problem_object(error.status, error.detail, slug=error.slug, **error.more)
    return problem_response(found, error.headers)


def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    for found in error.errors():
        if found["type"] == "json_invalid":
            reason = f"{found['ctx']['error']} at character {found['loc'][-1]}"
            return problem_response(problem_object(400, f"the body is no JSON: {reason}", slug="invalid-json"))
    errors = field_errors(error.errors())
    first = errors[0] if errors else {"pointer": "", "detail": "the request can't be read"}
    detail = f"{first['pointer'] or 'the body'}: {first['detail']}"
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return problem_response(problem_object(422, detail + more, errors=errors[:50]))


def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 204:
        return Response(status_code=204)
    if error.status_code == 400:
        # Besides what is no JSON at all: text that is no UTF-8, numbers of thousands of digits, endless nesting.
        return problem_response(problem_object(400, "the body is no JSON that can be read", slug="invalid-json"))
    if error.status_code == 404:
        return problem_response(problem_object(404, f"there is nothing at {_shown(request.url.path)}"))
    if error.status_code == 405:
        allowed = ", ".join(_methods_of(request))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allowed})
        return problem_response(problem_object(405, f"allowed here: {allowed}"), {"Allow": allowed})
    return problem_response(problem_object(error.status_code, str(error.detail)), error.headers)


async def _on_input(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidInput)
    # It was read before, or there would be nothing wrong with it.
    has_json = request.method == "POST" and request.url.path.startswith("/v1/")
    return problem_response(problem_of_input(error, await request.json() if has_json else None))


def _on_busy(request: Request, error: Exception) -> Response:
    return problem_response(problem_object(503, str(error), slug="busy"), {"Retry-After": "10"})


def _on_store(request: Request, error: Exception) -> Response:
    _LOG.error("the store is not available", extra={"reason": str(error)})
    detail = "the results database can't be reached now; nothing was changed"
    return problem_response(problem_object(503, detail, slug="store-unavailable"), {"Retry-After": "5"})


def _on_unexpected(request: Request, error: Exception) -> Response:
    _LOG.error("a request failed", exc_info=error, extra={"path": request.url.path})
    return problem_response(problem_object(500, FAILED))


def _methods_of(request: Request) -> list[str]:
    """The methods of all routes of the path; the framework names those of the first one only."""
    found: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        pattern = getattr(route, "path_regex", None)
        if pattern is not None and pattern.match(request.scope["path"]):
            found |= route.methods or set()
    return sorted(found | {"OPTIONS"} | ({"HEAD"} if "GET" in found else set()))


def _shown(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
