"""`cllm db`: inspects, upgrades and downgrades the database of a store."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from cllm.cli import output
from cllm.cli.inputs import TEXT, HelpGroup, current_environment
from cllm.core.errors import UsageError
from cllm.files import write_new_file
from cllm.settings.load import CommandLine, load_settings, server_store
from cllm.stores.registry import redact_password

if TYPE_CHECKING:
    from cllm.stores.sql.database import Database
    from cllm.stores.sql.migrate import StoredPrompt

EXIT_DIFFERENT = 1

HELP = """Inspect, upgrade and downgrade the database of a store.

A new database is created on first use. cllm never upgrades an existing database by itself; use
these commands. Make a backup before an upgrade or a downgrade."""
UPGRADE_HELP = """Upgrade the database to the newest revision.

Databases of older deployments may contain a system prompt for every conversation. The upgrade
deletes these prompts and erases their bytes from an SQLite file. --save-system-prompts writes them
to a file first. Without a terminal, the upgrade needs that option or --yes."""
DOWNGRADE_HELP = """Downgrade the database to an older revision.

Conversations and messages remain. Data that the older revision cannot store is deleted. Before
0007: the sources of recorded conversations, the sessions of clients, and which conversations are
side conversations. Before 0005: also variants, events, usage. On a terminal the command asks before
it deletes data; otherwise it needs --yes."""
CURRENT_HELP = "Print the revision of the database and the newest revision."
CHECK_HELP = """Compare the tables with the revision of the database.

The exit code is 1 if they differ, or if this version of cllm cannot upgrade the database."""
ADOPT_HELP = """Register a database that the older REST service created.

