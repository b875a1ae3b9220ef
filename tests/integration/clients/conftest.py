from tests.replay_stores import clock, database, opened_store, postgres_server, store

__all__ = ["clock", "database", "opened_store", "postgres_server", "store"]
