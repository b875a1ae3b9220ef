"""Which revision a database has to be at. Imports nothing, for stores that only have to look."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005")
HEAD = REVISIONS[-1]
VERSION_TABLE = "cllm_revision"
