"""What alembic runs: the revisions, on the connection and in the transaction of ``db.schema``."""

from __future__ import annotations

from alembic import context

from db.drift import options

context.configure(connection=context.config.attributes["connection"], **options())
with context.begin_transaction():
    context.run_migrations()
