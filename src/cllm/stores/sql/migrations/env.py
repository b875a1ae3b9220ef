"""Alembic runs this for each command, on the connection of `migrate`."""

from alembic import context

context.configure(**context.config.attributes["cllm"])
context.run_migrations()
