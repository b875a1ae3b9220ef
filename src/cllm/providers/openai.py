"""OpenAI-compatible servers, by the Chat Completions API or the Responses API."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers.history import repair_for
from cllm.providers.http.provider import (
    HttpProvider,
    ProviderRequest,
    SseReader,
    StreamReader,
    check_key,
)
from cllm.providers.http.transport import HttpResponse, HttpTransport, Timeouts
from cllm.wire.convert import encode_openai, encode_responses, needs_responses_api
from cllm.wire.errors import ErrorDetails
from cllm.wire.media import COMPATIBLE, MediaRule
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.reasoning import AS_SENT, ReasoningRule

Api = Literal["chat", "responses"]

PATHS: dict[Api, str] = {"chat": "chat/completions", "responses": "responses"}
OPENAI = "https://api.openai.com/"
# OpenAI serves these models by its Responses API only.
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


def choose_api(prompt: Prompt, *, url: str) -> Api:
    """Servers other than OpenAI always get chat; OpenAI gets the API of the client."""
    if not url.startswith(OPENAI):
        return "chat"
    if prompt.dialect == "responses":
        return "responses"
    needs_responses = any(fnmatchcase(prompt.model, pattern) for pattern in RESPONSES_MODELS)
    return "responses" if needs_responses or needs_responses_api(prompt) else "chat"


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class OpenAIProvider(HttpProvider):
    """The provider for one OpenAI-compatible server.

    `api`: None chooses it by model and prompt. `profile`: the name of the history rules.
    `defaults`: fields for requests that lack them. `media`: the attachments that it accepts.
    """

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None,
        http: HttpTransport,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        api: Api | None = None,
        profile: str | None = None,
        defaults: Mapping[str, Any] | None = None,
        reasoning: ReasoningRule = AS_SENT,
        media: MediaRule = COMPATIBLE,
    ) -> None:
        super().__init__(name=name, secrets=(api_key,), headers=headers, timeouts=timeouts)
        self._http = http
        self._urls = {kind: f"{base_url.rstrip('/')}/{path}" for kind, path in PATHS.items()}
        self._embeddings = f"{base_url.rstrip('/')}/embeddings"
        self._model_list_url = f"{base_url.rstrip('/')}/models"
        self._key = api_key
        self._api = api
        self._profile = profile
        self._defaults = dict(defaults or {})
        self._reasoning = reasoning
        self._media = media

    def encode_body(self, prompt: Prompt) -> bytes:
        return self._build_request(prompt).body

    async def embed(self, body: bytes) -> bytes:
        return await self._fetch(ProviderRequest(url=self._embeddings, body=body))

    def _encode(self, prompt: Prompt) -> ProviderRequest:
        api = self._api or choose_api(prompt, url=self._urls["responses"])
        repair = repair_for("openai", prompt.model, provider=self.name, profile=self._profile)
        if api == "responses":
            encoded = encode_responses(prompt, repair=repair)
        else:
            encoded = encode_openai(
                prompt,
                repair=repair,
                can_skip_repair=repair.can_skip_repair,
                reasoning=self._reasoning,
                media_rule=self._media,
            )
        body = encoded.body
        if self._defaults:
            body = msgspec.json.encode(self._defaults | _fields_decoder.decode(body))
        return ProviderRequest(
            url=self._urls[api],
            body=body,
            notices=encoded.notices,
            names=encoded.names,
            verbatim=api == prompt.dialect == "responses" and not encoded.names,
        )

    async def _request_headers(self, _request: ProviderRequest) -> dict[str, str]:
        check_key(self._key, provider=self.name)
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return {"Content-Type": "application/json", **key, **self._headers}

    def _is_responses(self, request: ProviderRequest) -> bool:
        return request.url == self._urls["responses"]

    def _decode_answer(self, body: bytes, request: ProviderRequest) -> list[ReplyEvent]:
        if self._is_responses(request):
            from cllm.wire.responses import response_decoder  # noqa: PLC0415 - few models need it

            return response_decoder.decode_answer(body, names=request.names)
        return openai_decoder.decode_answer(body, names=request.names)

    def _stream_reader(self, request: ProviderRequest) -> StreamReader:
        if self._is_responses(request):
            from cllm.wire.responses import response_decoder  # noqa: PLC0415 - few models need it

            responses = response_decoder.ResponsesStreamDecoder(names=request.names)
            if request.verbatim:
                from cllm.wire.responses.passthrough import (  # noqa: PLC0415 - as above
                    ResponsesPassthroughReader,
                )

                return ResponsesPassthroughReader(responses)
            return SseReader(
                responses,
                lambda event: responses.decode(event.data),
                get_model=lambda: responses.reported_model,
            )
        chat = openai_decoder.OpenAIStreamDecoder(names=request.names)
        return SseReader(
            chat, lambda event: chat.decode(event.data), get_model=lambda: chat.reported_model
        )

    def _error_details(self, _response: HttpResponse, body: bytes) -> ErrorDetails:
        return openai_decoder.decode_error(body)
