"""The chunks of a streamed chat completion, as they travel.

Nearly all are read with one look, by a decoder that refuses a field it has no name for. Those that
it refuses are read again with every field they have, and so is the rest of their stream: nothing of
an answer is lost, and no other stream pays for it. What the fields mean is for `openai_chat`.

A chunk is thrown away once it is read and never refers to itself: the garbage collector need not
know of it.
"""

from typing import Any

import msgspec

from cllm.wire.malformed import MalformedError
from cllm.wire.openai_beside import FUNCTION_CALL, TOOL_CALLS
from cllm.wire.openai_calls import CallPiece, odd_piece

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Delta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields that deltas usually have; a delta with another one is an `OddDelta`."""

    role: Any = None
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[CallPiece] | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None
    reasoning_details: list[Any] | None = None
    function_call: Any = None
    provider_specific_fields: Any = None


class OddDelta(Delta, forbid_unknown_fields=False):
    """A delta with fields that have no name here; `rest` holds them."""

    rest: Any = None


class ChunkChoice(msgspec.Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[ChunkChoice] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


class OddChoice(msgspec.Struct):
    index: int = 0
    delta: dict[str, Any] | None = None
    finish_reason: str | None = None
    logprobs: Any = None

    def usual(self) -> ChunkChoice:
        return ChunkChoice(
            index=self.index,
            delta=None if self.delta is None else _odd_delta(self.delta),
            finish_reason=self.finish_reason,
            logprobs=self.logprobs,
        )


class OddChunk(msgspec.Struct):
    """A chunk whose deltas may have any field."""

    choices: list[OddChoice] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None

    def usual(self) -> Chunk:
        return Chunk(
            choices=[choice.usual() for choice in self.choices or ()],
            model=self.model,
            usage=self.usage,
            error=self.error,
        )


BESIDE = ("reasoning_details", "annotations", "audio", FUNCTION_CALL, "provider_specific_fields")
NAMED = frozenset(Delta.__struct_fields__)
SPOKEN = NAMED.difference(BESIDE)


def _odd_delta(given: dict[str, Any]) -> OddDelta:
    """A delta, whatever fields it and its tool calls have."""
    named = {name: given[name] for name in given if name in NAMED and name != TOOL_CALLS}
    delta = msgspec.convert(named, OddDelta)
    if given.get(TOOL_CALLS):
        pieces = msgspec.convert(given[TOOL_CALLS], list[dict[str, Any]])
        delta.tool_calls = [odd_piece(piece) for piece in pieces]
    delta.rest = {name: given[name] for name in given if name not in NAMED}
    return delta


decode_usual = msgspec.json.Decoder(Chunk).decode
_odd_decoder = msgspec.json.Decoder(OddChunk)


def read_odd(data: bytes) -> Chunk:
    """A chunk with any fields in its deltas."""
    return _odd_decoder.decode(data).usual()


def decode_odd(data: bytes) -> Chunk:
    """A chunk with a field that has no name here; what is no chunk at all is refused."""
    try:
        return read_odd(data)
    except UNREADABLE as error:
        raise MalformedError(f"not a chunk of a chat completion: {error}") from error
