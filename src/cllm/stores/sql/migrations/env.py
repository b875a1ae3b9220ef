"""What Alembic runs for each command: the revisions, on the connection that `migrate` gives it."""

from alembic import context

context.configure(**context.config.attributes["cllm"])
context.run_migrations()
