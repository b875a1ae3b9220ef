"""Any server that speaks OpenAI's words: Chat Completions, or the Responses API if wanted."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec

from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers.fitting import mending_for
from cllm.providers.http import Http, Response, Timeouts
from cllm.providers.http_provider import HttpProvider, Request, SseReader, StreamReader, check_key
from cllm.wire.malformed import ErrorDetails
from cllm.wire.media import first_media, in_words
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.reasoning import AS_SENT, ReasoningRule
from cllm.wire.spoken import Mend
from cllm.wire.translate import encode_openai, encode_responses, is_refused_by_chat

Api = Literal["chat", "responses"]

PATHS: dict[Api, str] = {"chat": "chat/completions", "responses": "responses"}
OPENAI = "https://api.openai.com/"
# Models that OpenAI itself serves by its Responses API only.
RESPONSES_MODELS = (
    "*-codex*",
    "*-deep-research*",
    "codex-*",
    "computer-use-preview*",
    "gpt-*-cyber*",
    "gpt-*-pro",
    "gpt-*-pro-*",
    "gpt-*-rosalind*",
    "gpt-daybreak-*",
    "gpt-rosalind-*",
    "o[0-9]-pro*",
)


@lru_cache(maxsize=1000)
def api_of(model: str, *, url: str) -> Api:
    """The API that a model wants at an address; other servers than OpenAI's have chat for all."""
    wanted = any(fnmatchcase(model, pattern) for pattern in RESPONSES_MODELS)
    return "responses" if wanted and url.startswith(OPENAI) else "chat"


def api_for(prompt: Prompt, *, url: str) -> Api:
    """The API for a prompt: what its model wants, or what takes all that is asked of the model."""
    api = api_of(prompt.model, url=url)
    elsewhere = api == "chat" and url.startswith(OPENAI) and is_refused_by_chat(prompt)
    return "responses" if elsewhere else api


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class OpenAIProvider(HttpProvider):
    """One server: an address, perhaps a key, and what else it wants to be sent with a request.

    `api` says which API is used for all models; without it, that is chosen by the model's name,
    and by what is asked of it.
    `profile` names the rules by which the server takes a history, if they are not OpenAI's.
    `defaults` are fields that every request has which does not say otherwise. A server that
    `reads_text_only` is told of the images in a history in words. `reasoning` says what the server
    takes of past reasoning.
    """

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None,
        http: Http,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        api: Api | None = None,
        profile: str | None = None,
        defaults: Mapping[str, Any] | None = None,
        reads_text_only: bool = False,
        reasoning: ReasoningRule = AS_SENT,
    ) -> None:
        super().__init__(name=name, secret=api_key, http=http, headers=headers, timeouts=timeouts)
        self._urls = {kind: f"{base_url.rstrip('/')}/{path}" for kind, path in PATHS.items()}
        self._embeddings = f"{base_url.rstrip('/')}/embeddings"
        self._key = api_key
        self._api = api
        self._profile = profile
        self._defaults = dict(defaults or {})
        self._reads_text_only = reads_text_only
        self._reasoning = reasoning

    def body_of(self, prompt: Prompt) -> bytes:
        """What the server would be sent, for one that can do more with it than answer."""
        return self._encoded(prompt).body

    async def embed(self, body: bytes) -> bytes:
        """The answer to a request for embeddings, both as they are."""
        return await self._fetch(Request(url=self._embeddings, body=body))

    def _encode(self, prompt: Prompt) -> Request:
        api = self._api or api_for(prompt, url=self._urls["responses"])
        mending = mending_for("openai", prompt.model, provider=self.name, profile=self._profile)
        plainly, mend = mending.takes_texts_as_they_are, cast("Mend", mending)
        if self._reads_text_only and first_media(prompt) is not None:
            plainly, mend = False, in_words(mending)
        if api == "responses":
            encoded = encode_responses(prompt, mend=mend)
        else:
            encoded = encode_openai(
                prompt,
                mend=mend,
                takes_texts_as_they_are=plainly,
                reasoning=self._reasoning,
            )
        body = encoded.body
        if self._defaults:
            body = msgspec.json.encode(self._defaults | _fields.decode(body))
        return Request(url=self._urls[api], body=body, notices=encoded.notices, names=encoded.names)

    async def _request_headers(self, _request: Request) -> dict[str, str]:
        check_key(self._key, provider=self.name)
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return {"Content-Type": "application/json", **key, **self._headers}

    def _decode_answer(self, body: bytes, request: Request) -> list[ReplyEvent]:
        if request.url == self._urls["responses"]:
            from cllm.wire.responses import response_decoder as responses_decoder  # noqa: PLC0415 - most models want the other

            return responses_decoder.decode_answer(body, names=request.names)
        return openai_decoder.decode_answer(body, names=request.names)

    def _stream_reader(self, request: Request) -> StreamReader:
        if request.url == self._urls["responses"]:
            from cllm.wire.responses import response_decoder as responses_decoder  # noqa: PLC0415 - most models want the other

            events = responses_decoder.StreamDecoder(names=request.names)
            return SseReader(events, lambda sent: events.decode(sent.data))
        decoder = openai_decoder.StreamDecoder(names=request.names)
        return SseReader(decoder, lambda sent: decoder.decode(sent.data))

    def _error_details(self, _response: Response, body: bytes) -> ErrorDetails:
        return openai_decoder.decode_error(body)
