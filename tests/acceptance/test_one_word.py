"""A prompt of one word that is a command is not sent by mistake."""

import pytest

WORDS = [
    *("list", "show", "delete", "branch", "stats", "migrate", "pull", "upgrade"),
    *("help", "config", "logs", "migrate-conversations"),
]


@pytest.mark.parametrize("word", WORDS)
def test_a_command_is_not_sent(word, settings, cllm, provider):
    cllm(word).failed_with_one_sentence(f"'{word}' is a command", f"cllm -- {word}")

    assert provider.requests == []


def test_the_name_of_a_command_after_an_option_is_not_sent(settings, cllm, provider):
    result = cllm("-m", "openai/gpt-test", "conversations")

    result.failed_with_one_sentence("cllm -- conversations")
    assert provider.requests == []


@pytest.mark.parametrize(
    ("arguments", "stdin", "prompt"),
    [
        (("--", "list"), b"", "list"),
        (("list",), b"a\nb\n", "list\na\nb"),
        (("list my files",), b"", "list my files"),
        (("lists",), b"", "lists"),
        (("conversatons",), b"", "conversatons"),
        (("Hello",), b"", "Hello"),
    ],
)
def test_other_prompts_are_sent(arguments, stdin, prompt, settings, cllm, provider):
    cllm(*arguments, stdin=stdin).succeeded()

    assert provider.requests[-1].message_pairs == [("user", prompt)]


@pytest.mark.parametrize("word", ["list", "conversatons"])
def test_a_terminal_is_asked(word, settings, cllm, provider):
    refused = cllm.on_terminal(word, typed=b"n\n")
    assert refused.code == 1
    assert "[y/N]" in refused.out
    assert "cllm conversations" in refused.out
    assert provider.requests == []

    agreed = cllm.on_terminal(word, typed=b"y\n")
    assert agreed.code == 0
    assert len(provider.requests) == 1


@pytest.mark.parametrize("arguments", [("Hello",), ("--", "list"), ("list my files",)])
def test_a_terminal_is_not_asked_about_other_prompts(arguments, settings, cllm, provider):
    done = cllm.on_terminal(*arguments)

    assert "[y/N]" not in done.out
    assert len(provider.requests) == 1
