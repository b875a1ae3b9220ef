"""A provider that fails: the question, the error and the text so far are saved as a failed turn."""

import json

import pytest
from tests.fake_provider import Cut, ToolCall, closed_port
from tests.server_process import OWN_STORES, open_empty_store

QUESTION = "Tell me a story."


@pytest.fixture(params=OWN_STORES)
def store_url(request, home):
    with open_empty_store(request.param, home.path, request) as url:
        yield url


def test_a_stream_that_breaks_off_keeps_the_question_and_the_text(provider, settings, cllm):
    provider.queue_reply("Once upon ", "a time", stop_after=1)

    result = cllm(QUESTION, "--conversation", "demo", "--stream")

    result.failed_with_one_sentence()
    assert result.out == "Once upon \n"
    shown = cllm("conversations", "show", "demo").succeeded().out
    assert f"1 [user] (failed)\n{QUESTION}\n" in shown
    assert "2 [assistant] (failed)\nOnce upon \n" in shown
    assert result.warnings[0] in shown.splitlines()


@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
def test_an_http_error_keeps_the_question(flags, home, provider, settings, cllm):
    cllm("First", "--conversation", "demo").succeeded()
    messages = home.load("demo")["messages"]
    provider.queue_error(500, "The engine is on fire.")

    cllm(QUESTION, "--conversation", "demo", *flags).failed_with_one_sentence("on fire")

    assert home.load("demo")["messages"] == messages
    assert home.turn_states("demo") == ["complete", "failed"]
    shown = cllm("conversations", "show", "demo").succeeded().out
    assert f"3 [user] (failed)\n{QUESTION}\nError: " in shown


def test_a_provider_that_is_not_there_keeps_the_question(home, settings, cllm):
    settings(api_base=f"http://127.0.0.1:{closed_port()}/v1")

    cllm(QUESTION, "--conversation", "demo").failed_with_one_sentence()

    assert home.load("demo")["messages"] == []
    assert home.turn_states("demo") == ["failed"]


def test_every_store_keeps_a_failed_turn_and_sends_it_never(store_url, provider, settings, cllm):
    arguments = ("--conversation", "demo", "--store", store_url)
    provider.queue_reply("Once upon ", "a time", stop_after=1)

    cllm(QUESTION, *arguments, "--stream").failed_with_one_sentence()
    listed = json.loads(cllm("conversations", "list", "--json", "--store", store_url).out)
    cllm("Second", *arguments).succeeded()

    assert provider.requests[1].message_pairs == [("user", "Second")]
    assert [one["name"] or one["id"] for one in listed] == ["demo"]
    shown = cllm("conversations", "show", "demo", "--store", store_url).succeeded().out
    assert f"1 [user] (failed)\n{QUESTION}\n" in shown
    assert "2 [assistant] (failed)\nOnce upon \n" in shown
    assert "4 [assistant]\necho: Second\n" in shown


def test_a_failed_turn_is_no_message_of_the_file(home, provider, settings, cllm):
    provider.queue_reply("Once upon ", "a time", stop_after=1)

    cllm(QUESTION, "--conversation", "demo", "--stream").failed_with_one_sentence()

    assert home.load("demo")["messages"] == []
    (turn,) = home.load("demo")["metadata"]["cllm"]["turns"]
    assert [message["content"] for message in turn["inline"]] == [QUESTION, "Once upon "]
    assert turn["failure"]["code"] == "BrokenStreamError"
    assert turn["usage"]["estimated"]
    (listed,) = json.loads(cllm("conversations", "list", "--json").out)
    assert listed["message_count"] == 2


def test_minus_c_continues_a_new_conversation_whose_first_turn_failed(
    home, provider, settings, cllm
):
    settings(default_system_message="Be brief.")
    provider.queue_error(503)
    cllm(QUESTION, "--conversation", "demo").failed_with_one_sentence()

    result = cllm(QUESTION, "-c").succeeded()

    assert "demo" in result.err
    assert provider.requests[1].message_pairs == [("system", "Be brief."), ("user", QUESTION)]
    assert home.messages("demo") == [
        ("system", "Be brief."),
        ("user", QUESTION),
        ("assistant", f"echo: {QUESTION}"),
    ]


def test_a_question_of_save_all_is_saved_when_the_provider_fails(home, provider, settings, cllm):
    settings(save="all")
    provider.queue_error(503)
    cllm(QUESTION).failed_with_one_sentence()

    cllm("Again", "-c").succeeded()

    (saved,) = home.conversations.glob("*.json")
    assert home.turn_states(saved.stem) == ["failed", "complete"]


