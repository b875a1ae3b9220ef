"""A conversation file written in pieces equals the file written as a whole."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.torture import choose_size
from tests.unit.wire.conversation_file.test_codec import conversation, conversations, turn

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import UsageError
from cllm.core.message import Message
from cllm.wire.conversation_file.codec import encode_conversation
from cllm.wire.conversation_file.writer import FileWriter


def bare(one: Turn) -> Turn:
    return msgspec.structs.replace(one, messages=())


def parts(one: Turn, length: int) -> Iterator[tuple[Message, ...]]:
    """The messages of a turn, so many at once."""
    starts = range(0, len(one.messages) or 1, length)
    return (one.messages[start : start + length] for start in starts)


def in_pieces(whole: StoredConversation, length: int) -> Iterator[bytes]:
    writer = FileWriter(
        msgspec.structs.replace(
            whole,
            turns=tuple(map(bare, whole.turns)),
            variants=tuple(map(bare, whole.variants)),
        )
    )
    yield writer.start()
    history = [one for one in whole.turns if one.is_history]
    for one in history:
        for messages in parts(one, length):
            yield writer.add_messages(one, messages)
    yield writer.add_metadata()
    for one in whole.turns:
        yield writer.record("turns", bare(one) if one.is_history else one)
    for one in whole.variants:
        yield writer.record("variants", one)
    yield writer.add_prompt_original()
    add_originals = {one.id for one in writer.turns_with_originals}
    for one in history:
        for messages in parts(one, length) if one.id in add_originals else ():
            yield writer.add_originals(one, messages)
    yield writer.end()


@settings(max_examples=choose_size(25, 1000), deadline=None)
@given(conversations(), st.integers(1, 4))
def test_the_joined_pieces_equal_the_whole_file(whole: StoredConversation, length: int):
    assert b"".join(in_pieces(whole, length)) == encode_conversation(whole)


def test_an_empty_conversation_equals_the_whole_file():
    whole = conversation()
    assert b"".join(in_pieces(whole, 1)) == encode_conversation(whole)


def test_a_message_that_cannot_be_decoded_again_is_refused():
    broken = Message(role="user", raw=b'{"role": "user", "content": "\\ud800"}')
    whole = conversation(msgspec.structs.replace(turn("t1"), messages=(broken,)))
    with pytest.raises(UsageError):
        encode_conversation(whole)
    with pytest.raises(UsageError):
        list(in_pieces(whole, 1))
