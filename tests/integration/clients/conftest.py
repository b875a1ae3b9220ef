from tests.replay_stores import (
    clock,
    emptied_database,
    opened_store,
    postgres_server,
    shared_database,
    store,
)

__all__ = [
    "clock",
    "emptied_database",
    "opened_store",
    "postgres_server",
    "shared_database",
    "store",
]
