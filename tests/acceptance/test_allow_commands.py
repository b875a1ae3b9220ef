"""--allow-commands: the model asks, the rules decide, and the history is sent too."""

import json
import re

import pytest
from tests.fake_provider import ToolCall

TOOL = "execute_bash_command"


def asks_for(command: str, *, call_id: str = "call_1", reason: str = "to see") -> ToolCall:
    arguments = json.dumps({"command": command, "reason": reason})
    return ToolCall(id=call_id, name=TOOL, arguments=arguments)


def results_in(request) -> list[str]:
    return [m["content"] for m in request.messages if m["role"] == "tool"]


@pytest.fixture
def model(provider, settings):
    """A model that asks for these commands, one after another, and then answers."""

    def model(*commands: str, answer: str = "That is all.", **keys) -> None:
        settings(**keys)
        for number, command in enumerate(commands):
            call = asks_for(command, call_id=f"call_{number}")
            provider.queue_reply(tool_calls=(call,), finish="tool_calls")
        provider.queue_reply(answer)

    return model


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_a_command_is_run_and_its_output_goes_back(way, provider, model, cllm):
    (cllm.home.work / "hello.txt").write_text("hello world", encoding="utf-8")
    model("cat hello.txt")

    result = cllm("What does it say?", "--allow-commands", way).succeeded()

    assert result.out == "That is all.\n"
    assert "$ cat hello.txt" in result.err
    first, second = provider.requests
    assert [tool["function"]["name"] for tool in first.json["tools"]] == [TOOL]
    assert results_in(second) == ["hello world"]
    assert second.messages[-2]["tool_calls"][0]["id"].startswith("call_")


@pytest.mark.parametrize("arguments", [("Hello",), ("chat",)], ids=["cllm", "chat"])
def test_a_call_of_a_tool_that_was_not_offered_is_reported_and_not_run(
    arguments, provider, settings, cllm
):
    settings()
    provider.queue_reply(tool_calls=(asks_for("touch made"),), finish="tool_calls")

    result = cllm(*arguments, stdin=b"Hello\n").succeeded()

    assert "The model called a tool that cllm cannot run here; nothing was run." in result.err
    assert "no text" not in result.err
    assert list(cllm.home.work.iterdir()) == []


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_the_reasoning_is_sent_back_with_its_tool_call(way, provider, settings, cllm):
    """Servers such as DeepSeek's refuse the next round of a tool loop without it."""
    settings()
    call = asks_for("ls")
    provider.queue_reply(reasoning=("I look ", "around."), tool_calls=(call,), finish="tool_calls")
    provider.queue_reply("That is all.", reasoning=("Nothing there.",))

    cllm("What is here?", "--allow-commands", "--conversation", "demo", way).succeeded()
    cllm("Sure?", "--allow-commands", "--conversation", "demo", way).succeeded()

    _, second, third = provider.requests
    assert second.messages[-2]["reasoning_content"] == "I look around."
    thoughts = [m["reasoning_content"] for m in third.messages if m["role"] == "assistant"]
    assert thoughts == ["I look around.", "Nothing there."]


def test_without_the_flag_the_model_is_offered_nothing(provider, model, cllm):
    model()

    cllm("Hello").succeeded()

    assert "tools" not in provider.requests[0].json


def test_the_setting_is_as_good_as_the_flag(provider, model, cllm):
    model(allow_dynamic_commands=True)

    cllm("Hello").succeeded()

    assert provider.requests[0].json["tools"]


def test_the_history_is_sent_and_stored_completely(provider, model, cllm):
    model()
    cllm("My name is Alice.", "--conversation", "demo").succeeded()
    model("pwd")

    cllm("Where am I?", "--conversation", "demo", "--allow-commands").succeeded()

    assert provider.requests[1].message_pairs[0] == ("user", "My name is Alice.")
    roles = [role for role, _ in cllm.home.messages("demo")]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    model()
    cllm("Thanks.", "--conversation", "demo").succeeded()
    assert [m["role"] for m in provider.requests[-1].messages] == [*roles, "user"]


