"""`cllm db`: inspect, upgrade or downgrade the database of a store."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from cllm.cli import output
from cllm.cli.inputs import current_environment
from cllm.core.errors import UsageError
from cllm.files import write_new_file
from cllm.settings.load import CommandLine, load_settings, server_store

if TYPE_CHECKING:
    from cllm.stores.sql.database import Database
    from cllm.stores.sql.migrate import StoredPrompt

EXIT_DIFFERENT = 1

HELP = """Bring the database of a store up to date, or look at it.

A new database is made by whoever uses it first; one that an older cllm made is changed only here.
Make a copy of it before.

\b
Examples:
  cllm db current --store sqlite:cats.db
  cllm db upgrade --store sqlite:cats.db"""

UPGRADE_HELP = """Bring the database up to the newest revision.

Databases of older deployments may have a system prompt stored with every conversation. They are
deleted, and nothing of them is left in an SQLite file; --save-system-prompts keeps them elsewhere.

\b
Examples:
  cllm db upgrade --store sqlite:cats.db
  cllm db upgrade --store sqlite:cats.db --save-system-prompts prompts.jsonl"""

DOWNGRADE_HELP = """Take the database back to an older revision.

Conversations and what was said in them stay; what the older revision has no place for goes:
variants, events, usage.

\b
Example:
  cllm db downgrade 0002 --store sqlite:cats.db"""

CURRENT_HELP = """Say which revision the database is at, and which is the newest.

\b
Example:
  cllm db current --store sqlite:cats.db"""

CHECK_HELP = """Look whether the tables are as the newest revision has them; exit 1 if not.

\b
Example:
  cllm db check --store sqlite:cats.db"""

ADOPT_HELP = """Recognise the database of an older deployment, so that it can be brought up.

Its tables are not changed by this. Conversations without a user will belong to the owner `local`.

\b
Example:
  cllm db adopt --store sqlite:cats.db"""

_store = click.option(
    "--store",
    metavar="URL",
    help="The database: sqlite:PATH or postgresql://…; the server's if left out.",
)


@click.group(name="db", help=HELP)
def command() -> None:
    pass


@command.command(name="upgrade", help=UPGRADE_HELP)
@_store
@click.option(
    "--save-system-prompts",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the system prompts that will be deleted to this new file first.",
)
def upgrade(store: str | None, save_system_prompts: Path | None) -> None:
    from cllm.stores.sql import migrate

    database = _database(store)
    prompts = database.run(migrate.list_stored_prompts, create=True)
    if prompts:
        _announce_deletion(prompts, save_system_prompts)
    database.run(migrate.upgrade)
    if prompts:
        database.erase_deleted_rows()
    output.print_line(f"The database is at revision {database.run(migrate.current_revision)}.")


@command.command(name="downgrade", help=DOWNGRADE_HELP)
@click.argument("revision")
@_store
def downgrade(revision: str, store: str | None) -> None:
    from cllm.stores.sql import migrate

    database = _database(store)
    database.run(lambda bind: migrate.downgrade(bind, revision))
    output.print_line(f"The database is at revision {revision}.")


@command.command(name="current", help=CURRENT_HELP)
@_store
def current(store: str | None) -> None:
    from cllm.stores.sql import HEAD, migrate

    at = _database(store).run(migrate.current_revision)
    output.print_line(f"The database is at revision {at or 'none'}; the newest is {HEAD}.")


@command.command(name="check", help=CHECK_HELP)
@_store
def check(store: str | None) -> int:
    from cllm.stores.sql import migrate

    found = _database(store).run(migrate.find_differences)
    for difference in found:
        output.print_line(difference)
    if found:
        return EXIT_DIFFERENT
    output.print_line("The tables are as they should be.")
    return 0


@command.command(name="adopt", help=ADOPT_HELP)
@_store
def adopt(store: str | None) -> None:
    from cllm.stores.sql import migrate

    found = _database(store).run(migrate.adopt)
    output.print_line(
        f"An older deployment's database with {found.conversations} conversations, "
        f"{found.without_user} of them without a user; it is at revision {found.revision} now."
    )
    output.note("Make a copy of it, then run: cllm db upgrade --store URL")


def _database(store: str | None) -> "Database":
    from cllm.stores.sql.database import Database

    if store is None:
        store = server_store(load_settings(current_environment(), CommandLine()))
    return Database(store)


def _announce_deletion(prompts: "list[StoredPrompt]", target: Path | None) -> None:
    if target is not None:
        try:
            write_new_file(target, msgspec.json.Encoder().encode_lines(prompts))
        except FileExistsError as error:
            raise UsageError(f"{target} is there already; name a new file.") from error
        output.note(f"Stored system prompts that are deleted: {len(prompts)}, kept in {target}.")
        return
    output.note(
        f"Stored system prompts that will be deleted: {len(prompts)}; "
        "to keep them elsewhere use --save-system-prompts FILE."
    )
    if sys.stdin.isatty():
        click.confirm("Delete them?", abort=True, err=True)
