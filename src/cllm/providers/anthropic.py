"""The provider for Anthropic's Messages API."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

import msgspec

from cllm.core.errors import InvalidRequestError
from cllm.core.ports import TokenCount
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.core.secret import CallersKey
from cllm.providers.history import cache_control_for, repair_for
from cllm.providers.http.provider import (
    HttpProvider,
    ProviderRequest,
    SseReader,
    StreamReader,
    check_key,
)
from cllm.providers.http.transport import HttpResponse, HttpTransport, Timeouts
from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.anthropic.models import filter_betas, parse_betas
from cllm.wire.anthropic.options import build_limit_notices, default_max_tokens
from cllm.wire.anthropic.passthrough import PassthroughReader
from cllm.wire.anthropic.request import (
    UNCOUNTED_FIELDS,
    EncodedMessagesRequest,
    encode_count,
    is_thread_continuation,
)
from cllm.wire.convert import encode_anthropic
from cllm.wire.errors import ErrorDetails
from cllm.wire.messages import Repair, no_repair

# A later version refuses a temperature for every model, even if the model accepts one.
VERSION = "2023-06-01"
BETA_HEADER = "anthropic-beta"
MAX_LISTED = 1000
"""The largest page of models that the API allows."""
NO_COUNT_STATUSES = (404, 405, 501)
KEY_HEADERS = ("authorization", "x-api-key")


class AnthropicProvider(HttpProvider):
    """The API at one address; `betas` are sent with every request."""

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None,
        http: HttpTransport,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        betas: Sequence[str] = (),
    ) -> None:
        super().__init__(name=name, secrets=(api_key,), headers=headers, timeouts=timeouts)
        self._http = http
        flags = [self._headers.pop(key) for key in (*self._headers,) if key.lower() == BETA_HEADER]
        self._betas = (*betas, *(parse_betas(",".join(flags)) if flags else ()))
        version_url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1"
        self._url = f"{version_url}/messages"
        self._model_list_url = f"{version_url}/models?limit={MAX_LISTED}"
        self._key = api_key
        self._is_token = False

    def with_key(self, key: CallersKey) -> Self:
        """Return a copy that sends a caller's key instead of ours, over the same connections."""
        keyed = copy(self)
        keyed._key, keyed._is_token = key.secret.reveal(), key.token  # noqa: SLF001 - its own
        keyed._headers = {  # noqa: SLF001
            name: value for name, value in self._headers.items() if name.lower() not in KEY_HEADERS
        }
        keyed._secrets = (*self._secrets, keyed._key)  # noqa: SLF001
        return keyed

    def _encode(self, prompt: Prompt) -> ProviderRequest:
        limit = default_max_tokens(prompt.model)
        repair: Repair = repair_for("anthropic", prompt.model, provider=self.name)
        if is_thread_continuation(prompt.parameters):
            repair = no_repair
        encoded = encode_anthropic(
            prompt,
            default_max_tokens=limit,
            repair=repair,
            cache_control=cache_control_for("anthropic", prompt.model, prompt.continuity),
        )
        if isinstance(encoded, EncodedMessagesRequest):
            flags = encoded.betas
        else:
            flags = parse_betas(prompt.parameters.get("betas"))
        betas, dropped = (
            filter_betas(flags, always=self._betas) if flags or self._betas else ((), ())
        )
        added = build_limit_notices(prompt.parameters, prompt.dialect, model=prompt.model)
        return ProviderRequest(
            url=self._url,
            body=encoded.body,
            headers={BETA_HEADER: ",".join(betas)} if betas else {},
            notices=(*encoded.notices, *dropped, *added),
            names=encoded.names,
            verbatim=prompt.dialect == "anthropic" and not encoded.names,
        )

    async def count_tokens(self, prompt: Prompt) -> TokenCount | None:
        """Count by the API; None if the address has no such endpoint."""
        request = self._build_request(msgspec.structs.replace(prompt, stream=False))
        count_request = msgspec.structs.replace(
            request,
            url=f"{self._url}/count_tokens",
            body=encode_count(request.body, prompt),
            notices=tuple(n for n in request.notices if n.path not in UNCOUNTED_FIELDS),
        )
        try:
            body = await self._fetch(count_request)
        except InvalidRequestError as error:
            if error.status in NO_COUNT_STATUSES and error.code != "not_found_error":
                return None
            raise
        tokens = self._parse_token_count(body, "input_tokens")
        return TokenCount(tokens=tokens, notices=count_request.notices, raw=body)

    async def _request_headers(self, request: ProviderRequest) -> dict[str, str]:
        check_key(self._key, provider=self.name)
        key = {} if self._key is None else {"x-api-key": self._key}
        if self._is_token:
            key = {"Authorization": f"Bearer {self._key}"}
        common = {"Content-Type": "application/json", "anthropic-version": VERSION}
        return {**common, **key, **request.headers, **self._headers}

    def _decode_answer(self, body: bytes, request: ProviderRequest) -> list[ReplyEvent]:
        return anthropic_decoder.decode_answer(body, names=request.names)

    def _stream_reader(self, request: ProviderRequest) -> StreamReader:
        decoder = anthropic_decoder.AnthropicStreamDecoder(names=request.names)
        if request.verbatim:
            return PassthroughReader(decoder)
        return SseReader(
            decoder,
            lambda event: decoder.decode(event.name, event.data),
            get_model=lambda: decoder.reported_model,
            get_usage=lambda: decoder.reported_usage,
        )

    def _error_details(self, _response: HttpResponse, body: bytes) -> ErrorDetails:
        return anthropic_decoder.decode_error(body)
