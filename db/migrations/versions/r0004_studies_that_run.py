"""What studies may run, and who runs what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_STUDY_STATES = ("preparing", "open", "done", "stopped", "failed")
_OUTCOMES = ("ok", "stopped", "out_of_memory", "failed")
_RUNS = "state = 'running'"


def upgrade() -> None:
    """Add it. Studies that are there already are over: nothing could run them."""
    moment, whole = sa.DateTime(timezone=True), sa.Integer()
    with op.batch_alter_table("studies") as studies:
        studies.add_column(sa.Column("state", sa.Text(), nullable=False, server_default="done"))
        studies.add_column(sa.Column("settings", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
        studies.add_column(sa.Column("runner", sa.Text(), nullable=False, server_default=""))
        studies.add_column(sa.Column("most_trials", whole, nullable=False, server_default="0"))
        studies.add_column(sa.Column("deadline", moment, nullable=True))
        studies.add_column(sa.Column("attempt", whole, nullable=False, server_default="0"))
        studies.add_column(sa.Column("owner", sa.Text(), nullable=True))
        studies.add_column(sa.Column("lease_until", moment, nullable=True))
        studies.add_column(sa.Column("ended_at", moment, nullable=True))
        studies.add_column(sa.Column("ended_because", sa.Text(), nullable=False, server_default=""))
        studies.create_check_constraint(op.f("ck_studies_state"), f"state IN {_STUDY_STATES}")
        studies.create_index("ix_studies_created_at_id", ["created_at", "id"])
    op.create_table(
        "study_candidates",
        sa.Column("study_id", sa.String(length=32), nullable=False),
        sa.Column("place", whole, nullable=False),
        sa.Column("plan_id", sa.String(length=32), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name="fk_study_candidates_study_id_studies", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_study_candidates_plan_id_plans"),
        sa.PrimaryKeyConstraint("study_id", "place", name="pk_study_candidates"),
    )
    op.create_index("ix_study_candidates_plan_id", "study_candidates", ["plan_id"])
    op.create_table(
        "trials",
        sa.Column("study_id", sa.String(length=32), nullable=False),
        sa.Column("number", whole, nullable=False),
        sa.Column("place", whole, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("attempt", whole, nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_until", moment, nullable=True),
        sa.Column("handle", sa.Text(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("ended_at", moment, nullable=True),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.CheckConstraint("state IN ('running', 'done')", name=op.f("ck_trials_state")),
        sa.CheckConstraint(f"outcome IN {_OUTCOMES}", name=op.f("ck_trials_outcome")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_trials_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("study_id", "number", name="pk_trials"),
        sa.UniqueConstraint("study_id", "place", name="uq_trials_study_id_place"),
    )
    op.create_index(
        "ix_trials_running",
        "trials",
        ["lease_until"],
        sqlite_where=sa.text(_RUNS),
        postgresql_where=sa.text(_RUNS),
    )
