"""``planner serve``: the API and the pages."""

from __future__ import annotations

import logging.config
import os
import signal
import socket
from datetime import UTC, datetime
from typing import Annotated

import typer

from costmodel.catalog import folders
from costmodel.errors import InvalidInput, PlannerError
from planner.cli.exits import tell
from planner.cli.service_options import check_service_options
from planner.loopback import is_loopback

_CLOSES_WITHIN_S = 10
_BACKLOG = 1024
_LAST_PORT = 65_535


class CannotListen(PlannerError):
    """The address is taken, is not ours, or needs rights that we lack."""


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; anything but loopback needs API keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    slots: Annotated[
        int | None, typer.Option(help="Searches at once, each in a process of its own; cores less one by default.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    require_keys: Annotated[bool, typer.Option("--require-keys", help="Ask for API keys on loopback too.")] = False,
    config: Annotated[str | None, typer.Option(help="TOML file with defaults for these options.")] = None,
) -> None:
    """Serve the API under /v1 and pages for people, until SIGTERM or Ctrl-C.

    Exit codes: 0 stopped, 2 bad input, 5 failed.
    """
    check_service_options(slots, log_level)
    if not 0 <= port <= _LAST_PORT:
        raise InvalidInput("port", port, f"it must lie in 0..{_LAST_PORT}")
    needs_keys = require_keys or not is_loopback(host)
    folders.user_dir()
    _check_store(needs_keys=needs_keys, host=host)
    listening = _listen(host, port)
    os.environ["PLANNER_SERVE_KEYS"] = "required" if needs_keys else "none"
    if slots is not None:
        os.environ["PLANNER_SLOTS"] = str(slots)

    import uvicorn

    from planner.logs import log_config

    logs = log_config(log_level.upper())
    logging.config.dictConfig(logs)
    server = uvicorn.Server(
        uvicorn.Config(
            "api.app:create_app",
            factory=True,
            http="api.connections:PatientProtocol",
            log_config=logs,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSES_WITHIN_S,
        )
    )
    shown = f"[{host}]" if ":" in host else host
    tell(f"planner: serving on http://{shown}:{listening.getsockname()[1]} (API keys: {'yes' if needs_keys else 'no'})")

    # The server raises the signals that ended it once more when all is closed: by then there is nothing left to end,
    # and to have stopped as asked is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    server.run(sockets=[listening])
    if not server.started:
        raise PlannerError("the server did not start; the log above says why")


def _check_store(*, needs_keys: bool, host: str) -> None:
    """What would keep the server from starting is said here, in a line, before anything listens."""
    from db.store import Store

    store = Store.open()
    try:
        store.lock_for_serving()
        with store.reading() as repos:
            usable = any(key.is_valid(datetime.now(UTC)) for key in repos.api_keys.list())
    finally:
        store.close()
    if needs_keys and not usable:
        raise InvalidInput(
            "host",
            host,
            "API keys are asked for and there is none; make one with: planner keys create --name NAME --scope write",
        )


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, or the reason why there is none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        raise CannotListen(f"can't listen on {host} port {port}: {error.strerror or error}") from None
    return listening
