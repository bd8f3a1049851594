"""What happens to a search, as it happens; a lost connection is taken up where it broke."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from planner.client.answers import OVER, SearchEvent
from planner.client.calls import Calls, segment
from planner.client.errors import ServerFailed, ServerUnavailable
from planner.client.listening import messages
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
            for event in _until_it_breaks(transport, calls, f"{path}/events", last):
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


def _until_it_breaks(transport: Transport, calls: Calls, path: str, after: int) -> Iterator[SearchEvent]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    call = Call(method="GET", path=path, headers=headers)
    with transport.streaming(call, silent_s=_LONGEST_SILENCE_S) as response:
        for message in messages(response.iter_bytes()):
            try:
                data = json.loads(message.data)
            except ValueError:
                raise ServerFailed(f"{transport.url} sends an event that is not JSON") from None
            yield calls.read(SearchEvent, {"sequence": message.id, "kind": message.kind, "data": data})
