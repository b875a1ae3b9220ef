"""Checks of `cllm.ask` and `cllm.stream` before anything is sent."""

from typing import Any

import pytest

import cllm
from cllm.core.errors import (
    CllmError,
    InvalidIdError,
    InvalidTextError,
    ModelNotFoundError,
    UsageError,
)

pytestmark = pytest.mark.usefixtures("empty_home")
NOWHERE: Any = {"model": "nowhere/none"}


@pytest.mark.parametrize(("call", "name"), [(cllm.ask, "ask"), (cllm.stream, "stream")])
def test_an_unknown_keyword_names_the_function(call, name):
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'modle'"):
        call("Hello", modle="m")


@pytest.mark.parametrize("conversation", [None, False, "", True, "demo"])
def test_an_unknown_model_is_an_error_with_and_without_a_conversation(conversation):
    with pytest.raises(ModelNotFoundError) as raised:
        cllm.ask("Hello", conversation=conversation, **NOWHERE)

    assert raised.value.model == "nowhere/none"


def test_a_stream_fails_when_it_is_read():
    stream = cllm.stream("Hello", **NOWHERE)

    with pytest.raises(CllmError):
        next(stream)


def test_an_invalid_id_is_refused():
    with pytest.raises(InvalidIdError):
        cllm.ask("Hello", conversation="a/b")


@pytest.mark.parametrize("conversation", [None, "demo"])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_and_a_system_option_are_an_error(role, conversation):
    messages = [{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hello"}]

    with pytest.raises(
        UsageError, match=r"^The call has two system prompts: .* use one of them\.$"
    ):
        cllm.ask(messages, system="Be brief.", conversation=conversation)


@pytest.mark.parametrize("conversation", [None, "demo"])
def test_an_empty_list_of_messages_is_an_error(conversation):
    with pytest.raises(InvalidTextError, match="empty"):
        cllm.ask([], conversation=conversation)


def test_a_conversation_needs_more_than_a_system_message():
    with pytest.raises(UsageError, match="besides the system message"):
        cllm.ask([{"role": "system", "content": "Be brief."}], conversation="demo")


async def test_the_asynchronous_functions_raise_the_same_errors():
    with pytest.raises(ModelNotFoundError):
        await cllm.aask("Hello", **NOWHERE)
    with pytest.raises(ModelNotFoundError):
        async for _ in cllm.astream("Hello", **NOWHERE):
            pass
