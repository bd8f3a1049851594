"""What is only shown of a prediction, beside the figures that have columns of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it. Predictions that are there already have nothing more to show."""
    op.add_column("predictions", sa.Column("details", sa.JSON(), nullable=True))
