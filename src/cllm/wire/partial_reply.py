"""The text and usage of a reply that broke off, from the stream events that its client received.

The events are those of `server/turns/event_log.py`, in the protocol of the client.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from cllm.core.reply import RefusalDelta, ReplyEvent, TextDelta, Usage
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder
from cllm.wire.errors import MalformedError, ReportedError
from cllm.wire.openai.response_decoder import OpenAIStreamDecoder
from cllm.wire.responses.response_decoder import ResponsesStreamDecoder
from cllm.wire.sse import SseDecoder

RESPONSES_PREFIX = "response."


class PartialReply(msgspec.Struct, frozen=True, kw_only=True):
    """`usage` is None if no event reported it."""

    text: str
    usage: Usage | None


def decode_partial_reply(events: Iterable[bytes]) -> PartialReply:
    """Decode the events up to the first one that is invalid."""
    decoder = _StreamDecoder()
    texts: list[str] = []
    with suppress(MalformedError, ReportedError):
        texts.extend(
            event.text
            for event in decoder.decode(events)
            if isinstance(event, TextDelta | RefusalDelta)
        )
    return PartialReply(text="".join(texts), usage=decoder.usage)


class _StreamDecoder:
    """Events of Chat Completions have no names, those of the Responses API have a prefix."""

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._openai = OpenAIStreamDecoder()
        self._anthropic = AnthropicStreamDecoder()
        self._responses = ResponsesStreamDecoder()

    @property
    def usage(self) -> Usage | None:
        usage = self._anthropic.reported_usage or self._openai.reported_usage
        return usage if usage is not None and usage.total else None

    def decode(self, events: Iterable[bytes]) -> Iterator[ReplyEvent]:
        for data in events:
            for event in self._sse.feed(data):
                if event.name.startswith(RESPONSES_PREFIX):
                    yield from self._responses.decode(event.data)
                elif event.name:
                    yield from self._anthropic.decode(event.name, event.data)
                else:
                    yield from self._openai.decode(event.data)
