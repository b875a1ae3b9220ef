"""What providers over HTTP have in common: ask once, read the events, name what went wrong.

A provider says where to ask, with which headers, and how its protocol is read; it is not told what
the words mean, which is in `cllm.wire`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from cllm.core.errors import (
    AuthenticationError,
    BadReplyError,
    BrokenStreamError,
    InvalidRequestError,
    PermissionDeniedError,
    PromptTooLongError,
    ProviderError,
    RateLimitedError,
    StrictError,
    UnsendableError,
    UpstreamError,
)
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished
from cllm.providers.http import Http, Response, Timeouts
from cllm.wire.malformed import ErrorDetails, FieldError, MalformedError, ProviderSaidError
from cllm.wire.sse import SseDecoder, SseEvent

Meaning = tuple[type[ProviderError], str]

TOO_LONG: Meaning = (
    PromptTooLongError,
    "Use a model with a larger window, or start a new conversation.",
)
BY_STATUS: dict[int, Meaning] = {
    401: (AuthenticationError, "Check the API key."),
    403: (PermissionDeniedError, "Check what the API key may do."),
    408: (UpstreamError, "It took too long; ask again."),
    424: (UpstreamError, "The trouble is on its side; ask again later."),
    404: (InvalidRequestError, "Check the model's name and api_base."),
    429: (RateLimitedError, "Wait a little and ask again."),
}
BY_HUNDRED: dict[int, Meaning] = {
    4: (InvalidRequestError, "Check the model's name and the request's settings."),
    5: (UpstreamError, "The trouble is on its side; ask again later."),
}
OTHERWISE: Meaning = (BadReplyError, "Check api_base.")
SHOWN_LENGTH = 300


def meaning_of(status: int) -> Meaning:
    """The error that a status stands for, and advice."""
    return BY_STATUS.get(status) or BY_HUNDRED.get(status // 100, OTHERWISE)


def check_key(key: str | None, *, provider: str) -> None:
    """Refuse a key that could not stand in a header, before it is taken for a bad address."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise AuthenticationError(
            f"The API key of provider '{provider}' has characters that no key has; check it.",
            provider=provider,
        )


def one_line(text: str, *, secrets: Iterable[str | None] = ()) -> str:
    """What a server said, short, on one line, and without our keys should it have said one."""
    line = " ".join(text.split())
    for secret in secrets:
        line = line.replace(secret, "***") if secret else line
    return line if len(line) <= SHOWN_LENGTH else line[: SHOWN_LENGTH - 1] + "…"


def retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """The seconds a provider asks to wait, given as a number or as a date."""
    value = headers.get("Retry-After", "").strip()
    seconds = _as_number(value)
    if seconds is None:
        seconds = _as_date(value, now)
    if seconds is None or not math.isfinite(seconds):
        return None
    return max(seconds, 0.0)


