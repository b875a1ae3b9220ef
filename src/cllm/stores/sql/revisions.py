"""Which revision a database has to be at. Imports nothing, for stores that only have to look."""

HEAD = "0003"
VERSION_TABLE = "cllm_revision"
