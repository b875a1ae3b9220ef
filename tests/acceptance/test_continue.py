"""`-c` continues the last conversation that the shell or chat used in this place."""

import shutil

import pytest
from tests.server_process import Server, open_empty_store
from tests.sqlite_template import write_database


@pytest.fixture(params=["json", "sqlite", "postgresql"])
def stored(request, home, settings):
    """The shell stores its conversations in a store of each kind."""
    if request.param == "json":
        yield
        return
    with open_empty_store(request.param, home.path, request) as url:
        settings(store=url)
        yield


@pytest.mark.usefixtures("stored")
class TestLastConversation:
    def test_it_is_continued_and_its_name_is_printed_first(self, provider, cllm):
        cllm("My cat is called Luna.", "--conversation", "cats").succeeded()

        done = cllm("-c", "What is she called?").succeeded()

        assert done.err == "Continuing conversation: cats\n"
        assert [pair[1] for pair in provider.requests[-1].message_pairs][::2] == [
            "My cat is called Luna.",
            "What is she called?",
        ]

    def test_it_is_the_one_used_last_not_the_one_created_last(self, cllm):
        for name in ("cats", "dogs", "cats"):
            cllm("Hello", "--conversation", name).succeeded()

        assert "Continuing conversation: cats\n" in cllm("Hello", "-c").succeeded().err

    def test_an_automatic_id_is_continued(self, cllm, provider):
        cllm("Hello", "--conversation").succeeded()

        assert "Continuing conversation: c-" in cllm("-c", "More").succeeded().err
        assert len(provider.requests[-1].messages) == 3

    def test_a_chat_continues_it(self, provider, cllm):
        cllm("Hello", "--conversation", "cats").succeeded()

        done = cllm("chat", "-c", stdin=b"More\n").succeeded()

        assert "Continuing conversation: cats" in done.err
        assert len(provider.requests[-1].messages) == 3

    def test_the_shell_continues_a_chat(self, cllm, provider):
        cllm("chat", "cats", stdin=b"Hello\n").succeeded()

        cllm("-c", "More").succeeded()

        assert len(provider.requests[-1].messages) == 3

    def test_an_unsaved_question_is_named(self, cllm, provider):
        cllm("Hello", "--conversation", "cats").succeeded()
        cllm("Unsaved").succeeded()

        result = cllm("-c", "More")

        result.failed_with_one_sentence("not saved", "`save: all`", "--conversation cats")
        assert len(provider.requests) == 2
        cllm("Again", "--conversation", "cats").succeeded()
        cllm("-c", "More").succeeded()

    def test_a_deleted_conversation_is_not_replaced_by_another_one(self, cllm):
        for name in ("dogs", "cats"):
            cllm("Hello", "--conversation", name).succeeded()
        cllm("--delete-conversation", "cats").succeeded()

        assert "no longer exists" in cllm("-c", "More").failed_with_one_sentence()

    def test_it_can_be_read_only(self, cllm, provider):
        cllm("Hello", "--conversation", "cats").succeeded()

        cllm("-c", "More", "--read-only").succeeded()

        assert len(provider.requests[-1].messages) == 3
        assert "More" not in cllm("--show-conversation", "cats").succeeded().out


def test_without_a_conversation_it_names_the_setting(home, settings, cllm):
    cllm("Hello").succeeded()

    line = cllm("-c", "More").failed_with_one_sentence("`save: all`", "--conversation")

    assert str(home.conversations) in line


def test_every_question_can_be_continued_with_save_all(settings, cllm, provider):
    settings(save="all")
    cllm("Hello").succeeded()

    cllm("-c", "More").succeeded()
    cllm("-c", "Still more").succeeded()

    assert len(provider.requests[-1].messages) == 5


def test_conversations_from_before_can_be_continued(home, settings, cllm):
    home.write_old_conversation("old", ("user", "Hello"), ("assistant", "Hi"))

    assert "Continuing conversation: old\n" in cllm("-c", "More").succeeded().err


def test_each_place_has_its_own_last_conversation(home, settings, cllm):
    cllm("Hello", "--conversation", "at-home").succeeded()
    cllm("init", "--history").succeeded()
    cllm("Hello", "--conversation", "here").succeeded()

    assert "here" in cllm("-c", "More").succeeded().err
    elsewhere = home.path / "elsewhere"
    elsewhere.mkdir()
    assert "at-home" in cllm("-c", "More", cwd=elsewhere).succeeded().err


