"""Models of other services through LiteLLM, an optional package that is loaded when it is used.

LiteLLM is held to carrying: it reads no `.env`, fetches neither prices nor media, retries nothing,
prints nothing, and what it makes up where a service was silent (a finish reason, counts) is not
believed. Its errors are told apart by class and status, never by their text.
"""

import asyncio
import json
import os
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, TypeVar

import msgspec

from cllm.core.errors import (
    BadReplyError,
    BrokenStreamError,
    CllmError,
    ProviderError,
    StrictError,
    UnreachableError,
    UnsendableError,
)
from cllm.core.extras import needs_extra
from cllm.core.notice import NoticeCollector
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished
from cllm.providers.fitting import mending_for
from cllm.providers.http import Timeouts, broken_off, hung_up, silent, unreachable
from cllm.providers.http_provider import TOO_LONG, check_key, meaning_of, one_line, retry_after
from cllm.providers.registry import LITELLM, ROWS
from cllm.wire import litellm
from cllm.wire.malformed import ErrorDetails, FieldError, MalformedError, ProviderSaidError
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.reasoning import ReasoningRule

T = TypeVar("T")

ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # the prices in the package, not those of the network
    "LITELLM_MODE": "PRODUCTION",  # or it would read the `.env` of whatever folder this is
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",  # an address in a message is the service's to fetch
}
SETTINGS = {
    "disable_hf_tokenizer_download": True,
    "disable_token_counter": True,
    "drop_params": False,
    "num_retries": None,
    "suppress_debug_info": True,
    "telemetry": False,
}
# Services that refuse `reasoning_content`, to which LiteLLM passes it on all the same.
UNTRANSLATED = ("cerebras", "groq")
LOGGERS = ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router")
# What LiteLLM lets through of its own slips, beside the errors that it has names for.
SLIPS = (AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """LiteLLM as it was loaded, and the transport whose errors are at the root of its own."""

    litellm: Any
    httpx: Any
    errors: tuple[type[Exception], ...]


def load_library() -> Library:
    """Import LiteLLM, which takes seconds, and quieten it."""
    os.environ.update(ENVIRONMENT)
    with needs_extra("litellm", feature="LiteLLM"):
        litellm, httpx, openai = map(import_module, ("litellm", "httpx", "openai"))
    import logging  # noqa: PLC0415 - LiteLLM has loaded it

    # Its types make pydantic warn, on the person's terminal, of what only their author can change.
    warnings.filterwarnings("ignore", category=UserWarning, module="pydantic")
    for name, value in SETTINGS.items():
        setattr(litellm, name, value)
    for name in LOGGERS:
        logging.getLogger(name).disabled = True
    errors = (openai.OpenAIError, httpx.HTTPError, *SLIPS)
    return Library(litellm=litellm, httpx=httpx, errors=errors)


class LitellmProvider:
    """LiteLLM with one set of credentials; what is not given it finds in the environment.

    `options` are arguments of LiteLLM's own, such as `api_version` or `vertex_project`. `secrets`
    are texts that no error may show, beside the key and the headers.
    """

    def __init__(
        self,
        *,
        name: str,
        api_base: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        options: Mapping[str, Any] | None = None,
        secrets: Iterable[str] = (),
        load: Callable[[], Library] = load_library,
    ) -> None:
        self.name = name
        self._api_base = api_base
        self._api_key = api_key
        self._headers = dict(headers or {})
        self._timeouts = timeouts or Timeouts()
        self._options = dict(options or {})
        self._secrets = (api_key, *self._headers.values(), *secrets)
        self._load = load
        self._library: Library | None = None

    async def prepare(self) -> None:
        """Load LiteLLM, aside from the event loop."""
        await self._loaded()

    async def close(self) -> None:
        if self._library is not None:
            await self._library.litellm.close_litellm_async_clients()

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        library = await self._loaded()
        request = self._encoded(prompt)
        for notice in request.notices:
            yield Noticed(notice=notice)
        check_key(self._api_key, provider=self.name)
        call = library.litellm.acompletion(**self._arguments(library), **request.fields)
        answer = await self._within(self._timeouts.first_byte, call, library)
        try:
            if hasattr(answer, "__aiter__"):
                async with aclosing(self._stream(answer, library)) as events:
                    async for event in events:
                        yield event
            else:
                for event in litellm.decode_answer(_json(answer)):
                    yield event
        except ProviderSaidError as error:
            raise self._said_error(error.details) from error
        except MalformedError as error:
            raise self._bad_reply(str(error)) from error

    async def _loaded(self) -> Library:
        if self._library is None:
            self._library = await asyncio.to_thread(self._load)
        return self._library

    def _encoded(self, prompt: Prompt) -> litellm.LitellmRequest:
        """The request; an error, before anything is sent, where there is none to be made."""
        mend = mending_for("openai", prompt.model, provider=self.name)
        plainly = mend.takes_texts_as_they_are
        try:
            request = litellm.encode_request(
                prompt,
                mend=mend,
                takes_texts_as_they_are=plainly,
                reasoning=_reasoning_rule(prompt.model),
            )
        except MalformedError as error:
            raise UnsendableError(
                f"Provider '{self.name}' cannot be asked this: {self._clean(str(error))}.",
                provider=self.name,
                path=error.path if isinstance(error, FieldError) else None,
            ) from error
        notices = tuple(NoticeCollector(request.notices))
        if prompt.strict and notices:
            raise StrictError(provider=self.name, notices=notices)
        return msgspec.structs.replace(request, notices=notices)

    def _arguments(self, library: Library) -> dict[str, Any]:
        """How LiteLLM is to ask; what the model is asked is the request's to say."""
        limits = self._timeouts
        given = {
            "api_base": self._api_base,
            "api_key": self._api_key,
            "extra_headers": self._headers or None,
        }
        options = {k: v for k, v in self._options.items() if k not in litellm.REQUEST_FIELDS}
        return {
            **options,
            **{name: value for name, value in given.items() if value is not None},
            "timeout": library.httpx.Timeout(
                max(limits.first_byte, limits.idle), connect=limits.connect
            ),
            "num_retries": 0,
            "max_retries": 0,
            # LiteLLM would look for tools to run by itself.
            "_skip_mcp_handler": True,
        }

    async def _stream(self, stream: Any, library: Library) -> AsyncGenerator[ReplyEvent, None]:
        decoder = litellm.StreamDecoder()
        chunks = aiter(stream)
        limit = self._timeouts.first_byte
        try:
            while (chunk := await self._within(limit, anext(chunks, None), library)) is not None:
                for event in decoder.decode(_json(chunk)):
                    yield event
                limit = self._timeouts.idle
            yield self._finished(decoder, stream)
        finally:
            await stream.aclose()

    def _finished(self, decoder: litellm.StreamDecoder, stream: Any) -> ReplyFinished:
        finished = decoder.finish()
        if finished is not None and _was_told_the_end(stream):
            return finished
        if _is_page(stream):
            raise MalformedError("a web page")
        raise BrokenStreamError(
            f"Provider '{self.name}' ended its stream before its answer; ask again.",
            provider=self.name,
        )

    async def _within(self, limit: float, call: Awaitable[T], library: Library) -> T:
        """What LiteLLM gives in so many seconds, and its errors as ours."""
        try:
            async with asyncio.timeout(limit):
                return await call
        except TimeoutError as error:
            raise silent(self.name, limit) from error
        except library.errors as error:
            raise self._failure(error, library, limit) from error

    def _failure(self, error: Exception, library: Library, limit: float) -> ProviderError:
        """The error at the root of LiteLLM's, which it calls a 500 whatever it was."""
        httpx = library.httpx
        causes = tuple(_causes(error))
        in_stream = isinstance(error, library.litellm.exceptions.MidStreamFallbackError)
        for cause in causes:
            match cause:
                case httpx.ConnectError() | httpx.ConnectTimeout():
                    return self._unreachable()
                case httpx.TimeoutException():
                    return silent(self.name, limit)
                case httpx.TransportError():
                    return broken_off(self.name) if in_stream else hung_up(self.name)
                case httpx.HTTPStatusError():
                    return self._refusal(error, library, cause.response)
                case json.JSONDecodeError():
                    return self._bad_reply(str(cause))
        return self._refusal(causes[1] if in_stream else error, library, None)

    def _unreachable(self) -> UnreachableError:
        if self._api_base is not None:
            return unreachable(self.name, self._api_base, "no connection")
        return UnreachableError(
            f"Cannot reach the model's service through provider '{self.name}'; check the "
            "connection and the model's name.",
            provider=self.name,
        )

    def _refusal(self, error: BaseException, library: Library, response: Any) -> ProviderError:
        """What a service said no with, or LiteLLM itself where there is no response."""
        httpx, litellm = library.httpx, library.litellm
        details = ErrorDetails()
        headers: Mapping[str, str] = getattr(error, "litellm_response_headers", None) or {}
        status = getattr(error, "status_code", None)
        if response is not None:
            status, headers = response.status_code, response.headers
            try:
                details = openai_decoder.decode_error(response.content)
            except httpx.StreamError:
                details = ErrorDetails()
        said = self._clean(details.message or getattr(error, "message", "") or str(error))
        too_long = details.too_long or isinstance(
            error, litellm.exceptions.ContextWindowExceededError
        )
        status = status if isinstance(status, int) else 500
        kind, advice = TOO_LONG if too_long else meaning_of(status)
        verb = "failed" if response is None else f"answered {status}"
        return kind(
            f"Provider '{self.name}' {verb}: {said.rstrip('.') or 'no reason given'}. {advice}",
            provider=self.name,
            status=status,
            retry_after=retry_after(headers, now=datetime.now(UTC)),
            code=details.code or details.type or None,
        )

    def _said_error(self, details: ErrorDetails) -> ProviderError:
        said = self._clean(details.message or details.type).rstrip(".")
        status = details.status or 500
        kind, advice = TOO_LONG if details.too_long else meaning_of(status)
        return kind(
            f"Provider '{self.name}' broke off its answer: {said}. {advice}",
            provider=self.name,
            status=status,
            code=details.code or details.type or None,
        )

    def _bad_reply(self, reason: str) -> BadReplyError:
        return BadReplyError(
            f"Provider '{self.name}' sent something that is not an answer "
            f"({self._clean(reason)}); check its address.",
            provider=self.name,
        )

    def _clean(self, text: str) -> str:
        return one_line(text, secrets=self._secrets)


def _reasoning_rule(model: str) -> ReasoningRule:
    """What LiteLLM takes of past reasoning for a model."""
    service = model.partition("/")[0]
    return ROWS[service if service in UNTRANSLATED else LITELLM].reasoning


def _json(answer: Any) -> bytes:
    text: str = answer.model_dump_json(exclude_none=True)
    return text.encode()


def _was_told_the_end(stream: Any) -> bool:
    """Whether the service named a finish reason; LiteLLM puts one in where it did not."""
    named = ("received_finish_reason", "intermittent_finish_reason")
    return any(getattr(stream, name, "unknown") is not None for name in named)


def _is_page(stream: Any) -> bool:
    """Whether the service answered with a web page, by the headers that LiteLLM passes on."""
    hidden = getattr(stream, "_hidden_params", None) or {}
    headers = hidden.get("additional_headers") or {}
    content_type = str(headers.get("llm_provider-content-type", ""))
    return content_type.lower().startswith("text/html")


def _causes(error: BaseException) -> Iterable[BaseException]:
    """The error, what it came from, and so on; not an earlier attempt's, which is ours by now."""
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in seen and not isinstance(at, CllmError):
        seen.append(at)
        at = at.__cause__ or getattr(at, "original_exception", None) or at.__context__
    return seen
