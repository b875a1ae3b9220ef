"""Models through LiteLLM, from the command to a service on loopback."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.command import START_IN_FULL
from tests.fake_provider import FakeProvider, closed_port
from tests.forking import LITELLM_MODULES

OPENAI = "litellm/openai/gpt-test"
ANTHROPIC = "litellm/anthropic/claude-test"
PIRATE = "You are a pirate. Always respond like a pirate."
PAIRS = [(model, way) for model in (OPENAI, ANTHROPIC) for way in ("--stream", "--no-stream")]


def base(provider: FakeProvider, model: str) -> str:
    return provider.root if model == ANTHROPIC else provider.url


@pytest.fixture(autouse=True)
def litellm_is_imported(cllm) -> None:
    """Fork commands from a process that has imported LiteLLM, which takes seconds."""
    cllm.modules = LITELLM_MODULES


@pytest.fixture
def ask(provider, settings, secret, cllm) -> Callable[..., Any]:
    """Asks that model in conversation `demo`; its service is the fake one."""

    def ask(text: str, model: str, *arguments: str, **options: Any) -> Any:
        settings(model=model, api_base=base(provider, model), default_system_message=PIRATE)
        return cllm(text, "--conversation", "demo", *arguments, **options)

    return ask


@pytest.mark.parametrize(("model", "way"), PAIRS)
def test_the_second_turn_carries_the_first(provider, secret, home, ask, model, way):
    provider.queue_reply("Ahoy ", "Alice!")
    provider.queue_reply("Alice, arr.")

    first = ask("My name is Alice", model, way).succeeded()
    second = ask("What is my name?", model, way).succeeded()

    assert (first.out, second.out) == ("Ahoy Alice!\n", "Alice, arr.\n")
    assert (first.err, second.err) == ("", "")
    for word in (PIRATE, "My name is Alice", "Ahoy Alice!", "What is my name?"):
        assert word in provider.requests[1].body.decode()
    assert home.load("demo")["model"] == model
    assert [role for role, _ in home.messages("demo")][1:] == ["user", "assistant"] * 2


def test_a_refusal_is_one_sentence(provider, secret, ask):
    provider.queue_error(403, f"Not with {secret}.")

    line = ask("Hello", OPENAI).failed_with_one_sentence("litellm", "returned HTTP 403")

    assert "Not with ***." in line


def test_a_stream_that_breaks_is_an_error_and_no_answer(provider, home, ask):
    provider.queue_reply("Hel", "lo", stop_after=1, abrupt=False)

    result = ask("Hello", OPENAI)

    assert result.code == 1
    assert "Traceback" not in result.err
    assert "before the reply was complete" in result.err
    assert home.turn_states("demo") == ["failed"]


def test_nobody_there_is_one_sentence(settings, cllm):
    settings(model=OPENAI, api_base=f"http://127.0.0.1:{closed_port()}/v1")

    cllm("Hello").failed_with_one_sentence("cannot reach provider 'litellm'")


def test_another_s_env_file_is_not_read(provider, settings, home, cllm):
    """LiteLLM would take addresses and keys from the folder it is started in."""
    settings(model=OPENAI, api_base=...)
    address = f"http://127.0.0.1:{closed_port()}/v1"
    (home.work / ".env").write_text(f"OPENAI_API_BASE={address}\n", encoding="utf-8")
    cllm.command = START_IN_FULL

    cllm("Hello", env={"OPENAI_BASE_URL": provider.url}).succeeded()

    assert len(provider.requests) == 1


def test_without_litellm_the_extra_is_named(provider, ask, home):
    missing = home.path / "missing"
    missing.mkdir()
    program = "raise ModuleNotFoundError(\"No module named 'litellm'\", name='litellm')\n"
    (missing / "litellm.py").write_text(program, encoding="utf-8")

    result = ask("Hello", OPENAI, env={"PYTHONPATH": str(missing)})

    result.failed_with_one_sentence("LiteLLM", "pip install", "[litellm]'")
    assert provider.requests == []


def test_a_stored_conversation_of_a_service_of_litellm_can_be_continued(
    provider, settings, secret, home, cllm
):
    messages = [("user", "Hello"), ("assistant", "Hi.")]
    home.write_old_conversation("demo", *messages, model="hosted_vllm/gpt-test")
    settings(
        model="openai/gpt-other",
        api_base=...,
        api_key=...,
        providers={"litellm": {"api_base": provider.url, "api_key": secret}},
    )
    provider.queue_reply("Again?")

    assert cllm("Again", "--conversation", "demo").succeeded().out == "Again?\n"

    assert provider.requests[0].json["model"] == "gpt-test"
    assert home.messages("demo")[-1] == ("assistant", "Again?")
