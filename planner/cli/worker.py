"""``planner worker``: searches, or trials of studies, for others, without serving anybody."""

from __future__ import annotations

import logging.config
import queue
import signal
from typing import Annotated

import typer

from costmodel.errors import InvalidInput
from planner.cli.exits import tell
from planner.cli.service_options import check_service_options
from planner.slots import default_slots

_GRACE_S = 10.0


def worker(
    slots: Annotated[
        int | None,
        typer.Option(help="Searches at once, each in a process of its own; cores less one by default, at most 4."),
    ] = None,
    runner: Annotated[
        list[str] | None,
        typer.Option(help="Run trials of studies, not searches: local, command or slurm. Repeat it for more."),
    ] = None,
    launch: Annotated[str | None, typer.Option(help="TOML file: how command and slurm start trials.")] = None,
    study: Annotated[str | None, typer.Option(help="Only the study of that name, and only until it is over.")] = None,
    folder: Annotated[str | None, typer.Option(help="Where trials have their files.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    config: Annotated[str | None, typer.Option(help="TOML file with defaults for these options.")] = None,
) -> None:
    """Run the searches that servers queue in PostgreSQL (PLANNER_DATABASE_URL), until SIGTERM or Ctrl-C.

    With --runner the trials of studies instead, of those that have one of these runners; on SQLite too, where all
    workers are on one host. Exit codes: 0 stopped, or the study is over, 2 bad input, 5 failed.
    """
    check_service_options(slots, log_level)
    for option, value in (("launch", launch), ("study", study), ("folder", folder)):
        if value is not None and not runner:
            raise InvalidInput(option, value, "it is about studies: say with --runner where trials run")
    if runner:
        if slots is not None:
            raise InvalidInput("slots", slots, "it is about searches, and --runner asks for trials: leave one out")
        from planner.cli.studies_worker import work_on_studies

        work_on_studies(runner, launch=launch, study=study, folder=folder, log_level=log_level)
        return

    from db.urls import database_url

    database = database_url()
    if database.backend == "sqlite":
        raise InvalidInput(
            "database-url",
            database.shown,
            "several processes need PostgreSQL: set PLANNER_DATABASE_URL=postgresql://...; on SQLite, planner serve "
            "does its searches itself",
        )
    _run(slots or default_slots(), log_level)


def _run(slots: int, log_level: str) -> None:
    from db.store import Store
    from planner.logs import log_config
    from planner.serving import search_runner

    logging.config.dictConfig(log_config(log_level.upper()))
    # A queue, since a signal handler may fill that in the middle of anything.
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: asked.put(received))
    with Store.open() as store:
        runner = search_runner(store, slots)
        runner.start()
        tell(f"planner: searching for {store.shown_url}, {slots} at once")
        asked.get()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.default_int_handler)
        try:
            runner.close(_GRACE_S)
        except KeyboardInterrupt:  # asked twice: what runs is put back now
            runner.close()
