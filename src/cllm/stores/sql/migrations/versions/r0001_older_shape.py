"""The shape of older deployments: conversations with a stored system message, and messages."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

DEFAULT_SYSTEM_MESSAGE = "You are a helpful assistant."


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("user_id", sa.Uuid),
        sa.Column("title", sa.Text),
        sa.Column("system_message", sa.Text, nullable=False, server_default=DEFAULT_SYSTEM_MESSAGE),
        sa.Column("created_at", sa.DateTime, nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", sa.DateTime, nullable=False, server_default=sa.func.now()),
        sa.Column("archived_at", sa.DateTime),
        sa.Column("metadata", sa.JSON, nullable=False, server_default="{}"),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column(
            "conversation_id",
            sa.Uuid,
            sa.ForeignKey("conversations.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("role", sa.String(50), nullable=False),
        sa.Column("content", sa.Text),
        sa.Column("reasoning_events", sa.JSON),
        sa.Column("metadata", sa.JSON, nullable=False, server_default="{}"),
        sa.Column("total_cost", sa.Numeric(10, 6)),
        sa.Column("created_at", sa.DateTime, nullable=False, server_default=sa.func.now()),
        sa.Column("sequence_number", sa.Integer, nullable=False),
        sa.UniqueConstraint("conversation_id", "sequence_number"),
    )


def downgrade() -> None:
    op.drop_table("messages")
    op.drop_table("conversations")
