"""Base classes of remote providers: send one request, decode its events, classify its errors."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from cllm.core.errors import (
    AuthenticationError,
    BadReplyError,
    BrokenStreamError,
    InvalidRequestError,
    PermissionDeniedError,
    PromptTooLongError,
    ProviderError,
    QuotaExceededError,
    RateLimitedError,
    StrictError,
    UnsendableError,
    UpstreamError,
)
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ModelReported,
    Noticed,
    ReplyEvent,
    ReplyFinished,
    Usage,
    UsageReported,
)
from cllm.core.secret import redact_secrets
from cllm.providers.http.transport import HttpResponse, HttpTransport, Timeouts
from cllm.wire.errors import ErrorDetails, FieldError, MalformedError, ReportedError
from cllm.wire.sse import SseDecoder, SseEvent

ErrorAdvice = tuple[type[ProviderError], str]

TOO_LONG: ErrorAdvice = (
    PromptTooLongError,
    "Use a model with a larger context window, or start a new conversation.",
)
OUT_OF_QUOTA: ErrorAdvice = (
    QuotaExceededError,
    "Check the plan and billing of the API key's account.",
)
ERRORS_BY_STATUS: dict[int, ErrorAdvice] = {
    401: (AuthenticationError, "Check the API key."),
    402: OUT_OF_QUOTA,
    403: (PermissionDeniedError, "Check the permissions of the API key."),
    408: (UpstreamError, "The request took too long; try again."),
    424: (UpstreamError, "The error is on the provider's side; try again later."),
    404: (InvalidRequestError, "Check the model's name and api_base."),
    413: (
        InvalidRequestError,
        "The request is too large; send a shorter prompt or smaller attachments.",
    ),
    429: (RateLimitedError, "Wait and try again."),
}
ERRORS_BY_STATUS_CLASS: dict[int, ErrorAdvice] = {
    4: (InvalidRequestError, "Check the model's name and the request's parameters."),
    5: (UpstreamError, "The error is on the provider's side; try again later."),
}
OTHER_STATUS: ErrorAdvice = (BadReplyError, "Check api_base.")
JSON_POSITION = re.compile(r" \(byte (\d+)\)$")
REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid")
MAX_MESSAGE_LENGTH = 300
MAX_ID_LENGTH = 100
MAX_REPORTED_MODEL_LENGTH = 256
"""Of a reported name: every event of the client's stream repeats it."""


