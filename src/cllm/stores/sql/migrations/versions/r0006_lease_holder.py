"""In SQLite, leases and claims of requests name the lock of their process.

The lease of a dead process is free at once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("leases", "requests")


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for table in TABLES:
            op.add_column(table, sa.Column("holder", sa.Text))


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for table in TABLES:
            op.drop_column(table, "holder")