def _as_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _as_date(value: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request on its way out, and what could not be said in it.

    `names` gives back the client's names of tools that the provider knows under another.
    `headers` are those that this request needs and others do not. With `verbatim` the client
    speaks the provider's protocol and is told its stream as it comes.
    """

    url: str
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    verbatim: bool = False


class StreamReader(Protocol):
    """Reads one stream: bytes in, events out; the last event once the answer is whole."""

    @property
    def done(self) -> bool: ...

    def feed(self, piece: bytes) -> Iterable[ReplyEvent]: ...

    def finish(self) -> ReplyFinished | None: ...


class EventDecoder(Protocol):
    """Decodes the events of one stream; after `done` nothing is read any more."""

    @property
    def done(self) -> bool: ...

    def finish(self) -> ReplyFinished | None: ...


class SseReader:
    """Reads a stream of server-sent events with a protocol's decoder."""

    def __init__(
        self, decoder: EventDecoder, decode: Callable[[SseEvent], Iterable[ReplyEvent]]
    ) -> None:
        self._sse = SseDecoder()
        self._decoder = decoder
        self._decode = decode
        self.done = False

    def feed(self, piece: bytes) -> Iterator[ReplyEvent]:
        for sent in self._sse.feed(piece):
            yield from self._decode(sent)
            self.done = self._decoder.done
            if self.done:
                return

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()


_counts = msgspec.json.Decoder(dict[str, Any])


class HttpProvider(ABC):
    """Asks one service over HTTP, once; retrying is the engine's work."""

    def __init__(
        self,
        *,
        name: str,
        secret: str | None,
        http: Http,
        headers: Mapping[str, str] | None,
        timeouts: Timeouts | None,
    ) -> None:
        self.name = name
        self._http = http
        self._headers = dict(headers or {})
        self._secrets: tuple[str | None, ...] = (secret, *self._headers.values())
        self._timeouts = timeouts or Timeouts()

    @abstractmethod
    def _encode(self, prompt: Prompt) -> Request:
        """The request; MalformedError if the prompt cannot be said in this protocol."""

    @abstractmethod
    async def _request_headers(self, request: Request) -> dict[str, str]:
        """The headers of the request, its key or signature among them."""

    @abstractmethod
    def _decode_answer(self, body: bytes, request: Request) -> list[ReplyEvent]:
        """The events of an answer that came in one piece."""

    @abstractmethod
    def _stream_reader(self, request: Request) -> StreamReader:
        """What reads a stream of this protocol."""

    @abstractmethod
    def _error_details(self, response: Response, body: bytes) -> ErrorDetails:
        """What an answer says that is none."""

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Nothing takes long here."""

    async def close(self) -> None:
        await self._http.close()

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        request = self._encoded(prompt)
        for notice in request.notices:
            yield Noticed(notice=notice)
        response = await self._http.post(
            request.url,
            headers=await self._request_headers(request),
            body=request.body,
            provider=self.name,
            timeouts=self._timeouts,
        )
        try:
            if response.status != HTTPStatus.OK:
                raise self._refusal(response, await response.read())
            # A server that was asked for a stream may give a whole answer after all.
            if prompt.stream and not _has_type(response, "application/json"):
                reader = self._stream_reader(request)
                async for piece in response.chunks():
                    for event in reader.feed(piece):
                        yield event
                    if reader.done:
                        break
                yield self._finished(reader, response)
            else:
                for event in self._decode_answer(await response.read(), request):
                    yield event
        except ProviderSaidError as error:
            raise self._broken_off(error.details) from error
        except MalformedError as error:
            raise BadReplyError(
                f"Provider '{self.name}' sent something that is not an answer "
                f"({self._clean(str(error))}); check its address.",
                provider=self.name,
            ) from error
        finally:
            await response.close()

    async def _answer_to(self, request: Request) -> bytes:
        """The whole answer to a request that is not for a reply; an error if it is none."""
        response = await self._http.post(
            request.url,
            headers=await self._request_headers(request),
            body=request.body,
            provider=self.name,
            timeouts=self._timeouts,
        )
        try:
            body = await response.read()
            if response.status != HTTPStatus.OK:
                raise self._refusal(response, body)
            return body
        finally:
            await response.close()

    def _counted(self, body: bytes, name: str) -> int:
        """The number of that name in an answer."""
        try:
            return msgspec.convert(_counts.decode(body)[name], int)
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            raise BadReplyError(
                f"Provider '{self.name}' gave no count of tokens; check its address.",
                provider=self.name,
            ) from error

    def _encoded(self, prompt: Prompt) -> Request:
        """The request; an error, before anything is sent, where there is none to be made."""
        try:
            request = self._encode(prompt)
        except MalformedError as error:
            raise UnsendableError(
                f"Provider '{self.name}' cannot be asked this: "
                f"{self._clean(str(error)).rstrip('.')}.",
                provider=self.name,
                path=error.path if isinstance(error, FieldError) else None,
            ) from error
        notices = tuple(NoticeCollector(request.notices))
        if prompt.strict and notices:
            raise StrictError(provider=self.name, notices=notices)
        return msgspec.structs.replace(request, notices=notices) if notices else request

    def _finished(self, reader: StreamReader, response: Response) -> ReplyFinished:
        finished = reader.finish()
        if finished is None and _has_type(response, "text/html"):
            raise MalformedError("a web page")
        if finished is None:
            raise BrokenStreamError(
                f"Provider '{self.name}' ended its stream before its answer; ask again.",
                provider=self.name,
            )
        return finished

    def _refusal(self, response: Response, body: bytes) -> ProviderError:
        details = self._error_details(response, body)
        said = self._clean(details.message).rstrip(".")
        shown = f"answered {response.status}{': ' if said else ''}{said}."
        return self._error(details, shown, status=response.status, headers=response.headers)

    def _broken_off(self, details: ErrorDetails) -> ProviderError:
        """An error in the middle of an answer, with the meaning it would have had before one."""
        said = self._clean(details.message or details.type).rstrip(".")
        shown = f"broke off its answer: {said or 'an error without a text'}."
        status = details.status or HTTPStatus.INTERNAL_SERVER_ERROR
        return self._error(details, shown, status=status, headers={})

    def _error(
        self, details: ErrorDetails, shown: str, *, status: int, headers: Mapping[str, str]
    ) -> ProviderError:
        kind, advice = TOO_LONG if details.too_long else meaning_of(status)
        return kind(
            f"Provider '{self.name}' {shown} {advice}",
            provider=self.name,
            status=status,
            retry_after=retry_after(headers, now=datetime.now(UTC)),
            code=details.code or details.type or None,
            details=details.given,
        )

    def _clean(self, text: str) -> str:
        return one_line(text, secrets=self._secrets)


def _has_type(response: Response, content_type: str) -> bool:
    return response.headers.get("Content-Type", "").lower().startswith(content_type)
