"""Anthropic's Messages API."""

from collections.abc import Mapping

from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers import refusal
from cllm.providers.asking import HttpProvider, Request, SseReader, StreamReader
from cllm.providers.http import Http, Response, Timeouts
from cllm.wire import anthropic_reply
from cllm.wire.malformed import ErrorDetails
from cllm.wire.translate import encode_anthropic

VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 8192


class AnthropicProvider(HttpProvider):
    """The API at one address, with one key."""

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None,
        http: Http,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        super().__init__(name=name, secret=api_key, http=http, headers=headers, timeouts=timeouts)
        self._url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages"
        self._key = api_key

    def _encode(self, prompt: Prompt) -> Request:
        encoded = encode_anthropic(prompt, default_max_tokens=DEFAULT_MAX_TOKENS)
        return Request(url=self._url, body=encoded.body, notices=encoded.notices)

    async def _request_headers(self, _request: Request) -> dict[str, str]:
        refusal.check_key(self._key, provider=self.name)
        key = {} if self._key is None else {"x-api-key": self._key}
        fixed = {"Content-Type": "application/json", "anthropic-version": VERSION}
        return {**fixed, **key, **self._headers}

    def _decode_answer(self, body: bytes, _request: Request) -> list[ReplyEvent]:
        return anthropic_reply.decode_answer(body)

    def _stream_reader(self, _request: Request) -> StreamReader:
        decoder = anthropic_reply.StreamDecoder()
        return SseReader(decoder, lambda sent: decoder.decode(sent.name, sent.data))

    def _error_details(self, _response: Response, body: bytes) -> ErrorDetails:
        return anthropic_reply.decode_error(body)
