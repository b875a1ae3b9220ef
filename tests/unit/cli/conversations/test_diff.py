"""The common messages of two conversations."""

from cllm.cli.conversations.diff import count_common
from cllm.core.message import Message, plain_message


def test_messages_are_common_up_to_the_first_difference():
    one = [plain_message("user", text) for text in ("a", "b", "c")]
    other = [plain_message("user", text) for text in ("a", "x", "c")]

    assert count_common(one, other) == 1
    assert count_common(one, one[:2]) == 2
    assert count_common([], one) == 0


def test_the_order_of_keys_makes_no_difference():
    one = Message(role="user", raw=b'{"role":"user","content":"a"}')
    other = Message(role="user", raw=b'{"content": "a", "role": "user"}')

    assert count_common([one], [other]) == 1
    assert count_common([one], [Message(role="assistant", raw=one.raw)]) == 0


def test_a_damaged_message_is_compared_by_its_bytes():
    damaged = Message(role="user", raw=b"{")

    assert count_common([damaged], [Message(role="user", raw=b"{")]) == 1
    assert count_common([damaged], [Message(role="user", raw=b"[")]) == 0
