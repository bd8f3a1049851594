"""A load generator in a process of its own: as many requests as a few connections get answered, one after the other.

It is told what to do as JSON on stdin and tells what it saw as JSON on stdout. It speaks just enough HTTP to keep a
connection open, since a real client costs more than the server that it is to measure.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from time import perf_counter


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send.

    Attributes:
        requests: whole requests as text, sent in turn, again and again.
        connections: each sends its next request as soon as it has the answer to the last one.
        seconds: for how long.
        warm_up_s: so long is not counted, at the beginning.
    """

    port: int
    requests: list[str]
    connections: int = 8
    seconds: float = 4.0
    warm_up_s: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What came back.

    Attributes:
        answered: answers in all, those of the warm-up with them; everything else leaves these out.
    """

    answered: int
    per_second: float
    p50_ms: float
    p99_ms: float
    bytes_each: float
    statuses: dict[str, int]


async def _drive(load: Load) -> Seen:
    times: list[float] = []
    statuses: Counter[str] = Counter()
    sizes = answered = 0
    begin = perf_counter() + load.warm_up_s
    end = begin + load.seconds

    async def connection(number: int) -> None:
        nonlocal sizes, answered
        reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
        encoded = [text.encode() for text in load.requests]
        try:
            # Connections begin at different requests, so that they don't all ask for one thing at one time.
            for request in islice(cycle(encoded), number * len(encoded) // load.connections, None):
                started = perf_counter()
                if started >= end:
                    return
                writer.write(request)
                status, size = await _answer(reader)
                finished = perf_counter()
                answered += 1
                if started >= begin:
                    times.append(finished - started)
                    statuses[status] += 1
                    sizes += size
        finally:
            writer.close()

    await asyncio.gather(*(connection(number) for number in range(load.connections)))
    times.sort()
    return Seen(
        answered=answered,
        per_second=len(times) / load.seconds,
        p50_ms=1e3 * times[len(times) // 2],
        p99_ms=1e3 * times[min(len(times) - 1, len(times) * 99 // 100)],
        bytes_each=sizes / len(times),
        statuses=dict(statuses),
    )


async def _answer(reader: asyncio.StreamReader) -> tuple[str, int]:
    """Status and size of a response, read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    _, _, length = head.partition("\r\ncontent-length:")
    size = int(length.partition("\r\n")[0])
    await reader.readexactly(size)
    return head.split(" ", 2)[1], size


def main() -> None:
    """Drive the load that stdin describes."""
    seen = asyncio.run(_drive(Load(**json.load(sys.stdin))))
    json.dump(asdict(seen), sys.stdout)


if __name__ == "__main__":
    main()