def test_a_stored_conversation_shows_the_commands(model, cllm):
    model("pwd")
    cllm("Where am I?", "--conversation", "demo", "--allow-commands").succeeded()

    shown = cllm("conversations", "show", "demo").succeeded().out

    assert re.search(r"^2 \[assistant\]\n\[call: \w+ .*pwd.*\]$", shown, re.MULTILINE), shown
    assert "(no text)" not in shown


@pytest.mark.parametrize(
    "command",
    ["touch pwned", "cat x; touch pwned", "cat $(touch pwned)", "ls > pwned", "ls\ntouch pwned"],
)
def test_a_refused_command_is_reported_to_the_model(command, provider, model, cllm):
    model(command)

    result = cllm("Do it.", "--allow-commands").succeeded()

    assert results_in(provider.requests[1])[0].startswith("Refused: ")
    assert "Refused" in result.err
    assert not (cllm.home.work / "pwned").exists()


def test_a_pattern_allows_and_another_denies(provider, model, cllm):
    model("touch a", "touch b", "cat a")

    cllm(
        "Do it.",
        "--allow-commands",
        "--command-allow",
        "touch *",
        "--command-deny",
        "touch b",
        "--command-deny",
        "cat",
    ).succeeded()

    assert (cllm.home.work / "a").exists()
    assert not (cllm.home.work / "b").exists()
    assert [text[:7] for text in results_in(provider.requests[-1])] == [
        "(no out",
        "Refused",
        "Refused",
    ]


@pytest.fixture
def secrets(cllm):
    """A hidden file, and a link to a file outside of the folder."""
    outside = cllm.home.work.parent / "outside.txt"
    outside.write_text("CANARY", encoding="utf-8")
    (cllm.home.work / "keylink").symlink_to(outside)
    (cllm.home.work / ".env").write_text("CANARY", encoding="utf-8")
    (cllm.home.work / "a.txt").write_text("CANARY", encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--command-allow", "git status"), "git status; cat keylink"),
        (("--command-allow", "git status"), "git status; cat .env"),
        (("--command-allow", "ls,cat"), "ls; cat keylink"),
        (("--command-allow", "*", "--command-deny", "cat a.txt"), "cat a.tx?"),
        (("--command-allow", "*", "--command-deny", "cat a.txt"), "cat sub/../a.txt"),
        (("--command-deny", "rm*,cat*"), "cat a.txt"),
        (("--command-deny", "head, cat"), "cat a.txt"),
        ((), 'grep -r "" keylink'),
    ],
)
def test_no_rule_for_one_command_opens_another(flags, line, secrets, provider, model, cllm):
    (cllm.home.work / "sub").mkdir()
    model(line)

    cllm("Go.", "--allow-commands", *flags).succeeded()

    assert results_in(provider.requests[1])[0].startswith("Refused: ")


def test_a_recursive_search_leaves_hidden_files_out(secrets, provider, model, cllm):
    model('grep -r "" .')

    cllm("Go.", "--allow-commands").succeeded()

    assert results_in(provider.requests[1]) == ["./a.txt:CANARY"]


def test_a_denied_program_is_denied_by_any_name(provider, model, cllm):
    (cllm.home.work / "victim.txt").touch()
    model("/bin/r[m] victim.txt", "/bin/rm victim.txt", "rm victim.txt")

    cllm("Go.", "--allow-commands", "--command-allow", "*", "--command-deny", "rm").succeeded()

    assert (cllm.home.work / "victim.txt").exists()


@pytest.mark.parametrize(
    "commands", [{"allow": ["git status"]}, {"available_commands": ["git status"]}, {"allow": []}]
)
def test_a_configured_list_is_the_whole_list(commands, provider, model, cllm):
    model("ls", dynamic_commands=commands)

    cllm("Go.", "--allow-commands").succeeded()

    assert "not among the allowed" in results_in(provider.requests[1])[0]


