"""The command with a store in PostgreSQL: turns, the terminal chat, lists, and `cllm db`."""

import asyncio

import pytest
from tests.postgres import Server, database, empty_database, postgres_server

__all__ = ["database", "empty_database", "postgres_server"]


@pytest.fixture
def store(postgres_server: Server, empty_database: str) -> str:
    return postgres_server.url(empty_database)


@pytest.mark.usefixtures("settings")
class TestTurns:
    def test_a_conversation_continues_in_the_next_command(self, home, provider, cllm, store):
        cllm("My cat is Luna.", "--store", store, "--conversation", "demo").succeeded()
        cllm("Who is my cat?", "--store", store, "--conversation", "demo").succeeded()
        assert provider.requests[1].message_pairs == [
            ("user", "My cat is Luna."),
            ("assistant", "echo: My cat is Luna."),
            ("user", "Who is my cat?"),
        ]
        assert not home.conversations.exists()

    def test_raw_reads_a_conversation_and_saves_nothing(self, provider, cllm, store):
        where = ("--store", store, "--conversation", "demo")
        assert "chat.completion" in cllm("Hello", *where, "--raw").succeeded().out
        cllm("My cat is Luna.", *where).succeeded()
        assert "chat.completion" in cllm("Who is my cat?", *where, "--raw").succeeded().out
        assert provider.requests[-1].message_pairs[0] == ("user", "My cat is Luna.")
        shown = cllm("conversations", "show", "demo", "--store", store).succeeded()
        assert "Who is my cat?" not in shown.out

    def test_doctor_checks_several_conversations(self, settings, cllm, store):
        settings(server={"store": store})
        for name in ("one", "two"):
            cllm("Hello", "--store", store, "--conversation", name).succeeded()
        checked = cllm("doctor")
        assert "2 of 2 are readable" in checked.out
        assert checked.code == 0

    def test_the_chat_and_the_command_share_a_conversation(self, provider, cllm, store):
        cllm("chat", "demo", "--store", store, stdin=b"One\nTwo\n/undo\n").succeeded()
        cllm("Three", "--store", store, "--conversation", "demo").succeeded()
        assert provider.requests[-1].message_pairs == [
            ("user", "One"),
            ("assistant", "echo: One"),
            ("user", "Three"),
        ]

    def test_conversations_are_listed_shown_branched_and_deleted(self, cllm, store):
        cllm("My cat is Luna.", "--store", store, "--conversation", "demo").succeeded()
        where = ("conversations", "--store", store)
        assert "demo" in cllm(*where, "list").succeeded().out
        cllm(*where, "branch", "demo", "--to", "copy").succeeded()
        cllm(*where, "delete", "demo", "--yes").succeeded()
        assert "echo: My cat is Luna." in cllm(*where, "show", "copy").succeeded().out

    def test_an_unreachable_server_is_reported_without_the_password(self, cllm):
        url = "postgresql://ann:hidden-word@127.0.0.1:1/cats"
        refused = cllm("Hello", "--store", url, "--conversation", "demo")
        line = refused.failed_with_one_sentence("PostgreSQL cannot be reached")
        assert "hidden-word" not in line
        assert "127.0.0.1" not in line


def test_an_empty_database_is_not_taken_for_an_older_deployment(cllm, store):
    checked = cllm("db", "check", "--store", store)
    assert (checked.code, checked.err) == (1, "")
    assert checked.out.startswith("The database is empty; create its tables with: cllm db upgrade")
    assert f"--store '{store}'" in checked.out


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize(
    "command",
    [("db", "upgrade"), ("db", "check"), ("--list-conversations",), ("serve", "--port", "0")],
)
def test_a_database_in_another_encoding_is_refused(cllm, postgres_server, encoding, command):
    options = f"TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
    name = asyncio.run(postgres_server.create_database(options=options))
    refused = cllm(*command, "--store", postgres_server.url(name))
    assert refused.code == 1, refused.report()
    assert refused.err.startswith(
        f"Error: The database has the encoding {encoding}, and cllm needs UTF8; create another one "
        "with: createdb --encoding=UTF8 --locale=C.UTF-8 --template=template0 NAME\n"
    )
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert asyncio.run(postgres_server.execute(tables, database=name))[0][0] == 0
    asyncio.run(postgres_server.drop_database(name))


def test_a_database_is_upgraded_and_checked_by_command(cllm, store):
    cllm("db", "upgrade", "--store", store).succeeded()
    assert "0008" in cllm("db", "current", "--store", store).succeeded().out
    cllm("db", "check", "--store", f"{store}&pool_size=2").succeeded()


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgres"])
def test_urls_of_other_libraries_are_accepted(cllm, store, scheme):
    url = store.replace("postgresql", scheme, 1)
    cllm("db", "upgrade", "--store", url).succeeded()
    cllm("My cat is Luna.", "--store", url, "--conversation", "demo").succeeded()
    assert "demo" in cllm("--list-conversations", "--store", store).succeeded().out
