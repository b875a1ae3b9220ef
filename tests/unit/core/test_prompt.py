"""The messages of a prompt."""

from cllm.core.message import plain_message
from cllm.core.prompt import Prompt


def test_the_system_prompt_is_sent_first():
    system, user_message = plain_message("system", "Be brief."), plain_message("user", "Hello")

    assert Prompt(model="m", system=system, messages=(user_message,)).all_messages == (
        system,
        user_message,
    )


def test_without_a_system_prompt_none_is_sent():
    user_message = plain_message("user", "Hello")

    assert Prompt(model="m", messages=(user_message,)).all_messages == (user_message,)
