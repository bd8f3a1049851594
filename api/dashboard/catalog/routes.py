"""The pages of the catalog: a list for each kind, and an entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from api.auth import Principal, Reader
from api.dashboard.catalog import frameworks, machines, models
from api.dashboard.catalog.entry import Cell, Column, Entry
from api.dashboard.rendering import checked, document_of, page, twin, wants_json
from api.problems import not_found
from api.routes import catalog
from api.routes.common import Named
from api.schemas.text import Name
from costmodel.catalog import folders
from costmodel.catalog.accelerator_catalog import accelerator_names, load_accelerator
from costmodel.catalog.cluster_catalog import cluster_names
from costmodel.catalog.framework_catalog import framework_names, load_framework
from costmodel.catalog.model_catalog import model_names
from costmodel.errors import UnknownName

Json = dict[str, Any]
Kind = Literal["models", "accelerators", "clusters", "frameworks"]

router = APIRouter(include_in_schema=False)


class CatalogQuery(BaseModel):
    """Which list, and what a name or a fact in it has to hold."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind = "models"
    q: Name | None = None


class EntryQuery(BaseModel):
    """Of a framework, which version."""

    model_config = ConfigDict(extra="forbid")

    version: Name | None = None


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """A kind: its names, and how one of them is listed."""

    one: str
    names: Callable[[], tuple[str, ...]]
    columns: tuple[Column, ...]
    row: Callable[[str], tuple[Cell, ...]]


_LISTINGS: dict[str, _Listing] = {
    "models": _Listing(one="model", names=model_names, columns=models.COLUMNS, row=models.row_of),
    "accelerators": _Listing(
        one="accelerator",
        names=accelerator_names,
        columns=machines.ACCELERATOR_COLUMNS,
        row=machines.accelerator_row,
    ),
    "clusters": _Listing(
        one="cluster", names=cluster_names, columns=machines.CLUSTER_COLUMNS, row=machines.cluster_row
    ),
    "frameworks": _Listing(one="framework", names=framework_names, columns=frameworks.COLUMNS, row=frameworks.row_of),
}


@router.get("/catalog.json")
@router.get("/catalog")
def list_page(request: Request, principal: Reader) -> Response:
    """The entries of a kind, by name."""
    query = checked(CatalogQuery, request)
    listing = _LISTINGS[query.kind]
    user_dir = folders.user_dir()
    rows = [(name, _row(query.kind, name, user_dir)) for name in listing.names()]
    found = [(name, row) for name, row in rows if not query.q or _holds(name, row, query.q)]
    if wants_json(request):
        return twin(_list_json(request, query, principal, [name for name, _ in found]))
    return page(
        "catalog.html",
        query=query,
        kinds=[(kind, len(other.names())) for kind, other in _LISTINGS.items()],
        columns=listing.columns,
        rows=[row for _, row in found],
        all=len(rows),
    )


# The lower one is added first, and the other one's paths would match its pattern too.
@router.get("/catalog/{kind}/{name}")
@router.get("/catalog/{kind}/{name}.json")
def entry_page(request: Request, kind: str, name: Named, principal: Reader) -> Response:
    """One entry with its facts and their source."""
    if kind not in _LISTINGS:
        raise not_found("list in the catalog", kind, list(_LISTINGS))
    query = checked(EntryQuery, request)
    if query.version is not None and kind != "frameworks":
        said = {"loc": ("query", "version"), "msg": "only frameworks have versions", "type": "value_error"}
        raise RequestValidationError([said])
    if wants_json(request):
        return twin(_entry_json(request, kind, name, query.version, principal))
    return page("catalog_entry.html", entry=_entry(kind, name, query.version), asked=name)


def _entry(kind: str, name: str, version: str | None) -> Entry:
    try:
        if kind == "models":
            return models.entry_of(name)
        if kind == "accelerators":
            return machines.accelerator_entry(name)
        if kind == "clusters":
            return machines.cluster_entry(name)
        return frameworks.entry_of(name, version)
    except UnknownName as error:
        raise _missing(kind, name, version, error) from error


def _entry_json(request: Request, kind: str, name: str, version: str | None, principal: Principal) -> Response:
    if kind == "models":
        return catalog.get_model(request, name, principal)
    if kind == "clusters":
        return catalog.get_cluster(request, name, principal)
    try:
        if kind == "accelerators":
            return JSONResponse(load_accelerator(name).model_dump(mode="json"))
        found = load_framework(name, version)
    except UnknownName as error:
        raise _missing(kind, name, version, error) from error
    return JSONResponse({**found.model_dump(mode="json"), "rule_list": frameworks.rules_in_words(found)})


def _missing(kind: str, name: str, version: str | None, error: UnknownName) -> Exception:
    """What is not there: the entry, or the version of it."""
    if version is not None and folders.find("framework", name) is not None:
        return not_found("version", version, error.nearest)
    return not_found(_LISTINGS[kind].one, name, error.nearest)


def _list_json(request: Request, query: CatalogQuery, principal: Principal, names: list[str]) -> Response:
    """Of models and clusters what ``/v1`` answers, restricted to the names."""
    if query.kind == "accelerators":
        return JSONResponse({"items": [load_accelerator(name).model_dump(mode="json") for name in names]})
    if query.kind == "frameworks":
        return JSONResponse({"items": [load_framework(name).model_dump(mode="json") for name in names]})
    listed = catalog.list_models if query.kind == "models" else catalog.list_clusters
    if query.q is None:
        return listed(request, principal)
    items: list[Json] = document_of(listed, principal)["items"]
    wanted = {name.lower() for name in names}
    return JSONResponse({"items": [item for item in items if item["name"].lower() in wanted]})


# Keyed by the user's directory as well, since a name may mean something else there. What names there are is looked up
# each time: files may come and go.
@lru_cache(maxsize=2048)
def _row(kind: str, name: str, user_dir: object) -> tuple[Cell, ...]:
    return _LISTINGS[kind].row(name)


def _holds(name: str, row: tuple[Cell, ...], wanted: str) -> bool:
    """Whether every word is in the name or in what its row says."""
    said = " ".join((name, *(cell.text for cell in row))).lower()
    return all(word in said for word in wanted.lower().split())
