"""A prompt of one word that is a command is not sent by mistake."""

import pytest

WORDS = [
    *("list", "show", "delete", "branch", "stats", "migrate", "pull", "upgrade"),
    *("help", "config", "logs", "migrate-conversations"),
    *("ls", "rm", "history", "version", "aliases"),
]


@pytest.mark.parametrize("word", WORDS)
def test_a_command_is_not_sent(word, settings, cllm, provider):
    cllm(word).failed_with_one_sentence(f"There is no command '{word}'", f"cllm -- {word}")

    assert provider.requests == []


def test_the_name_of_a_command_after_an_option_is_not_sent(settings, cllm, provider):
    result = cllm("-m", "openai/gpt-test", "conversations")

    result.failed_with_one_sentence("'conversations' is a command", "cllm -- conversations")
    assert provider.requests == []


@pytest.mark.parametrize(
    ("arguments", "command", "prompt"),
    [
        ("logs -n 3", "cllm conversations list -n 3", "cllm -- logs"),
        ("list -n 3 --json", "cllm conversations list -n 3 --json", "cllm -- list"),
        ("list --all", "cllm conversations list --all", "cllm -- list"),
        ("ls --since 7d", "cllm conversations list --since 7d", "cllm -- ls"),
        ("show cats", "cllm conversations show cats", "cllm -- 'show cats'"),
        ("rm cats --yes", "cllm conversations delete cats --yes", "cllm -- 'rm cats'"),
        ("export cats --format html", "cllm conversations export cats --format html", "cllm --"),
        ("import chats.zip", "cllm conversations import chats.zip", "cllm -- 'import chats.zip'"),
        ("lst -n 3", "cllm conversations list -n 3", "cllm -- lst"),
        ("conversatons list", "cllm conversations list", "cllm -- 'conversatons list'"),
        ("help conversations", "cllm conversations --help", "cllm -- 'help conversations'"),
        ("help models list", "cllm models list --help", "cllm -- 'help models list'"),
        ("config --json", "cllm --show-config", "cllm -- config"),
    ],
)
def test_a_command_with_arguments_is_named_in_one_sentence(
    arguments, command, prompt, settings, cllm, provider
):
    result = cllm(*arguments.split())

    line = result.failed_with_one_sentence("There is no command", prompt, code=2)
    assert f": {command};" in line
    assert provider.requests == []


@pytest.mark.parametrize(
    "arguments", ["list the rivers of France", "show me all rivers", "What is this", "-5 + 3"]
)
def test_a_prompt_of_several_words_has_the_hint_about_quotes(arguments, settings, cllm, provider):
    result = cllm(*arguments.split())

    assert result.code == 2
    assert "There is no command" not in result.err
    assert "cllm " in result.warnings[-1]
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
