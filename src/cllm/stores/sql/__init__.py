"""What the stores in SQLite and PostgreSQL share: schema, rows, search, migrations.

The required revision is here, so that a store imports nothing to check it.
"""

REVISIONS = ("0001", "0002", "0005")
UNRELEASED_REVISIONS = ("0003", "0004")
"""Revisions that no release had; `0005` does what they did."""
HEAD = REVISIONS[-1]
VERSION_TABLE = "cllm_revision"
