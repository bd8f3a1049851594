"""The trace of a step: loaded back, held against the format, the timeline and the prediction."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from costmodel.errors import InvalidInput
from costmodel.spec.plan import SCHEDULES, Plan
from costmodel.timeline.timeline import timeline_of
from planner.check.price import price
from planner.export.job import Job
from planner.export.trace import write as trace
from tests.plans import finished
from tests.scenarios import load_framework, plan_row, scenario_of

CHUNKS = {"interleaved_1f1b": 2, "zb_v": 2, "dualpipe_v": 2}
FRAMEWORKS = {"zb_v": "torchtitan", "dualpipe_v": "torchtitan", "gpipe": "torchtitan", "dualpipe": "hai-llm"}
# Microseconds; a trace holds nanoseconds.
ROUNDING = 0.002


def job_under(schedule: str, *, batch: int = 128, pp: int = 4, **more: Any) -> Job:
    """A job of 32 devices under a schedule."""
    model = more.pop("model", "llama-3-8b")
    scenario = scenario_of(model, devices=32, global_batch_size=batch, seq_len=4096)
    framework = load_framework(FRAMEWORKS.get(schedule, "megatron-core"))
    scenario = scenario.model_copy(update={"framework": framework})
    axes = {"pp": pp, "dp": 32 // pp, "vpp": CHUNKS.get(schedule, 1), "schedule": SCHEDULES.index(schedule)}  # type: ignore[arg-type]
    plan = finished(scenario, plan_row(batch, **{**axes, "zero_stage": 0, **more}))
    return Job(scenario=scenario, plan=Plan.model_validate(plan.model_dump()), plan_id="0123abcd")


def written(job: Job) -> tuple[dict[str, Any], list[dict[str, Any]], tuple[str, ...]]:
    """What is said of the trace, its events, and the notes."""
    launch = trace.write(job, None)
    document = json.loads(launch.files[0].text)
    return document["otherData"], document["traceEvents"], launch.notes


def complete(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def pieces(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in complete(events) if "micro_batch" in event.get("args", {})]


def device_tracks(events: list[dict[str, Any]]) -> dict[int, str]:
    """Names of the pipeline devices' tracks by their ids."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return {track: name for track, name in names.items() if name.startswith("device")}


def assert_well_formed(events: list[dict[str, Any]]) -> None:
    """Each event as the format wants it; those of a track follow or contain one another."""
    by_track: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            assert event["args"]
            continue
        assert event["ph"] == "X"
        assert isinstance(event["cat"], str)
        assert event["ts"] >= 0
        assert event["dur"] > 0
        by_track[event["tid"]].append(event)
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert by_track.keys() <= named
    for track in by_track.values():
        track.sort(key=lambda event: (event["ts"], -event["dur"]))
        for one, other in pairwise(track):
            follows = other["ts"] >= one["ts"] + one["dur"] - ROUNDING
            inside = other["ts"] + other["dur"] <= one["ts"] + one["dur"] + ROUNDING
            assert follows or inside, (one, other)


def end_of(events: list[dict[str, Any]]) -> float:
    """When the last of the devices' events ends, in microseconds."""
    return max(event["ts"] + event["dur"] for event in complete(events) if event["name"] != "step")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_all_pieces_are_there_when_the_timeline_has_them(schedule: str) -> None:
    job = job_under(schedule)
    about, events, notes = written(job)
    timeline = timeline_of(job.scenario, job.plan)
    assert_well_formed(events)
    assert about["step_time_s"] == timeline.step_time_s
    assert end_of(events) == pytest.approx(timeline.step_time_s * 1e6, abs=ROUNDING)
    (step,) = [event for event in complete(events) if event["name"] == "step"]
    assert (step["ts"], step["dur"]) == (0, pytest.approx(timeline.step_time_s * 1e6, abs=ROUNDING))
    assert not any("left out" in note for note in notes)
    wanted, found = defaultdict[tuple[int, str], float](float), defaultdict[tuple[int, str], float](float)
    for event in timeline.events:
        wanted[event.device, event.kind] += (event.end_s - event.start_s) * 1e6
    tracks = {track: index for index, track in enumerate(sorted(device_tracks(events)))}
    for event in complete(events):
        if event["tid"] in tracks:
            found[tracks[event["tid"]], event["cat"]] += event["dur"]
    busy = {key: seconds for key, seconds in wanted.items() if seconds > ROUNDING}
    assert found == pytest.approx(busy, abs=ROUNDING * len(timeline.events))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_micro_batch_meets_every_device(schedule: str) -> None:
    job = job_under(schedule)
    _, events, _ = written(job)
    seen = defaultdict[int, list[int]](list)
    for event in pieces(events):
        if event["cat"] == "forward":
            seen[event["tid"]].append(event["args"]["micro_batch"])
    assert len(seen) == job.plan.pp
    for numbers in seen.values():
        assert sorted(numbers) == sorted(list(range(job.plan.num_microbatches)) * job.plan.vpp)