def test_a_regeneration_that_fails_keeps_the_reply(home, provider, settings, cllm):
    cllm("First", "--conversation", "demo").succeeded()
    provider.queue_error(500)

    cllm("conversations", "regenerate", "demo").failed_with_one_sentence()

    assert home.messages("demo") == [("user", "First"), ("assistant", "echo: First")]


def test_a_failed_turn_can_be_regenerated(home, provider, settings, cllm):
    provider.queue_error(500)
    cllm("First", "--conversation", "demo").failed_with_one_sentence()

    cllm("conversations", "regenerate", "demo").succeeded()

    assert home.messages("demo") == [("user", "First"), ("assistant", "echo: First")]


def test_the_commands_that_a_model_ran_are_saved_when_a_later_call_fails(
    home, provider, settings, cllm
):
    settings(allow_dynamic_commands=True)
    (home.work / "hello.txt").write_text("hello world", encoding="utf-8")
    arguments = json.dumps({"command": "cat hello.txt", "reason": "to see"})
    call = ToolCall(id="call_1", name="execute_bash_command", arguments=arguments)
    provider.queue_reply("Let me look.", tool_calls=(call,), finish="tool_calls")
    provider.queue_steps(Cut())

    assert cllm("What does it say?", "--conversation", "demo").code == 1

    shown = cllm("conversations", "show", "demo").succeeded().out
    assert "3 [tool] (failed)\n" in shown
    assert "hello world" in shown


@pytest.mark.parametrize("flag", ["--raw", "--read-only"])
def test_raw_and_read_only_save_no_failed_turn(flag, home, provider, settings, cllm):
    cllm("First", "--conversation", "demo").succeeded()
    before = home.snapshot()
    provider.queue_error(500)

    cllm(QUESTION, "--conversation", "demo", flag).failed_with_one_sentence()

    assert home.snapshot() == before


@pytest.mark.parametrize("conversation", ["demo", "new"])
@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (("-m", "nobody/nothing"), {}),
        (("-m", "anthropic/claude-sonnet-4-5"), {}),
        ((), {"context_commands": [{"command": "false", "dynamic": True, "on_failure": "fail"}]}),
        (("--json-schema", '{"type": "nonsense"}'), {}),
        ((), {"window": {"strategy": "blocks", "max_tokens": 2}}),
        (("-m", "mine/m", "-a", "picture.png"), {}),
    ],
    ids=["model", "key", "context", "schema", "window", "attachment"],
)
def test_an_error_before_the_provider_is_called_leaves_no_trace(
    arguments, keys, conversation, home, provider, settings, cllm
):
    (home.work / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 24)
    cllm("First", "--conversation", "demo").succeeded()
    settings(**keys)
    before = home.snapshot(home.conversations)

    result = cllm(QUESTION, "--conversation", conversation, *arguments)

    assert result.code != 0, result.report()
    assert len(provider.requests) == 1
    assert home.snapshot(home.conversations) == before


def test_a_reply_that_does_not_match_the_schema_leaves_no_trace(home, provider, settings, cllm):
    provider.queue_reply("not JSON")

    result = cllm(QUESTION, "--conversation", "demo", "--schema", "name")

    result.failed_with_one_sentence("schema")
    assert result.out == ""
    assert not home.file("demo").exists()


@pytest.mark.usefixtures("settings")
class TestChat:
    def test_a_failed_message_is_sent_again_by_retry(self, home, provider, cllm):
        (home.work / "notes.txt").write_text("Luna", encoding="utf-8")
        provider.queue_error(500)

        lines = b"/attach notes.txt\nWho?\n/retry\nNext\n"
        assert cllm("chat", "demo", stdin=lines).code == 1

        assert "Luna" in json.dumps(provider.requests[1].messages[-1])
        assert provider.requests[2].message_pairs[-1] == ("user", "Next")
        assert home.turn_states("demo").count("complete") == 2
        assert [role for role, _ in home.messages("demo")] == ["user", "assistant"] * 2

    def test_a_command_for_a_failed_message_runs_again_with_retry(self, provider, cllm):
        provider.queue_reply("One")
        provider.queue_error(500)

        cllm("chat", "demo", stdin=b"First\n/context echo Luna\nWho?\n/retry\nNext\n")

        assert "Luna" in provider.requests[2].messages[-1]["content"]
        assert provider.requests[3].message_pairs[-1] == ("user", "Next")

    def test_on_a_terminal_a_line_names_retry(self, provider, start_chat):
        chat = start_chat()
        provider.queue_error(500)

        chat.say("Who?", "Your message is saved; /retry sends it again.")
        chat.say("/retry", "echo: Who?")

    def test_minus_c_continues_a_chat_whose_first_message_failed(self, provider, cllm):
        provider.queue_error(500)
        cllm("chat", "demo", stdin=b"Who?\n")

        assert "demo" in cllm("Again", "-c").succeeded().err
