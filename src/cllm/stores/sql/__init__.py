"""Code that the SQLite and PostgreSQL stores share: schema, rows, validation, migrations.

The required revision is here, so that a store imports nothing to check it.
"""

REVISIONS = ("0001", "0002", "0005", "0006", "0007", "0008")
UNRELEASED_REVISIONS = ("0003", "0004")
"""Revisions of development versions only; `0005` replaces them."""
HEAD = REVISIONS[-1]
VERSION_TABLE = "cllm_revision"