def classify_status(status: int) -> ErrorAdvice:
    return ERRORS_BY_STATUS.get(status) or ERRORS_BY_STATUS_CLASS.get(status // 100, OTHER_STATUS)


def check_key(key: str | None, *, provider: str) -> None:
    """Raise AuthenticationError for a key that a header cannot contain."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise AuthenticationError(
            f"The API key of provider '{provider}' contains invalid characters; check the key.",
            provider=provider,
        )


def clean_message(text: str, *, secrets: Iterable[str | None] = ()) -> str:
    """Shorten a server's text to one line for an error message, and hide secrets."""
    line = redact_secrets(" ".join(text.split()), filter(None, secrets))
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[: MAX_MESSAGE_LENGTH - 1] + "…"


def describe_json_error(error: msgspec.DecodeError) -> str:
    """Return `invalid character at byte 3` for "JSON is malformed: invalid character (byte 3)"."""
    text = JSON_POSITION.sub(r" at byte \1", str(error).removeprefix("JSON is malformed: "))
    return text[:1].lower() + text[1:]


def parse_retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds in `Retry-After`, which is a number or a date."""
    value = headers.get("Retry-After", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        seconds = ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def find_request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's ID of a call from the headers of its response."""
    values = {name.lower(): value for name, value in headers.items()}
    ids = (values.get(name, "") for name in REQUEST_ID_HEADERS)
    return next((clean_message(text)[:MAX_ID_LENGTH] for text in ids if text), None)


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`names` maps tool aliases to the client's names. `verbatim`: relay the stream unchanged."""

    url: str
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    verbatim: bool = False


class StreamDecoder(Protocol):
    """`done`: the rest of the stream is not read."""

    @property
    def done(self) -> bool: ...

    def finish(self) -> ReplyFinished | None: ...


class StreamReader(StreamDecoder, Protocol):
    def feed(self, chunk: bytes) -> Iterable[ReplyEvent]: ...


class ModelReporter:
    """Puts `ModelReported` before the first events after the provider named the model."""

    def __init__(self, get_model: Callable[[], str | None]) -> None:
        self._get_model = get_model
        self._is_reported = False

    def add_to(self, events: Iterable[ReplyEvent]) -> Iterable[ReplyEvent]:
        model = None if self._is_reported else self._get_model()
        if not model:
            return events
        self._is_reported = True
        return _add_model(model, events)


class SseReader:
    """`get_model` and `get_usage` return what the stream has reported so far."""

    def __init__(
        self,
        decoder: StreamDecoder,
        decode: Callable[[SseEvent], Iterable[ReplyEvent]],
        *,
        get_model: Callable[[], str | None],
        get_usage: Callable[[], Usage | None] = lambda: None,
    ) -> None:
        self._sse = SseDecoder()
        self._decoder = decoder
        self._decode = decode
        self._reporter = ModelReporter(get_model)
        self._get_usage = get_usage
        self._usage: Usage | None = None
        self.done = False

    def feed(self, chunk: bytes) -> Iterator[ReplyEvent]:
        for event in self._sse.feed(chunk):
            yield from self._reporter.add_to(self._decode(event))
            usage = self._get_usage()
            if usage is not None and usage is not self._usage:
                self._usage = usage
                yield UsageReported(usage=usage)
            self.done = self._decoder.done
            if self.done:
                return

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()


def report_model(events: list[ReplyEvent]) -> list[ReplyEvent]:
    """Return the events of a whole reply as those of a stream: after the model, if it is known."""
    finished = events[-1]
    if not isinstance(finished, ReplyFinished) or not finished.model:
        return events
    return _add_model(finished.model, events)


def _add_model(model: str, events: Iterable[ReplyEvent]) -> list[ReplyEvent]:
    if len(model) > MAX_REPORTED_MODEL_LENGTH:
        return list(events)
    return [ModelReported(model=model), *events]


class AnyRequest(Protocol):
    @property
    def notices(self) -> tuple[Notice, ...]: ...


R = TypeVar("R", bound=AnyRequest)


class RemoteProvider(ABC, Generic[R]):
    """Error messages never contain `secrets` or the values of `headers`."""

    def __init__(
        self,
        *,
        name: str,
        secrets: Iterable[str | None],
        headers: Mapping[str, str] | None,
        timeouts: Timeouts | None,
    ) -> None:
        self.name = name
        self._headers = dict(headers or {})
        self._secrets: tuple[str | None, ...] = (*secrets, *self._headers.values())
        self._timeouts = timeouts or Timeouts()

    @abstractmethod
    def _encode(self, prompt: Prompt) -> R:
        """MalformedError if the protocol cannot express the prompt."""

    def _build_request(self, prompt: Prompt) -> R:
        try:
            request = self._encode(prompt)
        except MalformedError as error:
            raise UnsendableError(
                f"Cannot send this prompt to provider '{self.name}': "
                f"{self._clean(str(error)).rstrip('.')}.",
                provider=self.name,
                path=error.path if isinstance(error, FieldError) else None,
            ) from error
        if not request.notices:
            return request
        notices = tuple(NoticeCollector(request.notices))
        if prompt.strict:
            raise StrictError(provider=self.name, notices=notices)
        return cast("R", msgspec.structs.replace(cast("Any", request), notices=notices))

    def _bad_reply_error(self, reason: str) -> BadReplyError:
        return self._bad_data_error("an invalid response", reason)

    def _malformed_error(self, error: MalformedError) -> BadReplyError:
        cause = error.__cause__
        # A ValidationError is about the fields of valid JSON.
        if isinstance(cause, msgspec.DecodeError) and not isinstance(
            cause, msgspec.ValidationError
        ):
            return self._bad_data_error("data that is not valid JSON", describe_json_error(cause))
        return self._bad_reply_error(str(error))

    def _bad_data_error(self, data: str, reason: str) -> BadReplyError:
        return BadReplyError(
            f"Provider '{self.name}' sent {data} ({self._clean(reason)}); check api_base.",
            provider=self.name,
        )

    def _stream_error(
        self, details: ErrorDetails, headers: Mapping[str, str] | None = None
    ) -> ProviderError:
        text = self._clean(details.message or details.type).rstrip(".")
        problem = f"reported an error in its stream: {text or 'no message'}."
        status = details.status or HTTPStatus.INTERNAL_SERVER_ERROR
        return self._build_error(details, problem, status=status, headers=headers or {})

    def _build_error(
        self, details: ErrorDetails, problem: str, *, status: int, headers: Mapping[str, str]
    ) -> ProviderError:
        kind, advice = classify_status(status)
        if details.too_long:
            kind, advice = TOO_LONG
        elif details.out_of_quota:
            kind, advice = OUT_OF_QUOTA
        return kind(
            f"Provider '{self.name}' {problem} {advice}",
            provider=self.name,
            status=status,
            retry_after=parse_retry_after(headers, now=datetime.now(UTC)),
            code=details.code or details.type or None,
            param=self._clean(details.param) or None,
            details=details.data,
            provider_message=self._clean(details.message) or None,
            request_id=find_request_id(headers),
        )

    def _early_end_error(self, *, is_web_page: bool) -> Exception:
        if is_web_page:
            return MalformedError("a web page")
        return BrokenStreamError(
            f"Provider '{self.name}' ended its stream before the reply was complete; try again.",
            provider=self.name,
        )

    def _clean(self, text: str) -> str:
        return clean_message(text, secrets=self._secrets)


class HttpProvider(RemoteProvider[ProviderRequest]):
    """Sends a prompt once; the engine retries."""

    _http: HttpTransport
    _model_list_url: str | None = None

    async def build_model_list_request(self) -> ProviderRequest | None:
        """Return the GET request for the list of models; None if the protocol has none."""
        if self._model_list_url is None:
            return None
        request = ProviderRequest(url=self._model_list_url, body=b"")
        return msgspec.structs.replace(request, headers=await self._request_headers(request))

    @abstractmethod
    async def _request_headers(self, request: ProviderRequest) -> Mapping[str, str]:
        """With the key or signature."""

    @abstractmethod
    def _decode_answer(self, body: bytes, request: ProviderRequest) -> list[ReplyEvent]:
        """Decode a response that is not a stream."""

    @abstractmethod
    def _stream_reader(self, request: ProviderRequest) -> StreamReader: ...

    @abstractmethod
    def _error_details(self, response: HttpResponse, body: bytes) -> ErrorDetails: ...

    async def prepare(self) -> None:
        """Do slow work before the first request."""

    async def close(self) -> None:
        await self._http.close()

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        request = self._build_request(prompt)
        for notice in request.notices:
            yield Noticed(notice=notice)
        response = await self._post(request)
        try:
            content_type = response.headers.get("Content-Type", "").lower()
            # A server can send a JSON body although the request is for a stream.
            if not prompt.stream or content_type.startswith("application/json"):
                events = self._decode_answer(await response.read(), request)
                for event in report_model(events) if prompt.stream else events:
                    yield event
                return
            reader = self._stream_reader(request)
            async for chunk in response.chunks():
                for event in reader.feed(chunk):
                    yield event
                if reader.done:
                    break
            finished = reader.finish()
            if finished is None:
                raise self._early_end_error(is_web_page=content_type.startswith("text/html"))
            yield finished
        except ReportedError as error:
            raise self._stream_error(error.details, response.headers) from error
        except MalformedError as error:
            raise self._malformed_error(error) from error
        finally:
            await response.close()

    async def _post(self, request: ProviderRequest) -> HttpResponse:
        """Send a request; ProviderError unless the status is 200."""
        response = await self._http.post(
            request.url,
            headers=await self._request_headers(request),
            body=request.body,
            provider=self.name,
            timeouts=self._timeouts,
        )
        if response.status == HTTPStatus.OK:
            return response
        try:
            body = await response.read()
        finally:
            await response.close()
        details = self._error_details(response, body)
        text = self._clean(details.message).rstrip(".")
        problem = f"returned HTTP {response.status}{': ' if text else ''}{text}."
        raise self._build_error(details, problem, status=response.status, headers=response.headers)

    async def _fetch(self, request: ProviderRequest) -> bytes:
        response = await self._post(request)
        try:
            return await response.read()
        finally:
            await response.close()

    def _parse_token_count(self, body: bytes, name: str) -> int:
        try:
            return msgspec.convert(msgspec.json.decode(body, type=dict[str, Any])[name], int)
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            raise BadReplyError(
                f"Provider '{self.name}' returned no token count; check api_base.",
                provider=self.name,
            ) from error
