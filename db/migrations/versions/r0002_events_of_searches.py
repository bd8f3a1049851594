"""What happened to a search, in order; the end of the log of a measured run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them. Searches that are there already get the events that their own moments tell."""
    events = op.create_table(
        "search_events",
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["search_id"], ["searches.id"], name="fk_search_events_search_id_searches", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("search_id", "sequence", name="pk_search_events"),
    )
    op.add_column("measurements", sa.Column("log_tail", sa.Text(), nullable=False, server_default=""))

    moments = {
        name: sa.column(name, sa.DateTime(timezone=True)) for name in ("created_at", "started_at", "finished_at")
    }
    searches = sa.table("searches", sa.column("id", sa.Text()), sa.column("state", sa.Text()), *moments.values())
    # The position among a search's events, and what tells of each.
    steps = (
        (sa.literal("queued"), moments["created_at"], sa.true()),
        (sa.literal("running"), moments["started_at"], moments["started_at"].is_not(None)),
        (searches.c.state, moments["finished_at"], moments["finished_at"].is_not(None)),
    )
    for position, (kind, moment, happened) in enumerate(steps, start=1):
        # A search that was cancelled while it waited never ran: its end comes second.
        sequence = sa.case((moments["started_at"].is_(None), min(position, 2)), else_=position)
        rows = sa.select(searches.c.id, sequence, kind, sa.literal({}, sa.JSON()), moment).where(happened)
        op.execute(events.insert().from_select(["search_id", "sequence", "kind", "data", "created_at"], rows))
