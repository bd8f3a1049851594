"""``worker_process.py URL LAUNCH FOLDER STUDY LEASE``: a worker on one study, until it is over."""

from __future__ import annotations

import sys
from pathlib import Path

from db.store import Store
from planner.studying.runners import runner_named
from planner.studying.worker import Worker


def main(url: str, launch: str, folder: str, study: str, lease_s: str) -> None:
    with Store.open(url) as store:
        runners = {name: runner_named(name, launch) for name in ("command", "slurm")}
        worker = Worker(store=store, runners=runners, folder=Path(folder), lease_s=float(lease_s), heard=heard)
        worker.run(study)


def heard(_: object, said: str) -> None:
    sys.stderr.write(f"{said}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
