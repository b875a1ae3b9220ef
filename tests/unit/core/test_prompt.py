"""What is sent."""

from cllm.core.message import plain_message
from cllm.core.prompt import Prompt


def test_the_system_prompt_is_sent_first():
    system, said = plain_message("system", "Be brief."), plain_message("user", "Hello")

    assert Prompt(model="m", system=system, messages=(said,)).all_messages == (system, said)


def test_without_a_system_prompt_none_is_sent():
    said = plain_message("user", "Hello")

    assert Prompt(model="m", messages=(said,)).all_messages == (said,)