def test_a_conversation_of_a_client_is_not_the_last_one(home, settings, cllm):
    write_database(home.path / ".cllm/cllm.db")
    cllm("Hello", "--conversation", "cats").succeeded()
    cllm("Hello", "--conversation", "dogs").succeeded()
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        assert server.complete(("user", "Hello"), conversation="").status == 200
        assert server.complete(("user", "Hello"), conversation="cats").status == 200

    assert cllm("-c", "More").succeeded().err == "Continuing conversation: dogs\n"


def test_a_recorded_agent_is_not_the_last_one(home, settings, cllm):
    content = {
        "id": "agent",
        "messages": [{"role": "user", "content": "Hello"}],
        "metadata": {"cllm": {"source": "claude-code"}},
    }
    home.write_conversation("agent", content)
    assert "agent" in cllm("conversations", "list", "--source", "claude-code").succeeded().out

    assert cllm("-c", "More").code == 1
    cllm("Hello", "--conversation", "cats").succeeded()
    cllm("Hello", "--conversation", "agent").succeeded()
    assert cllm("-c", "More").succeeded().err == "Continuing conversation: cats\n"


def test_a_conversation_of_the_server_that_the_shell_used_is_continued(home, settings, cllm):
    path = home.path / ".cllm/cllm.db"
    cllm("Hello", "--conversation", "dogs", "--store", f"sqlite:{path}").succeeded()
    cllm("Hello", "--conversation", "dogs").succeeded()

    assert cllm("-c", "More").succeeded().err == "Continuing conversation: dogs\n"


def test_a_lost_cache_folder_loses_no_conversation(home, settings, cllm):
    cllm("Hello", "--conversation", "cats").succeeded()
    shutil.rmtree(home.cache)

    assert "Continuing conversation: cats\n" in cllm("-c", "More").succeeded().err


def test_the_record_has_no_text_and_is_private(home, settings, cllm, mode):
    cllm("A secret question", "--conversation", "cats").succeeded()

    (record,) = (home.cache / "cllm/places").iterdir()

    assert b"secret" not in record.read_bytes()
    assert mode(record) == 0o600


def test_a_question_without_a_conversation_writes_no_record(home, settings, cllm):
    cllm("Hello").succeeded()

    assert not (home.cache / "cllm/places").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "More", "--conversation", "cats"),
        ("-c", "More", "--conversation"),
        ("chat", "-c", "cats"),
        ("chat", "-c", "--no-save"),
    ],
)
def test_options_that_exclude_each_other_are_an_error(arguments, settings, cllm):
    cllm(*arguments).failed_with_one_sentence("-c", code=2)


class TestConfigurationFlag:
    @pytest.fixture(autouse=True)
    def review(self, home, settings):
        settings()
        (home.path / ".cllm/review.Cllmfile.yml").write_text("seed: 7", encoding="utf-8")

    @pytest.mark.parametrize(
        "arguments",
        [("-c", "review"), ("-c", "review", "Hello"), ("Hello", "-c", "review")],
    )
    def test_the_old_flag_names_the_new_one(self, cllm, provider, arguments):
        cllm(*arguments).failed_with_one_sentence("-C review", code=2)

        assert provider.requests == []

    def test_the_folder_of_the_command_line_counts(self, home, cllm):
        other = home.path / "other"
        other.mkdir()
        (other / "strict.Cllmfile.yml").write_text("seed: 7", encoding="utf-8")

        result = cllm("-c", "strict", "--cllm-path", str(other))

        result.failed_with_one_sentence("-C strict", code=2)

    def test_the_new_flag_applies_the_file(self, cllm, provider):
        cllm("-C", "review", "Hello").succeeded()

        assert provider.requests[-1].json["seed"] == 7

    def test_a_word_that_is_no_file_is_the_prompt(self, cllm, provider):
        cllm("Hello", "--conversation", "cats").succeeded()

        cllm("-c", "Really?").succeeded()

        assert provider.requests[-1].message_pairs[-1] == ("user", "Really?")


def test_on_a_terminal_an_unsaved_question_is_asked_about(settings, cllm, provider):
    cllm("Hello", "--conversation", "cats").succeeded()
    cllm("Unsaved").succeeded()

    refused = cllm.on_terminal("-c", "More", typed=b"n\n")
    agreed = cllm.on_terminal("-c", "More", typed=b"y\n")

    assert "`save: all`" in refused.out
    assert refused.code == 1
    assert agreed.code == 0
    assert len(provider.requests) == 3
