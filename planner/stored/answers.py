"""A stored search as its readers get it: the JSON of ``suggest --json`` with its id, state and moments on top."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from db import records
from db.repositories import Repositories

Json = dict[str, Any]


def stored_answer(repos: Repositories, search: records.Search, *, stages: bool = True) -> Json:
    """A search with its answer once it is done; until then with its question.

    Args:
        stages: whether plans say what memory each stage needs, which is most of what there is to read.
    """
    plans = repos.plans.of_search(search.id, stages=stages) if search.state == "done" else []
    earlier = repos.searches.earlier(search) if search.state == "done" else []
    return answer_in_words(search, plans, earlier)


def answer_in_words(
    search: records.Search, plans: list[records.Plan], earlier: list[records.Search] | None = None
) -> Json:
    """The same from what was read already.

    Args:
        earlier: what the same question had got before under another calibration or by other code.
    """
    found: Json = {
        "id": search.id,
        "state": search.state,
        "created_at": _moment(search.created_at),
        "started_at": _moment(search.started_at),
        "finished_at": _moment(search.finished_at),
        "question": {key: value for key, value in search.question.items() if key != "scenario"},
        "scenario": search.question["scenario"],
    }
    if search.state == "failed":
        return found | {"problem": search.problem}
    if search.state != "done":
        return found
    details = dict(search.details or {})
    options = details.pop("options", None)
    answer = {
        "status": search.status,
        "objective": search.objective,
        "best": search.best,
        "bound": search.bound,
        "gap": search.gap,
        "proven_top_k": search.proven_top_k,
        "plans_within": search.plans_within,
        "plans": [
            {"rank": rank, "id": plan.id, "plan": plan.plan}
            # Answers that were stored before options were told have none of them.
            | ({} if options is None else {"options": options.get(plan.id, [])})
            | {"prediction": plan.prediction}
            for rank, plan in enumerate(plans, start=1)
        ],
        **details,
    }
    return found | answer | {"earlier": [_earlier(other) for other in earlier or ()]}


def _earlier(search: records.Search) -> Json:
    return {
        "id": search.id,
        "finished_at": _moment(search.finished_at),
        "calibration": search.calibration,
        "calibration_id": search.calibration_id,
        "cost_model": search.cost_model_version,
        "search_version": search.search_version,
        "status": search.status,
        "best": search.best,
    }


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat().replace("+00:00", "Z")
