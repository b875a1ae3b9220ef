"""The path digests of a conversation's turns, for every store."""

from collections.abc import Sequence

from cllm.core.message import Message
from cllm.wire.path_digest import digest_path, digest_turns
from cllm.wire.path_digest import path_start_of as find_start

__all__ = ["digest_turn", "digest_turns", "find_start"]


def digest_turn(messages: Sequence[Message], before: bytes | None) -> Sequence[bytes | None]:
    """Return the digests of a turn's messages; all None if the digest before it is."""
    return [None] * len(messages) if before is None else digest_path(messages, before)
