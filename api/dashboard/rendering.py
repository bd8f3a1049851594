"""Templates, and who gets a page rather than JSON. Everything put into a template is escaped."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, ValidationError

from api.dashboard import words
from api.dashboard.accept import HTML, JSON, preferred
from api.dashboard.assets import assets
from api.dashboard.charts.drawing import drawing_of
from api.dashboard.charts.parallel import parallel_drawing_of
from api.dashboard.charts.zoom import figure_of

Query = TypeVar("Query", bound=BaseModel)

# Entries of the bar: address and name.
_BAR = (
    ("/searches", "Searches"),
    ("/compare", "Compare"),
    ("/scaling", "Scaling"),
    ("/studies", "Studies"),
    ("/fidelity", "Fidelity"),
    ("/catalog", "Catalog"),
    ("/docs", "API"),
)
# The same address answers with either, so caches must keep the two apart.
_VARY = "Accept"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Where templates are found, and what they may use."""
    made = Environment(
        loader=PackageLoader("api.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["asset"] = lambda name: assets()[name].address
    made.globals["bar"] = lambda: _BAR
    for name in ("number", "age", "moment", "seconds", "fine", "percent", "best", "listed_result"):
        made.filters[name] = getattr(words, name)
    made.filters["drawn"] = drawing_of
    made.filters["parallel_drawn"] = parallel_drawing_of
    made.filters["figure"] = figure_of
    return made


def html(template: str, **values: Any) -> str:
    """A template with its values."""
    return environment().get_template(template).render(values)


def macro(template: str, name: str) -> Callable[..., str]:
    """A macro of a template; what it returns is HTML that is not escaped again."""
    found: Callable[..., str] = getattr(environment().get_template(template).module, name)
    return found


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page that is asked for again each time."""
    return HTMLResponse(html(template, **values), status, {"Cache-Control": "private, no-cache", "Vary": _VARY})


def document_of(route: Callable[..., Response], *arguments: Any) -> Any:
    """What a route of the API answers, so that a page and its twin can't differ.

    Args:
        route: takes the request first; it is asked without conditions, so that there always is a body.
    """
    return json.loads(bytes(route(Request({"type": "http", "headers": []}), *arguments).body))


def twin(response: Response) -> Response:
    """The API's answer at a page's address."""
    response.headers["Vary"] = _VARY
    return response


def checked(
    model: type[Query], request: Request, *, lists: Collection[str] = (), leaving_out: Collection[str] = ()
) -> Query:
    """What the query string says; what a form left empty is not said.

    Args:
        lists: parameters that may be there several times.
        leaving_out: parameters that somebody else reads.

    Raises:
        RequestValidationError: the model does not know it so.
    """
    given: dict[str, Any] = {}
    for name in request.query_params:
        texts = [text for text in request.query_params.getlist(name) if text]
        if texts and name not in leaving_out:
            given[name] = texts if name in lists else texts[-1]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError([{**found, "loc": ("query", *found["loc"])} for found in error.errors()]) from None


def wants_json(request: Request) -> bool:
    """Whether the JSON twin is asked for: by the path, or by ``Accept``."""
    return request.url.path.endswith(".json") or preferred(request.headers.get("accept", ""), (HTML, JSON)) == JSON
