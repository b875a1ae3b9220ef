"""The path digests of a conversation's turns, for every store."""

from cllm.wire.path_digest import digest_turns

__all__ = ["digest_turns"]