def test_a_list_can_contain_the_built_in_read_commands(provider, model, cllm):
    (cllm.home.work / "a.txt").write_text("text", encoding="utf-8")
    model("cat a.txt", dynamic_commands={"allow": ["git status", "@read"]})

    cllm("Go.", "--allow-commands").succeeded()

    assert results_in(provider.requests[1]) == ["text"]


def test_a_line_of_the_list_runs_in_a_shell(provider, model, cllm):
    line = "for n in 1 2; do echo $n; done > out.txt"
    model(line, dynamic_commands={"available_commands": [line]})

    cllm("Go.", "--allow-commands").succeeded()

    assert (cllm.home.work / "out.txt").read_text(encoding="utf-8") == "1\n2\n"


def test_at_the_limit_the_model_is_called_once_without_tools(provider, model, cllm):
    model("pwd", "pwd", dynamic_commands={"max_commands": 2})

    cllm("Go.", "--allow-commands").succeeded()

    assert ["tools" in request.json for request in provider.requests] == [True, True, False]


def test_a_command_that_takes_too_long_is_ended(provider, model, cllm):
    model("sleep 600", dynamic_commands={"allow": ["sleep"], "timeout": 0.5})

    cllm("Go.", "--allow-commands").succeeded()

    assert results_in(provider.requests[1]) == ["Error: timed out after 0.5 seconds."]


def test_without_a_terminal_a_command_that_must_be_confirmed_is_not_run(provider, model, cllm):
    model("pwd")

    cllm("Go.", "--allow-commands", "--confirm-commands").succeeded()

    assert "on a terminal" in results_in(provider.requests[1])[0]


@pytest.mark.parametrize(("key", "ran"), [(b"y\r", True), (b"n\r", False), (b"\r", False)])
def test_on_a_terminal_the_user_confirms_commands(key, ran, provider, model, cllm):
    model("pwd", dynamic_commands={"require_confirmation": True})
    running = cllm.start("Go.", "--allow-commands", terminal=True)
    running.wait_for_output("Run it? [y/N]")

    running.type(key)
    running.finish()

    result = results_in(provider.requests[1])[0]
    assert (result == str(cllm.home.work.resolve())) is ran
    assert ("did not confirm" in result) is not ran


def test_ctrl_c_at_the_question_ends_the_command(provider, model, cllm):
    model("pwd", dynamic_commands={"require_confirmation": True})
    running = cllm.start("Go.", "--allow-commands", terminal=True)
    running.wait_for_output("Run it? [y/N]")

    running.type(b"\x03")

    assert running.finish(timeout=10).code == 130
    assert len(provider.requests) == 1


def test_the_model_does_not_get_the_keys_of_the_environment(provider, model, cllm):
    model("env", dynamic_commands={"allow": ["env"]})

    cllm(
        "Go.", "--allow-commands", env={"MY_API_KEY": "sk-0123456789", "PLAIN": "seen"}
    ).succeeded()

    (result,) = results_in(provider.requests[1])
    assert "PLAIN=seen" in result
    assert "sk-0123456789" not in result


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"dynamic_commands": []}, "dynamic_commands"),
        ({"dynamic_commands": {"alow": []}}, "alow"),
        ({"dynamic_commands": {"allow": "ls"}}, "allow"),
        ({"dynamic_commands": {"timeout": 0}}, "timeout"),
        ({"dynamic_commands": {"available_commands": [5]}}, "available_commands"),
        ({"allow_dynamic_commands": "maybe"}, "allow_dynamic_commands"),
    ],
)
def test_a_setting_that_is_wrong_is_named(keys, word, provider, settings, cllm):
    settings(**keys)

    cllm("Hello").failed_with_one_sentence(word, "line", prefix="Configuration error: ")

    assert provider.requests == []
