"""Servers as processes of their own, as users run them: started, asked, stopped, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from db.urls import VARIABLE
from tests.processes import children, eventually

SMALL: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "devices": 64,
    "global_batch_size": 256,
    "seq_len": 8192,
}
"""A question of half a second."""
MEDIUM: dict[str, Any] = {
    "model": "deepseek-v3",
    "cluster": "dgx-h100",
    "devices": 2048,
    "global_batch_size": 8192,
    "seq_len": 4096,
    "top": 50,
}
"""A question of some three seconds, and proven then."""

_STARTS_WITHIN_S = 40.0
_ANSWERS_WITHIN_S = 60.0
_ADDRESS = re.compile(r"serving on http://\S+:(\d+) ")


def lasting(seconds: float) -> dict[str, Any]:
    """A question whose search takes that long on any machine: a minute's work under a deadline."""
    return MEDIUM | {"global_batch_size": 15360, "top": 200, "max_seconds": seconds}


class Server:
    """One ``planner serve``.

    Attributes:
        log: the file of its stderr.
        client: talks to it; has the API key, if there is one.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path, host: str, port: int, key: str | None) -> None:
        self.process, self.log, self.port = process, log, port
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        # Loopback only, whatever proxies the environment names; no TLS, whose certificates take long to load.
        self.client = httpx.Client(
            base_url=f"http://{host}:{port}",
            headers=headers,
            trust_env=False,
            verify=False,
            timeout=_ANSWERS_WITHIN_S,
            limits=httpx.Limits(max_connections=100),
        )

    @property
    def address(self) -> str:
        """Where it serves, without a slash at the end."""
        return str(self.client.base_url).rstrip("/")

    @property
    def workers(self) -> list[int]:
        """Ids of its processes that search."""
        return children(self.process.pid)

    def ask(self, question: Mapping[str, Any], wait: float | None = None, **headers: str) -> httpx.Response:
        """POST a question; ``wait`` is told by ``Prefer``."""
        if wait is not None:
            headers = headers | {"Prefer": f"wait={wait:g}"}
        return self.client.post("/v1/searches", json=dict(question), headers=headers)

    def search(self, search_id: str) -> dict[str, Any]:
        """A search as this server shows it."""
        response = self.client.get(f"/v1/searches/{search_id}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def state(self, search_id: str) -> str:
        """Of a search, as this server shows it."""
        return str(self.search(search_id)["state"])

    def finished(self, search_id: str, seconds: float = _ANSWERS_WITHIN_S) -> dict[str, Any]:
        """A search once it is over."""
        over = ("done", "failed", "cancelled")
        assert eventually(lambda: self.state(search_id) in over, seconds), self.search(search_id)
        return self.search(search_id)

    def events(self, search_id: str) -> list[str]:
        """What happened to a search, listened to until it is over or the server ends the stream."""
        with self.client.stream("GET", f"/v1/searches/{search_id}/events") as response:
            assert response.status_code == 200
            lines = list(response.iter_lines())
        return [line.removeprefix("event: ") for line in lines if line.startswith("event:")]

    def kill(self) -> list[int]:
        """End it as the kernel does when memory runs out; what its workers' ids were."""
        workers = self.workers
        self.process.kill()
        self.process.wait()
        return workers

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Ask it to end; exit code, and how many seconds that took."""
        started = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(30.0), time.monotonic() - started

    def written(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def complaints(self) -> list[str]:
        """Lines of its log that tell of errors, or hold tracebacks."""
        return [line for line in self.written().splitlines() if '"level": "ERROR"' in line or "Traceback" in line]

    def tracebacks(self) -> list[str]:
        """Lines of its log that hold a traceback: what happens to it from outside is told without one."""
        return [line for line in self.written().splitlines() if "Traceback" in line]

    def tail(self) -> str:
        """The end of its log, for a test that fails."""
        return self.written()[-3_000:]


def serve_command(*options: str) -> list[str]:
    """The command that starts a server."""
    return [sys.executable, "-m", "planner.cli.main", "serve", *options]


def environment_of(url: str) -> dict[str, str]:
    """Where a server finds its database; nothing else of what a developer's shell says about ours."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PLANNER_")}
    return ours | {VARIABLE: url}


@contextmanager
def serving(
    url: str,
    folder: Path,
    *options: str,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    log_level: str = "info",
    **environment: str,
) -> Iterator[Server]:
    """A server that is ready, killed at the end of the block if it still runs.

    Args:
        folder: where its log is written.
        port: 0 for a free one.
        key: the API key that it will be asked with.
        environment: further variables.
    """
    log = folder / f"serve-{time.monotonic_ns()}.log"
    command = serve_command("--host", host, "--port", str(port), "--slots", "1", "--log-level", log_level, *options)
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env=environment_of(url) | environment,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            process_group=0,
        )
    try:
        server = Server(process, log, host, _port_of(process, log), key)
        with server.client:
            assert eventually(lambda: _ready(server), _STARTS_WITHIN_S), server.tail()
            yield server
    finally:
        # Also one that was frozen; its workers end with it.
        process.kill()
        process.wait()


def _port_of(process: subprocess.Popen[bytes], log: Path) -> int:
    def written() -> re.Match[str] | None:
        return _ADDRESS.search(log.read_text(encoding="utf-8", errors="replace"))

    said = eventually(lambda: written() is not None or process.poll() is not None, _STARTS_WITHIN_S)
    match = written()
    assert said, "it says nothing"
    assert match is not None, log.read_text(encoding="utf-8", errors="replace")
    return int(match[1])


def _ready(server: Server) -> bool:
    try:
        return server.client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
