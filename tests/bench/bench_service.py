"""How many requests a server answers on one core, and how soon: ``python -m tests.bench.bench_service``.

A real ``planner serve`` on a database with a hundred thousand plans, held on one core; the load comes from a process on
another. The first line of each table is a route that does nothing: what the framework costs, and how fast this machine
is now, so that the other lines mean something beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from costmodel.fingerprint import digest
from db.records import NewSearch, PlanFilter
from db.store import Store
from planner.stored.records import result_of
from tests.bench.bench_store import fill
from tests.bench.load import Load, Seen
from tests.databases import binaries, running_server
from tests.e2e.servers import SMALL, Server, lasting, serving
from tests.processes import eventually

PLANS_ASKED = 2_000
SEARCHES = 600
"""More than a server keeps rendered, so that asked in turn each comes from the database."""
TRIES = 3
AT_LEAST_PER_S = 300.0
ANSWERED_WITHIN_MS = 50.0
LISTED_WITHIN_MS = 100.0
_LISTS: dict[str, dict[str, Any]] = {
    "list, newest": {},
    "list, fastest": {"sort": "step_time_s"},
    "list of a model, by MFU": {"model": "model-3", "sort": "-mfu"},
    "list of slow models, fastest": {"model": "model-19", "sort": "step_time_s"},
    "list by cluster and axes": {"cluster": "cluster-0", "tp": 8, "pp": 4, "sort": "step_time_s"},
    "list by accelerator, memory": {"accelerator": "accelerator-2", "max_peak_bytes": 30 * 2**30, "sort": "-mfu"},
    "list by rare axes": {"tp": 8, "pp": 16, "recompute": "full", "sort": "step_time_s"},
    "list, nothing found": {"schedule": "gpipe", "sort": "step_time_s"},
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table, with what is demanded of it.

    Attributes:
        cpu_ms: what the server's process computes for one answer, whoever else uses its core.
    """

    name: str
    seen: Seen
    cpu_ms: float
    per_second: float | None = None
    p99_ms: float | None = None
    status: str = "200"

    @property
    def good(self) -> bool:
        """Whether it is fast enough, and every answer was the one expected."""
        fast = self.per_second is None or self.seen.per_second >= self.per_second
        soon = self.p99_ms is None or self.seen.p99_ms < self.p99_ms
        return fast and soon and set(self.seen.statuses) == {self.status}


def main() -> int:
    """Print a table per database; 1 if something is too slow."""
    with TemporaryDirectory() as folder:
        good = _measured(f"sqlite:///{Path(folder) / 'bench.db'}", Path(folder))
        if binaries() is None:
            print("\npostgresql: not installed")
            return int(not good)
        with running_server() as postgresql:
            good = _measured(postgresql.create(), Path(folder)) and good
    return int(not good)


def _measured(url: str, folder: Path) -> bool:
    with Store.open(url) as store:
        backend = store.backend
        fill(store)
    cores = sorted(os.sched_getaffinity(0))
    with _pinned({cores[0]}), serving(url, folder, log_level="info") as server:
        os.sched_setaffinity(0, set(cores[1:]) or set(cores))
        searches, plans = _stored(server, url)
        for worker in server.workers:
            _move(worker, set(cores[1:]) or set(cores))
        print(f"\n{backend}: one core, {Load.connections} connections, logs as usual")
        print(f"{'request':34}{'KiB':>7}{'cpu ms':>8}{'per s':>8}{'p50 ms':>8}{'p99 ms':>8}   {'wanted':22} verdict")
        lines = list(_lines(server, searches, plans))
    return all(line.good for line in lines)


