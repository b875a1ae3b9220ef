"""Any server that speaks OpenAI Chat Completions. Asks once; retrying is the engine's work."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus

from cllm.core.errors import (
    AuthenticationError,
    BadReplyError,
    BrokenStreamError,
    ProviderError,
    UpstreamError,
)
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers import refusal
from cllm.providers.http import Http, Response, Timeouts
from cllm.wire import openai_chat
from cllm.wire.malformed import MalformedError
from cllm.wire.sse import SseDecoder

TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error")


class OpenAIProvider:
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
        self.name = name
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._key = api_key
        self._http = http
        self._headers = dict(headers or {})
        self._secrets = (api_key, *self._headers.values())
        self._timeouts = timeouts or Timeouts()

    async def prepare(self) -> None:
        """Nothing takes long here."""

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        response = await self._http.post(
            self._url,
            headers=self._request_headers(),
            body=openai_chat.encode_request(prompt),
            provider=self.name,
            timeouts=self._timeouts,
        )
        try:
            if response.status != HTTPStatus.OK:
                raise self._refusal(response, await response.read())
            events = self._streamed(response) if prompt.stream else self._whole(response)
            async with aclosing(events):
                async for event in events:
                    yield event
        except openai_chat.ProviderSaidError as error:
            said = refusal.one_line(str(error), secrets=self._secrets)
            raise UpstreamError(
                f"Provider '{self.name}' broke off its answer: {said}",
                provider=self.name,
                code=error.details.code or error.details.type or None,
            ) from error
        except MalformedError as error:
            raise BadReplyError(
                f"Provider '{self.name}' sent something that is not an answer "
                f"({refusal.one_line(str(error), secrets=self._secrets)}); check api_base.",
                provider=self.name,
            ) from error
        finally:
            await response.close()

    async def close(self) -> None:
        await self._http.close()

    def _request_headers(self) -> dict[str, str]:
        if self._key is not None and not (self._key.isascii() and self._key.isprintable()):
            raise AuthenticationError(
                f"The API key of provider '{self.name}' has characters that no key has; check it.",
                provider=self.name,
            )
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return {"Content-Type": "application/json", **key, **self._headers}

    async def _whole(self, response: Response) -> AsyncGenerator[ReplyEvent, None]:
        for event in openai_chat.decode_answer(await response.read()):
            yield event

    async def _streamed(self, response: Response) -> AsyncGenerator[ReplyEvent, None]:
        """The events of a stream, or of a whole answer if the server did not stream after all."""
        if response.headers.get("Content-Type", "").startswith("application/json"):
            async for event in self._whole(response):
                yield event
            return
        decoder = openai_chat.StreamDecoder()
        sse = SseDecoder()
        async for piece in response.chunks():
            for sent in sse.feed(piece):
                for event in decoder.decode(sent.data):
                    yield event
                if decoder.done:
                    break
            if decoder.done:
                break
        finished = decoder.finish()
        if finished is None:
            raise BrokenStreamError(
                f"Provider '{self.name}' ended its stream before its answer; ask again.",
                provider=self.name,
            )
        yield finished

    def _refusal(self, response: Response, body: bytes) -> ProviderError:
        status = response.status
        details = openai_chat.decode_error(body)
        too_long = details.code in TOO_LONG_CODES or details.type in TOO_LONG_CODES
        kind, advice = refusal.TOO_LONG if too_long else refusal.meaning_of(status)
        said = refusal.one_line(details.message, secrets=self._secrets).rstrip(".")
        return kind(
            f"Provider '{self.name}' answered {status}{': ' if said else ''}{said}. {advice}",
            provider=self.name,
            status=status,
            retry_after=refusal.retry_after(response.headers, now=datetime.now(UTC)),
            code=details.code or details.type or None,
        )
