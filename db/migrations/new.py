"""Write a new revision: ``python -m db.migrations.new 0003 "what it does"``, from a source checkout.

It holds what differs between the newest revision and ``db.tables``; read it, and add it to ``db.revisions``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command

from db.engine import engine_of
from db.schema import config_for, upgrade
from db.urls import database_url


def main(revision: str, message: str) -> None:
    """Write it into ``versions``."""
    with TemporaryDirectory() as folder:
        database = database_url(f"sqlite:///{Path(folder) / 'head.db'}")
        upgrade(database)
        engine = engine_of(database, for_upgrade=True)
        with engine.begin() as connection:
            command.revision(config_for(connection), message, autogenerate=True, rev_id=revision)


if __name__ == "__main__":
    main(*sys.argv[1:])
