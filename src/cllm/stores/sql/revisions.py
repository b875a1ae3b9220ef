"""Which revision a database has to be at. Imports nothing, for stores that only have to look."""

REVISIONS = ("0001", "0002", "0005")
UNRELEASED = ("0003", "0004")
"""Revisions that no release had; `0005` does what they did."""
HEAD = REVISIONS[-1]
VERSION_TABLE = "cllm_revision"
