"""The explanation of an answer: the procedure's steps, the plan they lead to, and where the best plan differs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from costmodel.facts import Facts
from costmodel.plan_rows import plan_of
from costmodel.scenario import lacking_format
from costmodel.table import PlanTable
from planner.explain.beats import beats
from planner.explain.differences import host_difference_bytes, memory_difference_bytes, time_differences
from planner.explain.disagreements import disagreements, row_of, value_of
from planner.explain.procedure import Procedure
from planner.explain.shapes import Pricer
from planner.search.answer import answer_to, predictions
from planner.search.constraints import Contradiction
from planner.search.objective import objective_of
from planner.search.request import SearchRequest
from planner.search.solve import Progress

Json = dict[str, Any]

_LEAST_SECONDS = 1.0
_COMPARED = 2


def answered(
    request: SearchRequest,
    progress: Progress | None = None,
    stopped: threading.Event | None = None,
    *,
    why: bool = True,
) -> Json:
    """The answer of the search, with ``explanation`` where the request asks for one.

    Args:
        progress, stopped: as in ``Search``.
        why: as in ``answer_of``.

    Raises:
        InvalidInput: as ``answer_to``.
    """
    deadline = time.monotonic() + request.max_seconds
    answer = answer_to(request, progress, stopped, why=why)
    if not request.explain:
        return answer
    # As the search prices a first plan whatever the clock says, its answer is explained as far as a second goes.
    deadline = max(deadline, time.monotonic() + _LEAST_SECONDS)

    def late() -> bool:
        return time.monotonic() > deadline or (stopped is not None and stopped.is_set())

    if lacking_format(request.scenario.workload.precision, request.scenario.cluster.accelerator) is not None:
        return answer  # nothing can be priced: the rule that says so explains it
    try:
        return answer | {"explanation": explanation_of(request, answer, late)}
    except Contradiction:
        return answer  # what is asked for contradicts itself: the conflict explains it


def explanation_of(request: SearchRequest, answer: Json, late: Callable[[], bool]) -> Json:
    """``{objective, runners_up, steps, procedure_plan, disagreements, difference}``.

    The steps go for the shortest step whatever the search minimises; ``value`` says of both plans what that comes to in
    the unit of ``objective``. ``procedure_plan`` is null where the steps lead to no plan that fits, or the deadline
    came first. ``difference`` is that of the search's best plan, null where there is none; it is empty where both are
    the same plan. ``runners_up`` says of the first plans why each beats the next.
    """
    scenario, facts, objective = request.scenario, Facts.of(request.scenario), objective_of(request)
    procedure = Procedure(pricer=Pricer(request=request, facts=facts), late=late)
    procedure.walk()
    found: Json = {
        "objective": request.objective,
        "runners_up": runners_up(answer["plans"]),
        "steps": [asdict(step) for step in procedure.steps],
        "procedure_plan": None,
        "disagreements": [],
        "difference": None,
    }
    last = procedure.steps[-1]
    if procedure.found is None or last.verdict != "tuned":
        return found
    ours = procedure.found.row
    (prediction,) = predictions(scenario, facts, PlanTable.of_rows([ours]))
    own = value_of(objective, ours, prediction)
    plan = plan_of(scenario, ours).model_dump(mode="json")
    found["procedure_plan"] = {"plan": plan, "prediction": prediction, "value": own}
    if not answer["plans"]:
        return found
    best = answer["plans"][0]
    theirs = row_of(scenario, best["plan"])
    found["disagreements"] = disagreements(scenario, facts, objective, ours, theirs, best)
    found["difference"] = {
        "value": value_of(objective, theirs, best["prediction"]) - own,
        "step_time_s": best["prediction"]["step_time_s"] - prediction["step_time_s"],
        "time": time_differences(prediction, best["prediction"]),
        "memory_bytes": memory_difference_bytes(prediction, best["prediction"]),
        "host_bytes_per_node": host_difference_bytes(prediction, best["prediction"]),
    }
    return found


def runners_up(plans: Sequence[Json]) -> list[Json]:
    """Why each of the first plans of an answer beats the next: ``{rank, other, ...}`` with what ``beats`` says.

    Where batches differ, the times of the worse plan are those of as many sequences as the better one has.
    """
    pairs = pairwise(plans[: _COMPARED + 1])
    return [{"rank": better["rank"], "other": worse["rank"], **_beats(better, worse)} for better, worse in pairs]


def _beats(better: Json, worse: Json) -> Json:
    size, other = better["plan"]["global_batch_size"], worse["plan"]["global_batch_size"]
    if size == other:
        return beats(better, worse)
    prediction, share = worse["prediction"], size / other
    times = {part: seconds * share for part, seconds in prediction["time"].items()}
    as_many = prediction | {"step_time_s": prediction["step_time_s"] * share, "time": times}
    found = beats(better, worse | {"prediction": as_many})
    return found | {"told": f"for as many sequences, with a batch of {size} instead of {other}: {found['told']}"}
