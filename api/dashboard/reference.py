"""``/docs``: the API for people. All that it says is read from the application's OpenAPI document and its routes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import APIRouter, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import Response
from fastapi.routing import APIRoute, iter_route_contexts

from api.auth import Reader, Writer
from api.dashboard.rendering import page

router = APIRouter(include_in_schema=False)

_SCOPES = {get_args(kind)[1].dependency: scope for kind, scope in ((Reader, "read"), (Writer, "write"))}
_CODE = re.compile(r"`{1,2}([^`]+)`{1,2}")

Text = tuple[str, ...]
"""Text in pieces: words and, at every second place, code."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A method of a path.

    Attributes:
        scope: what an API key has to have; empty where none is asked for.
    """

    method: str
    path: str
    summary: str
    text: Text
    scope: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """The operations of a tag."""

    name: str
    text: Text
    operations: tuple[Operation, ...]


# No API key is asked for: the document itself is open, and a program's author reads both before having one.
@router.get("/docs")
def docs_page(request: Request) -> Response:
    """The operations by tag."""
    document = request.app.openapi()
    intro, points = _introduction(document["info"]["description"])
    return page(
        "docs.html",
        version=document["info"]["version"],
        intro=intro,
        points=points,
        sections=sections_of(request.app),
    )


def sections_of(app: FastAPI) -> list[Section]:
    """The operations of an application, in the order of its document's tags and paths."""
    document, scopes = app.openapi(), dict(_scopes_of(app))
    return [
        Section(
            name=tag["name"],
            text=in_pieces(tag["description"]),
            operations=tuple(_operations(document["paths"], tag["name"], scopes)),
        )
        for tag in document["tags"]
    ]


def in_pieces(text: str) -> Text:
    """Text with what stands in backticks apart."""
    return tuple(_CODE.split(" ".join(text.split())))


def _operations(paths: Mapping[str, Any], tag: str, scopes: Mapping[str, str]) -> Iterator[Operation]:
    for path, methods in paths.items():
        for method, found in methods.items():
            if tag in found["tags"]:
                yield Operation(
                    method=method.upper(),
                    path=path,
                    summary=found["summary"],
                    text=in_pieces(found.get("description", "")),
                    scope=scopes.get(found["operationId"], ""),
                )


def _scopes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """The scope of each operation, by its id: that of the principal whom its route, or what it depends on, asks for."""
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, APIRoute):
            for call in _calls(context.original_route.dependant):
                if call in _SCOPES:
                    # The id is the context's: the application has its own way to make one.
                    yield context.unique_id, _SCOPES[call]


def _calls(dependant: Dependant) -> Iterator[Any]:
    for needed in dependant.dependencies:
        yield needed.call
        yield from _calls(needed)


def _introduction(text: str) -> tuple[Text, list[Text]]:
    """The document's description: a paragraph, and a list of points."""
    paragraph, *points = re.split(r"^\* ", text, flags=re.MULTILINE)
    return in_pieces(paragraph), [in_pieces(point) for point in points]
