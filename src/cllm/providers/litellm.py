"""Models of other services through LiteLLM, an optional package.

LiteLLM is only a transport here: a finish reason or counts that it invents are ignored. Its errors
are distinguished by class and status, never by their text.
"""

import asyncio
import contextlib
import json
import os
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib import import_module
from typing import Any, TypeVar

import msgspec

from cllm.core.errors import (
    AuthenticationError,
    CllmError,
    MissingKeyError,
    MissingPackageError,
    ProviderError,
    UnreachableError,
    UpstreamError,
)
from cllm.core.extras import require_extra
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent
from cllm.providers.history import repair_for
from cllm.providers.http.provider import ModelReporter, RemoteProvider, check_key, report_model
from cllm.providers.http.transport import (
    Timeouts,
    connection_closed_error,
    stream_broken_error,
    timeout_error,
    unreachable_error,
)
from cllm.providers.registry import BUILTIN_PROVIDERS, LITELLM
from cllm.wire import litellm
from cllm.wire.errors import ErrorDetails, MalformedError, ReportedError
from cllm.wire.openai import response_decoder as openai_decoder

T = TypeVar("T")

ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no prices from the network
    "LITELLM_MODE": "PRODUCTION",  # no `.env` from the current folder
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",  # no media: the service fetches addresses
}
SETTINGS = {
    "disable_hf_tokenizer_download": True,
    "disable_token_counter": True,
    "drop_params": False,
    "num_retries": None,
    "suppress_debug_info": True,
    "telemetry": False,
}
# Services that refuse `reasoning_content`, although LiteLLM sends it to them.
UNTRANSLATED = ("cerebras", "groq")
# The packages of modules that LiteLLM imports for some services and that have another name.
PACKAGES = {"azure": "azure-identity", "botocore": "boto3", "google": "litellm[google]"}
LOGGERS = ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router")
# LiteLLM adds it to the messages of unexpected errors.
TRACEBACK = "Traceback (most recent call last)"
KEY_SUFFIX = "_API_KEY"
# Exceptions that LiteLLM's own bugs raise.
LIBRARY_ERRORS = (
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class LitellmModule(msgspec.Struct, frozen=True, kw_only=True):
    litellm: Any
    httpx: Any
    errors: tuple[type[Exception], ...]


def load_library() -> LitellmModule:
    """Import LiteLLM, which takes seconds, and silence it."""
    os.environ.update(ENVIRONMENT)
    with require_extra("litellm", feature="LiteLLM"):
        litellm, httpx, openai = map(import_module, ("litellm", "httpx", "openai"))
    import logging  # noqa: PLC0415 - LiteLLM has loaded it

    # LiteLLM's types make pydantic print warnings.
    warnings.filterwarnings("ignore", category=UserWarning, module="pydantic")
    for name, value in SETTINGS.items():
        setattr(litellm, name, value)
    for name in LOGGERS:
        logging.getLogger(name).disabled = True
    errors = (openai.OpenAIError, httpx.HTTPError, *LIBRARY_ERRORS)
    return LitellmModule(litellm=litellm, httpx=httpx, errors=errors)


class LitellmProvider(RemoteProvider[litellm.LitellmRequest]):
    """`options` are LiteLLM's arguments, such as `api_version` or `vertex_project`.

    LiteLLM reads missing credentials from the environment.
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
        load: Callable[[], LitellmModule] = load_library,
    ) -> None:
        super().__init__(name=name, secrets=(api_key, *secrets), headers=headers, timeouts=timeouts)
        self._api_base = api_base
        self._api_key = api_key
        self._options = dict(options or {})
        self._load = load
        self._library: LitellmModule | None = None

    async def prepare(self) -> None:
        await self._get_library()

    async def close(self) -> None:
        if self._library is not None:
            await self._library.litellm.close_litellm_async_clients()

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        library = await self._get_library()
        request = self._build_request(prompt)
        for notice in request.notices:
            yield Noticed(notice=notice)
        check_key(self._api_key, provider=self.name)
        call = library.litellm.acompletion(**self._build_arguments(library), **request.fields)
        model = prompt.model
        response = await self._await_call(self._timeouts.first_byte, call, library, model)
        try:
            if not hasattr(response, "__aiter__"):
                reply = litellm.decode_answer(_to_json(response))
                for event in report_model(reply) if prompt.stream else reply:
                    yield event
                return
            decoder, limit = litellm.LitellmStreamDecoder(), self._timeouts.first_byte
            reporter = ModelReporter(lambda: decoder.reported_model)
            async with contextlib.aclosing(response):
                chunks = aiter(response)
                while True:
                    chunk = await self._await_call(limit, anext(chunks, None), library, model)
                    if chunk is None:
                        break
                    for event in reporter.add_to(decoder.decode(_to_json(chunk))):
                        yield event
                    limit = self._timeouts.idle
            finished = decoder.finish()
            if finished is None or not _has_finish_reason(response):
                raise self._early_end_error(is_web_page=_is_web_page(response))
            yield finished
        except ReportedError as error:
            raise self._stream_error(error.details) from error
        except MalformedError as error:
            raise self._malformed_error(error) from error

    async def _get_library(self) -> LitellmModule:
        if self._library is None:
            self._library = await asyncio.to_thread(self._load)
        return self._library

    def _encode(self, prompt: Prompt) -> litellm.LitellmRequest:
        repair = repair_for("openai", prompt.model, provider=self.name)
        service = prompt.model.partition("/")[0]
        return litellm.encode_request(
            prompt,
            repair=repair,
            can_skip_repair=repair.can_skip_repair,
            reasoning=BUILTIN_PROVIDERS[service if service in UNTRANSLATED else LITELLM].reasoning,
        )

    def _build_arguments(self, library: LitellmModule) -> dict[str, Any]:
        limits = self._timeouts
        fields = {
            "api_base": self._api_base,
            "api_key": self._api_key,
            "extra_headers": self._headers or None,
        }
        options = {k: v for k, v in self._options.items() if k not in litellm.REQUEST_FIELDS}
        return {
            **options,
            **{name: value for name, value in fields.items() if value is not None},
            "timeout": library.httpx.Timeout(
                max(limits.first_byte, limits.idle), connect=limits.connect
            ),
            "num_retries": 0,
            "max_retries": 0,
            # LiteLLM would search for MCP tools and run them.
            "_skip_mcp_handler": True,
        }

    async def _await_call(
        self, limit: float, call: Awaitable[T], library: LitellmModule, model: str
    ) -> T:
        try:
            async with asyncio.timeout(limit):
                return await call
        except TimeoutError as error:
            raise timeout_error(self.name, limit) from error
        except library.errors as error:
            failure = self._classify_error(error, library, limit)
            raise self._find_missing_key(error, failure, library, model) or failure from error

    def _find_missing_key(
        self, error: Exception, failure: CllmError, library: LitellmModule, model: str
    ) -> MissingKeyError | None:
        """Return an error that names the key, if the model's service needs one and has none."""
        in_stream = isinstance(error, library.litellm.exceptions.MidStreamFallbackError)
        if self._api_key is not None or in_stream:
            return None
        was_sent = any(isinstance(cause, library.httpx.HTTPError) for cause in _list_causes(error))
        if not isinstance(failure, AuthenticationError) and (
            was_sent or not isinstance(failure, UpstreamError)
        ):
            return None
        missing: list[str] = library.litellm.validate_environment(model)["missing_keys"]
        keys = " or ".join(name for name in missing if name.endswith(KEY_SUFFIX))
        return MissingKeyError(provider=self.name, variable=keys) if keys else None

    def _classify_error(  # noqa: PLR0911 - one for each kind of cause
        self, error: Exception, library: LitellmModule, limit: float
    ) -> ProviderError | MissingPackageError:
        """Return the error for the cause: LiteLLM's own status is always 500."""
        httpx = library.httpx
        causes = _list_causes(error)
        in_stream = isinstance(error, library.litellm.exceptions.MidStreamFallbackError)
        for cause in causes:
            match cause:
                case httpx.ConnectError() | httpx.ConnectTimeout():
                    return self._unreachable_error()
                case httpx.TimeoutException():
                    return timeout_error(self.name, limit)
                case httpx.TransportError():
                    return (
                        stream_broken_error(self.name)
                        if in_stream
                        else connection_closed_error(self.name)
                    )
                case httpx.HTTPStatusError():
                    return self._status_error(error, library, cause.response)
                case json.JSONDecodeError():
                    return self._bad_reply_error(str(cause))
                case ImportError():
                    return self._missing_package_error(cause, causes)
        return self._status_error(causes[1] if in_stream else error, library, None)

    def _missing_package_error(
        self, error: ImportError, causes: Sequence[BaseException]
    ) -> MissingPackageError:
        """Quote LiteLLM's error for the service, which can have other advice than a package."""
        text = self._clean(str(causes[1] if len(causes) > 1 else error)).rstrip(".")
        package = PACKAGES.get((error.name or "").partition(".")[0])
        advice = "" if package is None else f"; install {package} in the environment of cllm"
        return MissingPackageError(
            f"Provider '{self.name}' lacks a Python package for this model on this machine: "
            f"{text}{advice}."
        )

    def _unreachable_error(self) -> UnreachableError:
        if self._api_base is not None:
            return unreachable_error(self.name, self._api_base, "no connection")
        return UnreachableError(
            f"Cannot reach the model's service through provider '{self.name}'; check the network "
            "and the model's name.",
            provider=self.name,
        )

    def _status_error(
        self, error: BaseException, library: LitellmModule, response: Any
    ) -> ProviderError:
        details = ErrorDetails()
        headers: Mapping[str, str] = getattr(error, "litellm_response_headers", None) or {}
        status = getattr(error, "status_code", None)
        if response is not None:
            status, headers = response.status_code, response.headers
            with contextlib.suppress(library.httpx.StreamError):
                details = openai_decoder.decode_error(response.content)
        if isinstance(error, library.litellm.exceptions.ContextWindowExceededError):
            details = msgspec.structs.replace(details, too_long=True)
        text = details.message or getattr(error, "message", "") or str(error)
        text = self._clean(text.partition(TRACEBACK)[0]).rstrip(".") or "no message"
        status = status if isinstance(status, int) else HTTPStatus.INTERNAL_SERVER_ERROR
        verb = "failed" if response is None else f"returned HTTP {status}"
        return self._build_error(details, f"{verb}: {text}.", status=status, headers=headers)


def _to_json(response: Any) -> bytes:
    text: str = response.model_dump_json(exclude_none=True)
    return text.encode()


def _has_finish_reason(stream: Any) -> bool:
    """Whether the service sent a finish reason; otherwise LiteLLM invents one."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return any(getattr(stream, name, "unknown") is not None for name in names)


def _is_web_page(stream: Any) -> bool:
    hidden = getattr(stream, "_hidden_params", None) or {}
    headers = hidden.get("additional_headers") or {}
    return str(headers.get("llm_provider-content-type", "")).lower().startswith("text/html")


def _list_causes(error: BaseException) -> list[BaseException]:
    """List causes up to an error of cllm, which belongs to an earlier attempt."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes and not isinstance(cause, CllmError):
        causes.append(cause)
        cause = cause.__cause__ or getattr(cause, "original_exception", None) or cause.__context__
    return causes
