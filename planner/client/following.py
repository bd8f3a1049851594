"""What happens to a search or a study, as it happens; a lost connection is taken up again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from planner.client import studies
from planner.client.answers import OVER, SearchEvent
from planner.client.calls import Calls, segment
from planner.client.errors import ServerFailed, ServerUnavailable
from planner.client.listening import Message, messages
from planner.client.studies import FollowedStudy, StudyEvent, Trial
from planner.client.transport import Call, Transport

# The server says something at least every 15 s, be it that it is there.
_LONGEST_SILENCE_S = 45.0


def events_of(transport: Transport, calls: Calls, search_id: str, after: int) -> Iterator[SearchEvent]:
    """The events of a search after number ``after``, until it is over.

    Raises:
        ServerUnavailable: the connection was lost and could not be made again.
    """
    path = f"/v1/searches/{segment(search_id)}"
    last, lost, was_over = after, 0, False
    while True:
        try:
            for message, data in _until_it_breaks(transport, f"{path}/events", str(last)):
                event = calls.read(SearchEvent, {"sequence": message.id, "kind": message.kind, "data": data})
                last, lost = event.sequence, 0
                yield event
                if event.kind in OVER:
                    return
        except ServerUnavailable:
            if lost >= transport.retries:
                raise
        else:
            # It ended in good order: nothing is left to be told, or the server is about to stop.
            if was_over:
                return
            was_over = calls.read_search(transport.document(Call(method="GET", path=path))).is_over
            if was_over:
                continue
        time.sleep(transport.backoff.pause(lost))
        lost += 1


def study_events_of(transport: Transport, calls: Calls, study_id: str) -> Iterator[StudyEvent]:
    """How a study stands and what changes, until nothing of it runs any more; nothing is told twice.

    Raises:
        ServerUnavailable: the connection was lost and could not be made again.
    """
    path = f"/v1/studies/{segment(study_id)}/events"
    told: dict[int | None, Any] = {}
    lost = 0
    while True:
        try:
            for message, data in _until_it_breaks(transport, path, None):
                event, lost = _study_event(calls, message, data), 0
                # Whoever comes back is told everything anew.
                about = None if event.trial is None else event.trial.number
                if told.get(about) != (event.kind, data):
                    told[about] = event.kind, data
                    yield event
                if event.kind in studies.OVER:
                    return
        except ServerUnavailable:
            if lost >= transport.retries:
                raise
        # Where it ended in good order, the server is about to stop: another one takes its place.
        time.sleep(transport.backoff.pause(lost))
        lost += 1


def _study_event(calls: Calls, message: Message, data: Any) -> StudyEvent:
    if message.kind == "trial":
        return StudyEvent(kind=message.kind, trial=calls.read(Trial, data))
    return StudyEvent(kind=message.kind, study=calls.read(FollowedStudy, data))


def _until_it_breaks(transport: Transport, path: str, after: str | None) -> Iterator[tuple[Message, Any]]:
    """Events with their JSON."""
    headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": after})
    call = Call(method="GET", path=path, headers=headers)
    with transport.streaming(call, silent_s=_LONGEST_SILENCE_S) as response:
        for message in messages(response.iter_bytes()):
            try:
                data = json.loads(message.data)
            except ValueError:
                raise ServerFailed(f"{transport.url} sends an event that is not JSON") from None
            yield message, data
