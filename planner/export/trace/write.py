"""The step of a plan as a trace file."""

from __future__ import annotations

import json
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.timeline.timeline import timeline_of
from planner.check.price import price
from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile
from planner.export.target import Target
from planner.export.trace.events import devices_shown, spread_over_step, trace_events

NAME = "trace"
FILE = "trace.json"
MOST_EVENTS = 20_000
"""About three megabytes. A pipeline has to be filled and to come into its rhythm, so deep ones take more."""

_MOST_OF_DEEP = 2  # times as many, before devices are left out
_WORTH_SAYING = 0.005


def write(job: Job, version: str | None) -> Launch:
    """The trace.

    Raises:
        InvalidInput: the cost model has no price for the plan.
    """
    plan = job.plan
    # As where a plan is priced: to the cost model this is a fact of the whole run.
    scenario = job.scenario.model_copy(update={"sequence_parallel": plan.sequence_parallel or plan.tp == 1})
    pricing = price(job.scenario, plan)
    if pricing.prediction is None:
        raise InvalidInput("plan", plan.framework, f"only what has a price can be drawn: {'; '.join(pricing.open)}")
    closed_form_s, _ = pricing.step_time_s
    assert closed_form_s is not None
    timeline = timeline_of(scenario, plan, most_events=MOST_EVENTS)
    devices = devices_shown(plan, len(timeline.events), _MOST_OF_DEEP * MOST_EVENTS)
    events, gaps = spread_over_step(timeline, plan)
    notes: list[str] = []
    if gaps:
        notes.append(
            f"{gaps[0].micro_batches} of the {plan.num_microbatches} micro-batches are left out, in the steady state "
            f"in the middle: {timeline.left_out_s:.6g} s, drawn as one piece."
        )
    if len(devices) < plan.pp:
        notes.append(f"{len(devices)} of the {plan.pp} pipeline devices are drawn.")
    if abs(timeline.step_time_s / closed_form_s - 1.0) > _WORTH_SAYING:
        notes.append(
            f"Executed piece by piece the step takes {timeline.step_time_s:.6g} s; the prediction, by closed form, is "
            f"{closed_form_s:.6g} s."
        )
    about: dict[str, Any] = {
        "model": job.model.name,
        "cluster": job.scenario.cluster.name,
        **({} if job.plan_id is None else {"plan_id": job.plan_id}),
        "schedule": plan.schedule,
        "step_time_s": timeline.step_time_s,
        "predicted_step_time_s": closed_form_s,
        "notes": notes,
    }
    lines = ",\n".join(
        json.dumps(event, separators=(",", ":"))
        for event in trace_events(plan, timeline.step_time_s, events, gaps, devices)
    )
    head = json.dumps({"displayTimeUnit": "ms", "otherData": about}, allow_nan=False)
    text = f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'
    return Launch(
        target=NAME,
        version=None,
        files=(LaunchFile(name=FILE, text=text),),
        notes=(f"Open {FILE} in ui.perfetto.dev or chrome://tracing.", *notes),
    )


TARGET = Target(
    name=NAME,
    aliases=("perfetto", "chrome-trace"),
    title="Chrome / Perfetto trace of the step",
    kind="picture",
    write=write,
    verified="loaded back: format, nesting, and every total against the timeline and the predicted step time",
)
