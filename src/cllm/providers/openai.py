"""Any server that speaks OpenAI Chat Completions."""

from collections.abc import Mapping

from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers import refusal
from cllm.providers.asking import HttpProvider, Request, SseReader, StreamReader
from cllm.providers.http import Http, Response, Timeouts
from cllm.wire import openai_chat
from cllm.wire.malformed import ErrorDetails
from cllm.wire.translate import encode_openai


class OpenAIProvider(HttpProvider):
    """One server: an address, perhaps a key, and what else it wants to be sent with a request."""

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
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._key = api_key

    def _encode(self, prompt: Prompt) -> Request:
        encoded = encode_openai(prompt)
        return Request(url=self._url, body=encoded.body, notices=encoded.notices)

    async def _request_headers(self, _request: Request) -> dict[str, str]:
        refusal.check_key(self._key, provider=self.name)
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return {"Content-Type": "application/json", **key, **self._headers}

    def _decode_answer(self, body: bytes, _request: Request) -> list[ReplyEvent]:
        return openai_chat.decode_answer(body)

    def _stream_reader(self, _request: Request) -> StreamReader:
        decoder = openai_chat.StreamDecoder()
        return SseReader(decoder, lambda sent: decoder.decode(sent.data))

    def _error_details(self, _response: Response, body: bytes) -> ErrorDetails:
        return openai_chat.decode_error(body)
