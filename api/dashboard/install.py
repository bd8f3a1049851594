"""Puts the pages into the application."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from api.dashboard import assets, reference
from api.dashboard.catalog import routes as catalog
from api.dashboard.compare import routes as compare
from api.dashboard.error_pages import ErrorPages
from api.dashboard.fidelity import routes as fidelity
from api.dashboard.fidelity.working import Workings
from api.dashboard.plans import routes as plans
from api.dashboard.scaling import routes as scaling
from api.dashboard.searches import one as one_search
from api.dashboard.searches import routes as searches
from api.dashboard.searches.kept import KeptAnswers
from api.dashboard.studies import routes as studies
from api.routes.common import given_once


def install(app: FastAPI) -> None:
    """Add pages, their files, and error pages around the whole application; call it after other middleware is in."""
    for router in (
        searches.router,
        one_search.router,
        scaling.router,
        plans.router,
        compare.router,
        studies.router,
        fidelity.router,
        catalog.router,
    ):
        app.include_router(router, dependencies=[Depends(given_once)])
    app.state.fidelity = Workings()
    app.state.answers = KeptAnswers()
    app.include_router(reference.router)
    app.include_router(assets.router)
    app.add_middleware(ErrorPages)
