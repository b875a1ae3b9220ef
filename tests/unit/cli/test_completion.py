"""The values that shells complete."""

import click

from cllm.cli.completion import _completion_items, command, complete_commands

CONTEXT = click.Context(command)


def test_items_start_with_the_incomplete_word():
    items = _completion_items([("cats", "Luna"), ("dogs", ""), ("cars", "")], "ca")

    assert [(item.value, item.help) for item in items] == [("cats", "Luna"), ("cars", None)]


def test_a_name_with_hidden_characters_is_not_completed():
    assert _completion_items([("a\x1b[2J", ""), ("a\nb", "")], "a") == []


def test_commands_are_completed_after_the_first_letter():
    parameter = command.params[0]

    assert complete_commands(CONTEXT, parameter, "") == []
    assert [item.value for item in complete_commands(CONTEXT, parameter, "c")] == [
        "chat",
        "completion",
        "conversations",
    ]
    assert complete_commands(CONTEXT, parameter, "ask") == []
