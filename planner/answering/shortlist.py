"""A short list of plans for real trials: the fastest plan is among them with the probability that is asked for.

Which plans may turn out to be the fastest follows from how errors of predictions differ between plans of one case
(``costmodel.plan_errors``), so many plans that are alike need fewer trials than as many that are not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from costmodel.plan_errors import plan_errors, trials
from planner.answering.batches import over_batches, value_of
from planner.answering.clock import Clock
from planner.search.request import SearchRequest

Json = dict[str, Any]

_CONSIDERED = 100
"""Different plans among which the fastest is looked for; what is left out is slower by far, as the list says."""


def shortlist_of(request: SearchRequest, answer: Json, clock: Clock) -> Json | None:
    """``{asked, probability, indistinct, considered, up_to, plans: [{rank, probability, loss, id, plan, ...}]}``.

    Plans come in the order in which they should be tried; ``probability`` is that of having tried one of the fastest by
    then, ``loss`` the mean share that is lost by stopping there. Both are among the ``considered`` plans, of which the
    last is ``up_to`` times as slow as the first as predicted; plans within ``indistinct`` of the fastest are as fast.
    Ranks are those by the objective. None where there is no plan.
    """
    wide = replace(request, top=max(request.top, _CONSIDERED), explain=False, max_seconds=clock.seconds())
    plans = over_batches(wide, clock)["plans"] if request.top < _CONSIDERED else answer["plans"]
    plans = plans if len(plans) >= len(answer["plans"]) else answer["plans"]
    if not plans:
        return None
    asked, errors = request.shortlist or 0.0, plan_errors()
    if request.objective == "fewest_devices":
        fewest = plans[0]["plan"]["devices_used"]
        plans = [entry for entry in plans if entry["plan"]["devices_used"] == fewest]
    values = [value_of(request, entry) for entry in plans]
    slowness = errors.slowness(values, [entry["plan"] for entry in plans])
    chosen = trials(slowness, asked, errors.indistinct)
    names = ("rank", "id", "plan", "options", "prediction")
    return {
        "asked": asked,
        "probability": chosen[-1].probability,
        "indistinct": errors.indistinct,
        "considered": len(plans),
        "up_to": max(values) / min(values),
        "plans": [
            {"probability": trial.probability, "loss": trial.loss, **{name: plans[trial.place][name] for name in names}}
            for trial in chosen
        ],
    }
