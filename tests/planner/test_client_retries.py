"""The client against a server in trouble: what it repeats, when, and what it says when that does not help."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from costmodel.errors import InvalidInput, PlannerError
from planner.client import (
    Answer,
    BadRequest,
    NotAllowed,
    NotThere,
    PlannerClient,
    RunReport,
    SearchCancelled,
    SearchFailed,
    SearchQuestion,
    ServerFailed,
    ServerUnavailable,
    StillSearching,
    UnencryptedKey,
)
from planner.client.errors import field_of
from planner.client.listening import Message, messages
from planner.client.retrying import Backoff, told_of
from tests.planner.scripted import DROPPED, Reply, scripted

SECRET = "pk_not-to-be-seen-anywhere"
ID = "0" * 32
QUESTION = SearchQuestion(model="llama-3-8b", cluster="dgx-h100", devices=16, global_batch_size=64, seq_len=4096)
MODELS = {"items": [{"name": "m", "params": 1, "active_params": 1, "num_layers": 1, "source": "s"}]}


def search(state: str = "running", **more: Any) -> dict[str, Any]:
    """A search on the wire."""
    words = {"id": ID, "model": "m", "params": 1, "cluster": "c", "accelerator": "a", "devices": 1}
    words |= {"global_batch_size": 1, "seq_len": 1, "precision": "bf16", "optimizer": "adamw", "framework": "f"}
    words |= {"framework_title": "F", "framework_version": "1", "not_calibrated": []}
    question = {"min_free_bytes": None, "objective": "step_time", "price_per_device_hour": None, "pins": []}
    question |= {"forbids": [], "min_used": 0.9, "top": 1, "max_seconds": 1.0, "seed": 0}
    moments = {"created_at": "2026-11-30T00:00:00Z", "started_at": None, "finished_at": None}
    return {"id": ID, "state": state, **moments, "question": question, "scenario": words, **more}


def answer(**more: Any) -> dict[str, Any]:
    """A search that is done, without plans."""
    facts = {"elapsed_s": 0.1, "plans_considered": 0, "calibration": "c", "calibration_id": ID, "cost_model": "1"}
    facts |= {"search_version": "1", "meshes": 0, "master_solutions": 0, "seed": 0}
    found = {"status": "infeasible", "objective": "step_time", "best": None, "bound": None, "gap": None}
    found |= {"proven_top_k": False, "plans_within": 0, "plans": [], "eliminated": {}, "warnings": [], "search": facts}
    return search("done", **found, infeasibility={"conflict": [], "relaxations": []}, **more)


def problem(status: int, slug: str, **more: Any) -> Reply:
    """A problem on the wire."""
    body = {"type": slug, "title": "t", "status": status, "detail": f"about {slug}", "request_id": "r-1", **more}
    return Reply(status=status, body=body, kind="application/problem+json")


BUSY = problem(503, "busy")


def sent_keys(seen: Iterator[Any]) -> set[str]:
    return {request.headers["idempotency-key"] for request in seen}


@pytest.mark.parametrize("trouble", [DROPPED, BUSY, Reply(status=502, body=b"<html>", kind="text/html")])
def test_what_only_reads_is_asked_again(trouble: Reply) -> None:
    with scripted(trouble, trouble, Reply(body=MODELS)) as server, PlannerClient(server.url) as client:
        assert [model.name for model in client.models()] == ["m"]
        assert len(server.seen) == 3


@pytest.mark.parametrize("trouble", [DROPPED, BUSY])
def test_what_makes_something_is_sent_again_under_the_same_key(trouble: Reply) -> None:
    with scripted(trouble, Reply(status=202, body=search())) as server, PlannerClient(server.url) as client:
        first = client.create_search(QUESTION)
        assert first.state == "running"
        assert len(server.seen) == 2
        assert len(sent_keys(iter(server.seen))) == 1
        client.create_search(QUESTION)
        assert len(sent_keys(iter(server.seen))) == 2, "another call is another key"


def test_an_answer_that_does_not_come_in_time_is_asked_for_again() -> None:
    slow = Reply(body=MODELS, after_s=1.0)
    with scripted(slow, Reply(body=MODELS)) as server, PlannerClient(server.url, timeout_s=0.2) as client:
        assert client.models()
        assert len(server.seen) == 2


def test_a_server_may_take_as_long_as_it_was_asked_to_wait() -> None:
    slow = Reply(body=answer(), after_s=1.0)
    with scripted(slow) as server, PlannerClient(server.url, timeout_s=0.5) as client:
        assert client.suggest(QUESTION, wait_s=5).status == "infeasible"
        assert [request.headers["prefer"] for request in server.seen] == ["wait=5"]


def test_ones_own_first_attempt_is_waited_for() -> None:
    in_progress = problem(409, "idempotency-key-in-progress")
    replies = [DROPPED, *[in_progress] * 3, Reply(status=201, body=search())]
    with scripted(*replies) as server, PlannerClient(server.url, retries=1) as client:
        assert client.create_search(QUESTION).id == ID
        assert len(server.seen) == 5
        assert len(sent_keys(iter(server.seen))) == 1


def test_retries_come_to_an_end() -> None:
    with scripted(BUSY) as server, PlannerClient(server.url, retries=2) as client:
        with pytest.raises(ServerUnavailable, match=r"can't answer now: about busy") as caught:
            client.models()
        assert len(server.seen) == 3
        assert caught.value.status == 503
        assert caught.value.request_id == "r-1"


def test_the_server_says_how_long_to_wait() -> None:
    later = Reply(status=429, body={}, headers={"Retry-After": "1"})
    with scripted(later, Reply(body=MODELS)) as server, PlannerClient(server.url) as client:
        client.models()
        assert server.seen[1].at - server.seen[0].at >= 1.0


def test_pauses_grow_and_are_jittered_and_no_server_makes_them_endless() -> None:
    backoff = Backoff()
    pauses = [[backoff.pause(attempt) for _ in range(50)] for attempt in range(10)]
    assert all(len(set(of_one)) > 1 for of_one in pauses)
    assert min(pauses[3]) > max(pauses[1])
    assert max(pauses[9]) <= backoff.longest_s
    assert 30.0 <= backoff.pause(0, 1e9) <= 33.0
    assert backoff.pause(0, 2.0) >= 2.0


def test_retry_after_is_a_number_or_a_date() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert told_of({"retry-after": "7"}) == 7.0
    assert 55.0 < (told_of({"retry-after": at}) or 0.0) <= 60.0
    assert told_of({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert told_of({"retry-after": "soon"}) is None
    assert told_of({}) is None


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (problem(500, "internal-error"), ServerFailed, "about internal-error"),
        (problem(401, "unauthorized"), NotAllowed, "about unauthorized"),
        (problem(403, "forbidden"), NotAllowed, "about forbidden"),
        (problem(404, "not-found"), NotThere, "about not-found"),
        (problem(413, "body-too-large"), BadRequest, "about body-too-large"),
        (problem(409, "conflict"), ServerFailed, "about conflict"),
        (Reply(status=404, body=b"nothing", kind="text/plain"), ServerFailed, "404 Not Found"),
        (Reply(status=301, body=b"", headers={"Location": "https://x/"}), ServerFailed, "moved to https://x/"),
        (Reply(body=b"<html>hello</html>", kind="text/html"), ServerFailed, "text/html, not with JSON"),
        (Reply(body={"hello": 1}), ServerFailed, "is it a planner?"),
        (Reply(body={"items": [{"name": 1}]}), ServerFailed, "can't read (name: "),
    ],
)
def test_what_repeating_does_not_mend_is_said_at_once(reply: Reply, kind: type[PlannerError], said: str) -> None:
    with scripted(reply) as server, PlannerClient(server.url, SECRET) as client:
        with pytest.raises(kind) as caught:
            client.models()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(server.seen) == 1


def test_a_server_that_is_not_there_is_named() -> None:
    with scripted(DROPPED) as server:
        url = server.url
    with PlannerClient(url, retries=0) as client, pytest.raises(ServerUnavailable, match=f"{url} can't be reached: "):
        client.models()


def test_bad_input_has_its_field_and_the_words_of_the_command_line() -> None:
    words = {"field": "model", "value": "lama", "expected": "did you mean llama?", "nearest": ["llama"]}
    reply = problem(422, "unknown-name", **words, errors=[{"pointer": "/model", "detail": "did you mean llama?"}])
    with scripted(reply) as server, PlannerClient(server.url) as client:
        with pytest.raises(BadRequest) as caught:
            client.suggest(QUESTION)
        assert len(server.seen) == 1
    found = caught.value
    assert isinstance(found, InvalidInput)
    assert (found.field, found.value, found.slug, found.nearest) == ("model", "lama", "unknown-name", ("llama",))


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("gradient_dtype", "gradient-dtype"),
        ("pins", "pin"),
        ("pins[0]", "pins[0]"),
        ("cluster.tiers[0].bandwidth_bytes_per_s", "cluster.tiers[0].bandwidth_bytes_per_s"),
    ],
)
def test_the_fields_of_a_body_are_told_as_flags(said: str, field: str) -> None:
    refusal = problem(422, "invalid-input", field=said)
    with scripted(refusal) as server, PlannerClient(server.url) as client, pytest.raises(BadRequest) as caught:
        client.suggest(QUESTION)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("pointer", "field"),
    [
        ("/global_batch_size", "global-batch-size"),
        ("/pins/0", "pin"),
        ("/cluster/tiers/0/kind", "cluster.tiers[0].kind"),
        ("cursor", "cursor"),
        ("", ""),
    ],
)
def test_pointers_are_told_as_flags(pointer: str, field: str) -> None:
    assert field_of(pointer) == field


def test_what_json_does_not_have_is_not_sent() -> None:
    with scripted(DROPPED) as server, PlannerClient(server.url) as client:
        with pytest.raises(BadRequest, match="JSON"):
            client.measure(RunReport(plan_id=ID, step_time_s=float("nan")))
        assert server.seen == []


def test_waiting_gets_the_search_only_when_it_has_changed() -> None:
    running = Reply(body=search(), headers={"ETag": '"1"', "Retry-After": "0"})
    same = Reply(status=304, body=b"", headers={"ETag": '"1"', "Retry-After": "0"})
    done = Reply(body=answer(), headers={"ETag": '"2"'})
    with scripted(running, same, same, done) as server, PlannerClient(server.url) as client:
        assert isinstance(client.wait(ID), Answer)
        asked = [request.headers.get("if-none-match") for request in server.seen]
        assert asked == [None, '"1"', '"1"', '"1"']


def test_waiting_ends_when_its_time_is_up() -> None:
    running = Reply(body=search(), headers={"Retry-After": "20"})
    with scripted(running) as server, PlannerClient(server.url) as client:
        started = time.monotonic()
        assert client.wait(ID, wait_s=0.5).state == "running"
        assert time.monotonic() - started < 5.0
        with pytest.raises(StillSearching) as caught:
            client.suggest(QUESTION, wait_s=0.5)
    assert caught.value.search.id == ID
    assert ID in str(caught.value)


def test_searches_without_an_answer_are_errors() -> None:
    failed = search("failed", problem={"type": "lost", "detail": "its server died three times"})
    with scripted(Reply(body=failed), Reply(body=search("cancelled"))) as server, PlannerClient(server.url) as client:
        with pytest.raises(SearchFailed, match=f"search {ID} failed: its server died three times"):
            client.suggest(QUESTION)
        with pytest.raises(SearchCancelled, match=ID):
            client.suggest(QUESTION)


def test_a_newer_server_breaks_nothing_and_its_words_are_passed_on() -> None:
    newer = answer(carbon_kg=1.5) | {"status": "approximate"}
    with scripted(Reply(body=newer)) as server, PlannerClient(server.url) as client:
        found = client.suggest(QUESTION)
    assert found.status == "approximate"
    assert found.document()["carbon_kg"] == 1.5
    assert found.document() == newer


def event(number: int, kind: str) -> bytes:
    return f"event: {kind}\nid: {number}\ndata: {json.dumps({'n': number})}\n\n".encode()


def test_events_go_on_where_the_connection_broke() -> None:
    stream = "text/event-stream"
    replies = (
        Reply(body=b": ping\n\n" + event(1, "queued") + event(2, "running") + b"event: prog", kind=stream, drops=True),
        BUSY,
        Reply(body=event(3, "progress"), kind=stream),  # ends in good order: the server is about to stop
        Reply(body=search()),
        Reply(body=event(4, "done"), kind=stream),
    )
    with scripted(*replies) as server, PlannerClient(server.url) as client:
        found = list(client.events(ID))
        told = [request.headers.get("last-event-id") for request in server.seen]
    assert [(one.sequence, one.kind, one.data) for one in found] == [
        (1, "queued", {"n": 1}),
        (2, "running", {"n": 2}),
        (3, "progress", {"n": 3}),
        (4, "done", {"n": 4}),
    ]
    assert told == ["0", "2", "2", None, "3"]


def test_events_of_a_search_that_is_over_end() -> None:
    nothing = Reply(body=b"", kind="text/event-stream")
    with scripted(nothing, Reply(body=answer()), nothing) as server, PlannerClient(server.url) as client:
        assert list(client.events(ID, after=9)) == []


PLAN = {
    **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "dp_replicate", "dp_shard", "zero_stage"), 1),
    **dict.fromkeys(("micro_batch_size", "num_microbatches", "devices_used", "global_batch_size", "seq_len"), 1),
    **{"cp_comm_type": "p2p", "schedule": "1f1b", "recompute": "none", "offload": "none", "sequence_parallel": False},
    **{"layers_per_stage": [1], "layers_per_chunk": None, "recompute_modules": [], "recomputed_layers_per_stage": [0]},
    **{"precision": "bf16", "optimizer": "adamw", "framework": "f", "framework_version": "1"},
}
STUDY = {
    "id": ID, "name": "lab", "scenario_id": ID, "state": "open", "ended_because": "", "runner": "local",
    "most_trials": 2, "deadline": None, "steps": 3, "warm_up": 1, "seed": 0, "created_at": "2026-11-01T00:00:00Z",
    "ended_at": None, "candidates": 9, "best": None,
}  # fmt: skip
TRIAL = {
    "number": 0, "state": "running", "outcome": None, "reason": "", "origin": "search", "plan_id": ID,
    "plan": PLAN, "predicted_step_time_s": 1.0, "predicted_step_time_interval_s": [0.5, 2.0],
    "predicted_peak_bytes": 7, "measurement_id": None, "step_time_s": None, "measured_over_predicted": None,
    "peak_allocated_bytes": None, "peak_reserved_bytes": None, "created_at": "2026-11-01T00:00:00Z", "ended_at": None,
}  # fmt: skip


def test_events_of_a_study_are_told_once_each_whatever_breaks() -> None:
    def told(kind: str, data: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()

    stream, ran = "text/event-stream", TRIAL | {"state": "done", "outcome": "ok", "step_time_s": 1.5}
    begin = told("trial", TRIAL) + told("study", STUDY)
    replies = (
        Reply(body=b": listening\n\n" + begin, kind=stream, drops=True),
        BUSY,
        # In good order, and not over: the server is about to stop.
        Reply(body=begin + told("trial", ran), kind=stream),
        Reply(body=told("trial", ran) + told("done", STUDY | {"state": "done", "best": 0}), kind=stream),
    )
    with scripted(*replies) as server, PlannerClient(server.url) as client:
        found = list(client.study_events(ID))
    assert [event.kind for event in found] == ["trial", "study", "trial", "done"]
    assert [event.trial.step_time_s for event in found if event.trial] == [None, 1.5]
    assert [event.study.best for event in found if event.study] == [None, 0]


def test_lines_of_events_may_come_in_any_pieces() -> None:
    text = 'id: 7\r\nevent: a\r\ndata: {"x":\r\ndata:  "\u2028"}\r\n\r\ndata: last\n\ndata: cut off'.encode()
    whole = [Message(id="7", kind="a", data='{"x":\n "\u2028"}'), Message(id="7", kind="message", data="last")]
    assert list(messages([text])) == whole
    assert list(messages(text[place : place + 1] for place in range(len(text)))) == whole


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "ftp://planner", "", "http://", "http://h:99999", "http://h/?q=1", "http://a\nb", "planner"],
)
def test_an_address_that_can_not_be_used_is_said(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^server: .*is expected"):
        PlannerClient(url)


def test_no_error_shows_a_secret() -> None:
    for key in (f"{SECRET}\nX: y", f"{SECRET}\u00e9", f"{SECRET} {SECRET}", ""):
        with pytest.raises(InvalidInput) as caught:
            PlannerClient("http://127.0.0.1:1", key)
        assert SECRET not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        PlannerClient(f"http://me:{SECRET}@127.0.0.1:1")
    assert SECRET not in str(caught.value)


def test_the_key_is_sent_and_told_to_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refused = problem(401, "unauthorized")
    with scripted(refused, DROPPED) as server, PlannerClient(server.url, f"{SECRET}\n", retries=0) as client:
        errors = []
        for _ in range(2):
            with pytest.raises(PlannerError) as caught:
                client.models()
            errors.append(str(caught.value))
        assert {request.headers["authorization"] for request in server.seen} == {f"Bearer {SECRET}"}
        told = "\n".join([*errors, repr(client), caplog.text])
    assert SECRET not in told


def test_a_key_in_the_open_is_warned_about() -> None:
    with pytest.warns(UnencryptedKey, match=r"http://planner\.example"):
        PlannerClient("http://planner.example", SECRET).close()
    PlannerClient("https://planner.example", SECRET).close()
    PlannerClient("http://[::1]:8000", SECRET).close()
    PlannerClient("http://planner.example").close()
