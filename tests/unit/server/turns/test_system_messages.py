"""The system prompt of a request, and the messages that are sent and saved."""

import pytest

from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.engine.request import TurnInput
from cllm.history.system_prompt import GivenPrompt
from cllm.server.turns.system_messages import set_system_prompt, split_messages

SYSTEM, USER = plain_message("system", "Be brief."), plain_message("user", "Hello.")
LATER = plain_message("system", "Be loud.")


def make_prompt(*messages, system=None) -> Prompt:
    return Prompt(model="openai/gpt-test", messages=messages, system=system)


@pytest.mark.parametrize(
    ("prompt", "prompt_messages", "ignored"),
    [
        (make_prompt(USER), (USER,), ()),
        (make_prompt(SYSTEM, USER), (USER,), ()),
        (make_prompt(SYSTEM, USER, LATER), (USER, LATER), (2,)),
        (make_prompt(USER, SYSTEM), (USER, SYSTEM), ()),
        (make_prompt(USER, LATER, system=SYSTEM), (USER, LATER), (1,)),
    ],
    ids=["none", "first", "two", "last", "separate"],
)
def test_only_messages_without_the_system_role_are_saved(prompt, prompt_messages, ignored):
    split = split_messages(prompt)

    assert split.saved_messages == (USER,)
    assert split.prompt_messages == prompt_messages
    assert split.has_inner_system == (prompt_messages != (USER,))
    assert [notice.path for notice in split.ignored_notices()] == [
        f"messages[{index}]" for index in ignored
    ]


def test_the_first_message_becomes_the_system_prompt():
    base = TurnInput(messages=(SYSTEM, USER), prefix="Prefix.")

    changed = set_system_prompt(base, split_messages(make_prompt(SYSTEM, USER)))

    assert (changed.system.text, changed.system.source) == ("Be brief.", "messages[0]")
    assert (changed.messages, changed.prefix) == ((USER,), "Prefix.")


def test_a_later_system_message_stays_and_gets_the_prefix():
    base = TurnInput(messages=(USER, SYSTEM), prefix="Prefix.")

    changed = set_system_prompt(base, split_messages(make_prompt(USER, SYSTEM)))

    assert changed.system == GivenPrompt()
    assert changed.messages[0] == USER
    assert changed.messages[1].text.startswith("Prefix.")
    assert changed.messages[1].text.endswith("Be brief.")
    assert changed.prefix is None
