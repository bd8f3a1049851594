"""The whole answer: the search's, over every batch that may be, with what was asked for beside it."""

from __future__ import annotations

import threading
from typing import Any

from planner.answering.batches import over_batches
from planner.answering.clock import Clock
from planner.answering.pareto import front_of
from planner.answering.shortlist import shortlist_of
from planner.answering.too_slow import or_too_slow
from planner.search.request import SearchRequest
from planner.search.solve import Progress

Json = dict[str, Any]

_SECONDS_PER_HOUR = 3600.0
_TOKENS = 1e9


def whole_answer(
    request: SearchRequest,
    progress: Progress | None = None,
    stopped: threading.Event | None = None,
    *,
    why: bool = True,
) -> Json:
    """The answer as ``suggest --json`` has it.

    ``pareto`` and ``shortlist`` are there where they were asked for; ``batches`` where the batch may differ.

    Args:
        progress, stopped: as in ``Search``; progress is that of the search for the batch asked for.
        why: as in ``answer_of``.

    Raises:
        InvalidInput: as ``answer_to``.
    """
    clock = Clock.starting(request.max_seconds, stopped)
    # What is in the way of a fast enough plan is looked for where a plan of any speed was.
    at_once = why and request.max_step_time_s is None
    answer = or_too_slow(request, over_batches(request, clock, progress, why=at_once), clock, why=why)
    answer |= _prices(request, answer)
    if request.pareto:
        answer |= front_of(request, answer, clock)
    if request.shortlist is not None:
        answer |= {"shortlist": shortlist_of(request, answer, clock)}
    return answer


def _prices(request: SearchRequest, answer: Json) -> Json:
    """The price that was given, or is the cluster's, and what it makes of the best plan; null without one."""
    best = answer["plans"][0]["prediction"] if answer["plans"] else None
    return {
        "price_per_device_hour": request.price,
        "cost_per_1e9_tokens": cost_of_tokens(request.price, best) if best is not None else None,
    }


def cost_of_tokens(price_per_device_hour: float | None, prediction: Json) -> float | None:
    """What 1e9 tokens cost on the devices that a plan uses; None without a price."""
    if price_per_device_hour is None:
        return None
    return price_per_device_hour / _SECONDS_PER_HOUR * _TOKENS / float(prediction["tokens_per_s_per_device"])