See docs/how-to/migrate-clients.md. After this, `cllm db upgrade` can upgrade the database. The
command changes no existing data; in the oldest databases it also adds the column `total_cost` to
the messages and fills it from their metadata. After the upgrade, conversations without a user
belong to the owner `local`."""

_store = click.option(
    "--store",
    metavar="URL",
    type=TEXT,
    help="Database: sqlite:PATH or postgresql://… (default: the database of `cllm serve`).",
)


@click.group(
    cls=HelpGroup,
    name="db",
    help=HELP,
    examples=("cllm db current --store sqlite:cats.db", "cllm db upgrade --store sqlite:cats.db"),
)
def command() -> None:
    pass


@command.command(
    name="upgrade",
    help=UPGRADE_HELP,
    examples=(
        "cllm db upgrade --store sqlite:cats.db",
        "cllm db upgrade --store sqlite:cats.db --save-system-prompts prompts.jsonl",
    ),
)
@_store
@click.option(
    "--save-system-prompts",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Save the system prompts to a new file before they are deleted.",
)
@click.option("--yes", is_flag=True, help="Delete the system prompts without a question.")
def upgrade(store: str | None, save_system_prompts: Path | None, *, yes: bool) -> None:
    from cllm.stores.sql import migrate

    database = _open_database(store)
    prompts = database.run(migrate.list_stored_prompts, create=True)
    if prompts:
        _confirm_deletion(prompts, save_system_prompts, yes=yes)
    database.run(migrate.upgrade)
    if prompts:
        database.erase_deleted_rows()
    output.print_line(f"The database is at revision {database.run(migrate.current_revision)}.")


@command.command(
    name="downgrade",
    help=DOWNGRADE_HELP,
    examples=("cllm db downgrade 0002 --store sqlite:cats.db",),
)
@click.argument("revision")
@_store
@click.option("--yes", is_flag=True, help="Delete the data without a question.")
def downgrade(revision: str, store: str | None, *, yes: bool) -> None:
    from cllm.stores.sql import migrate

    database = _open_database(store)
    lost = database.run(lambda bind: migrate.list_lost_data(bind, revision))
    if lost:
        _confirm_downgrade(revision, lost, yes=yes)
    database.run(lambda bind: migrate.downgrade(bind, revision))
    output.print_line(f"The database is at revision {revision}.")


@command.command(
    name="current",
    help=CURRENT_HELP,
    examples=("cllm db current --store sqlite:cats.db",),
)
@_store
def current(store: str | None) -> None:
    from cllm.stores.sql import HEAD, migrate

    revision = _open_database(store).run(migrate.current_revision)
    state = "has no revision" if revision is None else f"is at revision {revision}"
    output.print_line(f"The database {state}; the newest revision is {HEAD}.")


@command.command(
    name="check",
    help=CHECK_HELP,
    examples=("cllm db check --store sqlite:cats.db",),
)
@_store
def check(store: str | None) -> int:
    from cllm.stores.sql import HEAD, migrate

    database = _open_database(store)
    differences = database.run(
        lambda bind: migrate.find_differences(bind, upgrade_command=_upgrade_command(store))
    )
    for difference in differences:
        output.print_line(difference)
    if differences:
        return EXIT_DIFFERENT
    revision = database.run(migrate.current_revision)
    if revision == HEAD:
        output.print_line("The tables match the newest revision.")
    else:
        output.print_line(f"The tables match revision {revision}; the newest is {HEAD}.")
        output.note(f"Make a backup of the database, then run: {_upgrade_command(store)}")
    return 0


@command.command(
    name="adopt",
    help=ADOPT_HELP,
    examples=("cllm db adopt --store sqlite:cats.db",),
)
@_store
def adopt(store: str | None) -> None:
    from cllm.stores.sql import migrate

    upgrade_command = _upgrade_command(store)
    adopted = _open_database(store).run(
        lambda bind: migrate.adopt(bind, upgrade_command=upgrade_command)
    )
    output.print_line(
        f"Adopted a database with {adopted.conversations} conversations, "
        f"{adopted.without_user} of them without a user; it is at revision {adopted.revision}."
    )
    output.note(f"Make a backup of it, then run: {upgrade_command}")


def _upgrade_command(store: str | None) -> str:
    """Return the command for the same database, without the password of its URL."""
    option = "" if store is None else f" --store {shlex.quote(redact_password(store))}"
    return f"cllm db upgrade{option}"


def _open_database(store: str | None) -> "Database":
    from cllm.stores.sql.database import Database

    if store is None:
        store = server_store(load_settings(current_environment(), CommandLine()))
    return Database(store)


def _confirm_deletion(
    prompts: "list[StoredPrompt]", target: Path | None, *, yes: bool = False
) -> None:
    """Save the prompts to the target, or let the user confirm that they are deleted."""
    if target is not None:
        try:
            write_new_file(target, msgspec.json.Encoder().encode_lines(prompts))
        except FileExistsError as error:
            raise UsageError(f"{target} already exists; choose a new file.") from error
        output.note(f"System prompts saved to {target} and deleted: {len(prompts)}.")
        return
    deleted = f"{len(prompts)} system prompts; save them first with --save-system-prompts FILE"
    _confirm(
        f"The upgrade would delete {deleted}, or delete them with --yes.",
        f"The upgrade will delete {deleted}.",
        "Delete them?",
        yes=yes,
    )


def _confirm_downgrade(revision: str, lost: list[str], *, yes: bool = False) -> None:
    """Let the user confirm that this data is deleted."""
    deleted = f"data that revision {revision} cannot store ({', '.join(lost)})"
    _confirm(
        f"The downgrade would delete {deleted}; make a backup with `cllm backup`, then use --yes.",
        f"The downgrade will delete {deleted}.",
        "Delete it?",
        yes=yes,
    )


def _confirm(refusal: str, warning: str, question: str, *, yes: bool) -> None:
    """Ask on a terminal; without one, raise UsageError unless `yes` is set."""
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"{refusal} Nothing was changed.")
    output.note(warning)
    if not yes:
        click.confirm(question, abort=True, err=True)
