"""``planner worker --runner``: trials of studies that others opened, at the API or with ``planner tune``."""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Sequence
from pathlib import Path

from costmodel.errors import InvalidInput
from db import records
from db.store import Store
from planner.cli.exits import tell
from planner.cli.stopping import told_to_stop
from planner.logs import log_config
from planner.studying.folders import trials_folder
from planner.studying.runners import runner_named
from planner.studying.worker import Worker

_log = logging.getLogger("planner.studying")


def work_on_studies(
    names: Sequence[str], *, launch: str | None, study: str | None, folder: str | None, log_level: str
) -> None:
    """Run trials until a signal comes, or until the study of that name is over.

    Raises:
        InvalidInput: a runner or the launch file is unusable, or there is no such study for these runners.
    """
    runners = {name: runner_named(name, launch) for name in dict.fromkeys(names)}
    logging.config.dictConfig(log_config(log_level.upper()))
    with Store.open() as store:
        found = None if study is None else _study_named(store, study, names)
        files = Path(folder) if folder else trials_folder()
        worker = Worker(store=store, runners=runners, folder=files, heard=_log_it)
        about = "studies" if study is None else f"study {study}"
        with told_to_stop(worker.stopping.set):
            tell(f"planner: running trials of {about} in {store.shown_url}, by {', '.join(runners)}")
            worker.run(None if found is None else found.id)


def _study_named(store: Store, name: str, runners: Sequence[str]) -> records.Study:
    with store.reading() as repos:
        found = repos.studies.named(name)
    if found is None:
        raise InvalidInput("study", name, "no study of that name is stored")
    if found.runner not in runners:
        raise InvalidInput("study", name, f"its trials run by {found.runner}: say --runner {found.runner}")
    return found


def _log_it(study: records.Study, said: str) -> None:
    _log.info(said, extra={"study": study.name, "study_id": study.id})
