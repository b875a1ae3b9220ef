from datetime import UTC, datetime

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.core.ports import Lease
from cllm.stores.postgres.turns import _only_appends

NOW = datetime(2026, 11, 16, tzinfo=UTC)
HELLO, REPLY = plain_message("user", "Hello"), plain_message("assistant", "Hi")
TURN = Turn(id="t1", place="t1", state="running", messages=(HELLO,), started_at=NOW)
LEASE = Lease(
    conversation=StoredConversation(id="demo", created_at=NOW, updated_at=NOW),
    turn=TURN,
    fence=1,
    created=False,
    visible=True,
)
replace = msgspec.structs.replace


def test_a_visible_turn_with_a_reply_only_appends():
    assert _only_appends(LEASE, replace(TURN, messages=(HELLO, REPLY)))


def test_a_hidden_turn_is_inserted():
    assert not _only_appends(replace(LEASE, visible=False), TURN)


def test_a_turn_with_changed_messages_is_rewritten():
    assert not _only_appends(LEASE, replace(TURN, messages=(REPLY,)))


def test_a_variant_is_rewritten():
    variant = replace(TURN, place="t0")
    assert not _only_appends(replace(LEASE, turn=variant), variant)