def _lines(server: Server, searches: list[str], plans: list[str]) -> Iterator[Line]:
    answered = [_post(server, "/v1/searches", SMALL | {"seed": seed}) for seed in range(100)]
    given: dict[str, list[str]] = {
        "one answered search": [_get(server, f"/v1/searches/{searches[0]}")],
        f"{len(searches)} answered searches": [_get(server, f"/v1/searches/{id}") for id in searches],
        "one plan": [_get(server, f"/v1/plans/{plans[0]}")],
        f"{len(plans)} plans": [_get(server, f"/v1/plans/{id}") for id in plans],
        "an answered question, POST": answered,
    }
    alive = [_get(server, "/healthz")]
    many, alone = Load.connections, 1
    yield _told(_driven(server, "does nothing (/healthz)", alive, many))
    for name, requests in given.items():
        yield _told(_driven(server, name, requests, many, per_second=AT_LEAST_PER_S, p99_ms=ANSWERED_WITHIN_MS))
    for name, query in _LISTS.items():
        requests = [_get(server, f"/v1/plans?{urlencode(query)}")]
        yield _told(_driven(server, name, requests, alone, p99_ms=LISTED_WITHIN_MS))
    busy = server.ask(lasting(60)).json()["id"]
    assert eventually(lambda: server.state(busy) == "running", 30.0)
    yield _told(_driven(server, "/healthz while it searches", alive, alone, p99_ms=ANSWERED_WITHIN_MS))
    assert server.state(busy) == "running"
    assert server.client.post(f"/v1/searches/{busy}/cancel").status_code in (200, 202)
    yield _told(_driven(server, "does nothing (/healthz)", alive, many))


def _told(line: Line) -> Line:
    seen, wanted = line.seen, []
    if line.per_second is not None:
        wanted.append(f">= {line.per_second:g}/s")
    if line.p99_ms is not None:
        wanted.append(f"p99 < {line.p99_ms:g} ms")
    verdict = ("good" if line.good else f"MISSED {seen.statuses}") if wanted else "for comparison"
    figures = (
        f"{seen.bytes_each / 1024:7.1f}{line.cpu_ms:8.2f}{seen.per_second:8.0f}{seen.p50_ms:8.1f}{seen.p99_ms:8.1f}"
    )
    print(f"{line.name:34}{figures}   {', '.join(wanted):22} {verdict}", flush=True)
    return line


def _stored(server: Server, url: str) -> tuple[list[str], list[str]]:
    """Ids of searches with ten plans each, and of plans: real answers, stored many times over under other keys."""
    answer = server.ask(SMALL | {"top": 10}, wait=60).json()
    with Store.open(url) as store, store.writing() as repos:
        first = repos.searches.get(answer["id"])
        assert first is not None
        assert len(answer["plans"]) == 10
        assert first.finished_at is not None
        fields = {name: getattr(first, name) for name in NewSearch.__dataclass_fields__}
        result = replace(result_of(answer, first.finished_at), plans=repos.plans.of_search(first.id))
        copies = [_copy(fields, number) for number in range(SEARCHES)]
        searches = [repos.searches.store_answer(copy, result, first.finished_at).id for copy in copies]
        page = repos.plans.list(PlanFilter(), "step_time_s", None, PLANS_ASKED)
    return searches, [plan.id for plan in page.items]


def _copy(fields: dict[str, Any], number: int) -> NewSearch:
    keys = {name: digest([name, number]) for name in ("id", "key", "problem_key")}
    return NewSearch(**{**fields, **keys})


def _driven(server: Server, name: str, requests: list[str], connections: int, **wanted: float) -> Line:
    """One line; what misses is measured again, since others may use these cores too."""
    for _ in range(TRIES):
        line = _driven_once(server, name, requests, connections, **wanted)
        if line.good:
            break
    return line


def _driven_once(server: Server, name: str, requests: list[str], connections: int, **wanted: float) -> Line:
    load = Load(port=server.port, requests=requests, connections=connections)
    before = _cpu_s(server.process.pid)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench.load"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60.0,
    )
    seen = Seen(**json.loads(ended.stdout))
    return Line(name=name, seen=seen, cpu_ms=1e3 * (_cpu_s(server.process.pid) - before) / seen.answered, **wanted)


def _cpu_s(pid: int) -> float:
    """Processor seconds of a process so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _get(server: Server, path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"


def _post(server: Server, path: str, body: dict[str, Any]) -> str:
    content = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n{content}"


@contextmanager
def _pinned(cores: set[int]) -> Iterator[None]:
    """What is started in the block stays on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _move(pid: int, cores: set[int]) -> None:
    """Move a process that has started, with all of its threads."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


if __name__ == "__main__":
    sys.exit(main())
