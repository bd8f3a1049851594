"""Stored plans and their pages, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from api.dashboard.compare import routes as compare
from api.dashboard.plans import routes as plans
from api.routes import plans as api_plans
from db.records import Measurement
from planner.answering.whole_answer import whole_answer
from tests.api.pages import Page, Site, small_answer, small_request
from tests.api.pages_here import Here, pages_here

Json = dict[str, Any]


@contextmanager
def plans_here(folder: Path) -> Iterator[Here]:
    """The pages of plans and of comparisons, beside the API that they are twins of."""
    with pages_here(folder, api_plans.router, plans.router, compare.router) as here:
        yield here


def stored_plans(here: Here, **how: Any) -> tuple[str, list[Json]]:
    """The id of a search and its plans, the best first; ``how`` as of ``small_request``."""
    request = small_request(**how)
    answer = whole_answer(request) if request.batch_tolerance else small_answer(request)
    site = Site(server=cast(Any, None), store=here.store, first=Page(source=""))
    search = site.store_answer(request, answer)
    with here.store.reading() as repos:
        found = repos.plans.of_search(search)
    return search, [{"id": plan.id, "plan": plan.plan, "prediction": plan.prediction} for plan in found]


def measure(here: Here, plan: Json, *, over_predicted: float | None, note: str = "") -> None:
    """Store a run of a plan, out of memory where there is no time."""
    now = datetime.now(UTC)
    step = None if over_predicted is None else over_predicted * plan["prediction"]["step_time_s"]
    measurement = Measurement(
        id=uuid4().hex,
        plan_id=plan["id"],
        status="out_of_memory" if step is None else "ok",
        step_time_s=step,
        tokens_per_s_per_device=None,
        peak_allocated_bytes=None,
        peak_reserved_bytes=None,
        steps=50,
        job_id=None,
        environment={},
        note=note,
        log_tail="",
        created_by=None,
        measured_at=now,
        created_at=now,
    )
    with here.store.writing() as repos:
        repos.measurements.add(measurement)
