"""The example Cllmfiles are run as their comments say, against a provider on loopback."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tests.fake_provider import ToolCall

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"
NAMES = sorted(path.name.split(".")[0] for path in EXAMPLES.glob("*.Cllmfile.yml"))


@pytest.fixture
def example(home, settings):
    """Copies an example beside the work; the model is named over it with -m."""

    def copy(name):
        return Path(shutil.copy(EXAMPLES / f"{name}.Cllmfile.yml", home.work))

    return copy


def commands_of(name: str) -> list[list[str]]:
    """The commands in an example's comments."""
    lines = (EXAMPLES / f"{name}.Cllmfile.yml").read_text(encoding="utf-8").splitlines()
    comments = [line[1:].strip() for line in lines if line.startswith("#")]
    found = [re.sub(r"  +\(.*\)$", "", line) for line in comments if line.startswith("cllm ")]
    return [shlex.split(line)[1:] for line in found]


def test_there_are_the_four():
    assert NAMES == ["context", "dynamic", "prompt", "server"]


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_in_its_comments_run(name, example, cllm):
    example(name)

    assert len(commands_of(name)) >= 1
    for words in commands_of(name):
        flags = [] if words[0] == "trust" else ["-m", "openai/gpt-test"]
        cllm(*words, *flags).succeeded()


@pytest.mark.parametrize("name", ["context", "dynamic", "server"])
def test_dangerous_settings_need_trust(name, example, provider, cllm):
    example(name)

    done = cllm("-C", name, "-m", "openai/gpt-test", "Hello")

    done.failed_with_one_sentence("cllm trust", prefix="Configuration error: ")
    assert provider.requests == []


def test_prompt_is_captured_and_its_parameters_are_sent(example, home, provider, cllm):
    example("prompt")

    cllm("-C", "prompt", "-m", "openai/gpt-test", "Hello", "--conversation", "demo").succeeded()

    assert home.messages("demo")[0][1].startswith("You are a patient reviewer.\n")
    sent = provider.requests[0].json
    assert (sent["temperature"], sent["max_tokens"]) == (0.3, 500)
    assert sent["messages"][0]["content"] == home.messages("demo")[0][1]


def test_context_is_stored_once_below_the_prompt(example, home, provider, cllm):
    for name in "abc":
        (home.work / f"{name}.txt").touch()
    example("context")
    asked = ("-C", "context", "-m", "openai/gpt-test", "--trust", "--conversation", "demo")

    cllm(*asked, "--var", "DEPTH=2", "Hello").succeeded()
    cllm(*asked, "And now?").succeeded()

    system = home.messages("demo")[0][1]
    assert system.startswith("Answer from the context.\n\n--- Context: Machine")
    assert "--- Context: Files ---\na.txt\nb.txt\n--- End Context ---" in system
    assert [r.json["messages"][0]["content"] for r in provider.requests] == [system] * 2
    assert provider.requests[1].message_pairs[-1] == ("user", "And now?")


def test_dynamic_runs_with_each_turn_and_lets_the_model_ask(example, home, provider, cllm):
    example("dynamic")
    (home.work / "here.txt").touch()
    arguments = json.dumps({"command": "ls", "reason": "to see"})
    call = ToolCall(id="c1", name="execute_bash_command", arguments=arguments)
    provider.queue_reply(tool_calls=(call,), finish="tool_calls")
    provider.queue_reply("A file.")

    asked = ("-C", "dynamic", "-m", "openai/gpt-test", "--trust", "--conversation", "demo")
    assert cllm(*asked, "What is here?").succeeded().out == "A file.\n"

    first, second = provider.requests
    assert re.search(r"--- Context: Clock ---\n\d\d:\d\d\n", first.message_pairs[-1][1])
    assert "here.txt" in second.messages[-1]["content"]
    assert not any("Clock" in str(content) for _, content in home.messages("demo"))


def test_server_is_loaded_and_shown(example, provider, cllm, secret):
    example("server")

    shown = cllm(
        "-C", "server", "--show-config", "--trust", env={"ANTHROPIC_API_KEY": secret}
    ).succeeded()

    for words in ("server.default_provider: bedrock", "server.on_disconnect: complete", "my-vllm"):
        assert words in shown.out, shown.report()
    assert secret not in shown.out

    cllm("-C", "server", "--trust", "-m", "openai/gpt-test", "Hello").succeeded()
    assert "server" not in provider.requests[0].json
