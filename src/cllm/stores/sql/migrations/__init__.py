"""The way from any older shape of the database to the head: Alembic's environment and revisions."""
