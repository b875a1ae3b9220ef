"""System messages are not stored: their column goes, and with it what was in it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("conversations", "system_message")


def downgrade() -> None:
    op.add_column(
        "conversations",
        sa.Column(
            "system_message",
            sa.Text,
            nullable=False,
            server_default="You are a helpful assistant.",
        ),
    )