def test_one_device_without_a_pipeline() -> None:
    job = job_under("1f1b", pp=1, zero_stage=1)
    about, events, _ = written(job)
    assert_well_formed(events)
    assert len(device_tracks(events)) == 1
    assert end_of(events) == pytest.approx(about["step_time_s"] * 1e6, abs=ROUNDING)


def test_the_step_is_the_predicted_one_where_stages_are_equal() -> None:
    """The closed form and the executed pieces agree there; the note says so where they don't."""
    job = job_under("1f1b", batch=512, pp=1)
    about, events, notes = written(job)
    predicted = price(job.scenario, job.plan).prediction
    assert predicted is not None
    assert about["predicted_step_time_s"] == predicted["step_time_s"]
    assert end_of(events) == pytest.approx(predicted["step_time_s"] * 1e6, rel=1e-6)
    assert not any("closed form" in note for note in notes)


def test_a_step_that_differs_from_the_closed_form_says_so() -> None:
    """A loss that is a stage of its own is not spread evenly."""
    job = job_under("1f1b", batch=32, pp=8)
    about, _, notes = written(job)
    apart = abs(about["step_time_s"] / about["predicted_step_time_s"] - 1)
    assert any("closed form" in note for note in notes) == (apart > 0.005)
    assert apart > 0.005


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_long_step_is_shown_with_its_middle_in_one_piece(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = job_under(schedule, batch=2048)
    _, all_events, _ = written(whole)
    monkeypatch.setattr(trace, "MOST_EVENTS", 1000)
    about, events, notes = written(whole)
    assert_well_formed(events)
    assert len(complete(events)) < 1500
    # Rounds of a steady state take as long as one another.
    assert end_of(events) == pytest.approx(about["step_time_s"] * 1e6, abs=ROUNDING)
    assert about["step_time_s"] == pytest.approx(end_of(all_events) / 1e6, rel=1e-3)
    gaps = [event for event in complete(events) if event["cat"] == "left_out"]
    assert len(gaps) == whole.plan.pp
    missing = int(gaps[0]["name"].split()[0])
    assert any(note.startswith(f"{missing} of the {whole.plan.num_microbatches} micro-batches") for note in notes)
    # What is shown is at its place of the whole step, under its own number.
    at = {(event["tid"], event["name"]): event["ts"] for event in all_events if event["ph"] == "X"}
    late = max(abs(event["ts"] - at[event["tid"], event["name"]]) for event in pieces(events))
    assert late < 1e-3 * end_of(all_events)
    forward, shown = (
        {(event["tid"], event["name"]) for event in pieces(of) if event["cat"] == "forward"}
        for of in (all_events, events)
    )
    assert shown < forward
    assert len(forward - shown) == missing * whole.plan.vpp * whole.plan.pp


def test_deep_pipelines_are_drawn_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_EVENTS", 200)
    job = job_under("interleaved_1f1b", batch=256, pp=16)
    _, events, notes = written(job)
    assert_well_formed(events)
    names = list(device_tracks(events).values())
    assert names[0].startswith("device 0 ")
    assert names[-1].startswith("device 15 ")
    assert len(names) < 16
    assert f"{len(names)} of the 16 pipeline devices are drawn." in notes


def test_a_trace_of_a_large_step_stays_small() -> None:
    scenario = scenario_of("llama-3.1-405b", devices=16384, global_batch_size=16384)
    row = plan_row(16384, tp=8, pp=16, dp=128, vpp=7, zero_stage=1)
    plan = Plan.model_validate(finished(scenario, row | {"layout": 2}).model_dump())
    job = Job(scenario=scenario, plan=plan)
    _, events, _ = written(job)
    assert len(device_tracks(events)) == 16
    assert len(trace.write(job, None).files[0].text) < 4 * 2**20


def test_what_has_no_price_has_no_picture() -> None:
    scenario = scenario_of("deepseek-v3", devices=64, global_batch_size=256)
    row = plan_row(256, tp=8, ep=8, dp=8, recompute=1)
    plan = Plan.model_validate(finished(scenario, row, recompute_modules=("mhc",)).model_dump())
    with pytest.raises(InvalidInput, match="only what has a price can be drawn"):
        trace.write(Job(scenario=scenario, plan=plan), None)
