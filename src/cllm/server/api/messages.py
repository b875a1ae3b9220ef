"""Anthropic's protocol for models of any provider: messages and count_tokens."""

import msgspec
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.responses import Response

from cllm.core.errors import ErrorReport
from cllm.core.notice import Notice
from cllm.core.ports import NewId, Provider, TokenCount, TokenCounter
from cllm.core.prompt import Prompt
from cllm.core.reply import ModelReported, ReplyEvent, ReplyFinished, Usage, Verbatim
from cllm.engine.request import TurnStarted
from cllm.server.http.errors import JSON, ApiError, ApiErrorCode, encode_anthropic_error
from cllm.server.http.limits import check_counts, read_body
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.handler import handle_turn
from cllm.server.turns.headers import (
    CONVERSATION,
    NOTICE,
    ContinueConversation,
    RequestHeaders,
    read_turn_headers,
)
from cllm.server.turns.model_selection import select_model
from cllm.server.turns.prepare import prepare_turn, select_engine
from cllm.server.turns.task import encode_notices
from cllm.window.tokens import estimate_text, estimate_tokens, weights_for
from cllm.wire.anthropic.models import parse_betas
from cllm.wire.anthropic.parts import DIALECT
from cllm.wire.anthropic.request import decode_request
from cllm.wire.anthropic.response_encoder import PING, AnthropicStreamEncoder, encode_answer
from cllm.wire.convert import parts_of

BETAS = "anthropic-beta"
VERSION = "anthropic-version"
SUPPORTED_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 1024
MAX_TOKENS_SET = Notice(
    code="max_tokens_set",
    path="max_tokens",
    message=f"The request has no max_tokens; the reply is limited to {DEFAULT_MAX_TOKENS} tokens.",
)
OTHER_VERSION = Notice(
    code="version_not_spoken",
    path=VERSION,
    message=f"This server supports only version {SUPPORTED_VERSION} and ignores the header.",
)
UNSUPPORTED_THREAD: ApiErrorCode = "thread_unsupported_request"
THREAD_REMOVED = Notice(
    code="thread_left_out",
    path="thread",
    message="The server stores the conversation and sends its history; `thread` was removed.",
)


async def create_message(request: ApiRequest) -> Response:
    """POST /v1/messages."""
    body, prompt = await _read_prompt(request)
    prompt = _set_max_tokens(prompt)
    if prompt.parameters.get("thread") is not None:
        prompt = _check_thread(prompt, read_turn_headers(request.headers), request.server)
    encoder = AnthropicResponseEncoder(model=prompt.model, new_id=request.server.new_id)
    return await handle_turn(request, prompt, body, encoder)


async def _read_prompt(request: ApiRequest) -> tuple[bytes, Prompt]:
    quota = request.server.body_quota
    body = await read_body(request, quota)
    prompt = decode_request(body)
    check_counts(body, len(prompt.messages), quota.limits)
    return body, _apply_headers(prompt, request.headers)


def _apply_headers(prompt: Prompt, headers: Headers) -> Prompt:
    """Add the beta flags, and a notice for another version."""
    if headers.get(VERSION, SUPPORTED_VERSION) != SUPPORTED_VERSION:
        prompt = replace(prompt, notices=(*prompt.notices, OTHER_VERSION))
    in_body, in_headers = prompt.parameters.get("betas"), headers.getlist(BETAS)
    if in_body is None and not in_headers:
        return prompt
    betas = (*parse_betas(in_body), *parse_betas(",".join(in_headers)))
    flags = [flag.strip() for flag in betas if flag.strip()]
    if not flags:
        return prompt
    parameters = {**prompt.parameters, "betas": flags}
    original = prompt.original
    if original is not None:
        original = replace(original, parameters=parameters)
    return replace(prompt, parameters=parameters, original=original)


def _set_max_tokens(prompt: Prompt) -> Prompt:
    """Add max_tokens, which only Anthropic requires."""
    if prompt.parameters.get("max_tokens") is not None:
        return prompt
    parameters = {**prompt.parameters, "max_tokens": DEFAULT_MAX_TOKENS}
    notices = (*prompt.notices, MAX_TOKENS_SET)
    return replace(prompt, parameters=parameters, original=None, notices=notices)


def _check_thread(prompt: Prompt, turn_headers: RequestHeaders, state: ServerState) -> Prompt:
    """Raise ApiError unless the provider is Anthropic: clients then send the whole history.

    A stored conversation needs no thread.
    """
    if turn_headers.names_conversation:
        parameters = {k: v for k, v in prompt.parameters.items() if k != "thread"}
        notices = (*prompt.notices, THREAD_REMOVED)
        return replace(prompt, parameters=parameters, original=None, notices=notices)
    model = select_model(prompt.model, turn_headers.provider, state)
    if state.app.settings.fallbacks or not state.app.accepts_caller_key(model):
        raise ApiError(
            UNSUPPORTED_THREAD,
            "Only Anthropic supports threads; send the whole history without `thread`.",
            param="thread",
            details={"error_code": UNSUPPORTED_THREAD, "unsupported": ["thread"]},
        )
    return prompt


async def count_tokens(request: ApiRequest) -> Response:
    """POST /v1/messages/count_tokens."""
    state, record, turn_headers = request.server, request.record, read_turn_headers(request.headers)
    _, prompt = await _read_prompt(request)
    if turn_headers.names_conversation and prompt.parameters.get("thread") is not None:
        prompt = _check_thread(prompt, turn_headers, state)
    record.record_prompt(prompt)
    prepared = await prepare_turn(
        prompt, turn_headers, request.caller, state, headers=request.headers
    )
    route, sent = await select_engine(prepared, state).preview_prompt(prepared.request)
    record.model = prepared.request.target.model
    token_count = await _count_tokens(route.provider, replace(sent, stream=False))
    notices = [*prepared.notices, *sent.notices, *token_count.notices]
    headers = {NOTICE: encode_notices(notices)} if notices else {}
    is_continued = isinstance(turn_headers.mode, ContinueConversation)
    if is_continued and prepared.public_id is not None and prepared.request.storage.create is None:
        headers[CONVERSATION] = record.conversation = prepared.public_id
    body = token_count.raw or msgspec.json.encode({"input_tokens": token_count.tokens})
    return Response(body, headers=headers, media_type=JSON)


async def _count_tokens(provider: Provider, prompt: Prompt) -> TokenCount:
    """Return the provider's count, or an estimate."""
    if isinstance(provider, TokenCounter):
        await provider.prepare()
        token_count = await provider.count_tokens(prompt)
        if token_count is not None:
            return token_count
    tokens = _estimate_prompt(prompt, provider.name)
    notice = Notice(
        code="tokens_estimated",
        path="input_tokens",
        message=f"Provider '{provider.name}' cannot count these tokens; the number is an estimate.",
    )
    return TokenCount(tokens=tokens, notices=(notice,))


def _estimate_prompt(prompt: Prompt, provider: str) -> int:
    weights = weights_for(provider)
    tokens = sum(estimate_tokens(message, weights) for message in prompt.all_messages)
    if tools := prompt.parameters.get("tools"):
        tokens += estimate_text(msgspec.json.encode(tools).decode(), weights).tokens
    return tokens


class AnthropicResponseEncoder:
    keep_alive = PING

    def __init__(self, *, model: str, new_id: NewId) -> None:
        self._model = model
        self._new_id = new_id
        self._turn: TurnStarted | None = None
        self._encoder: AnthropicStreamEncoder | None = None
        self._is_verbatim = False
        self._ending: list[bytes] = []

    def start(self, turn: TurnStarted) -> None:
        self._turn = turn

    def encode_event(self, event: ReplyEvent) -> bytes:
        if type(event) is Verbatim:
            self._is_verbatim = True
            if not event.closes:
                return event.data
            self._ending.append(event.data)
            return b""
        if self._is_verbatim:
            return b"".join(self._ending) if isinstance(event, ReplyFinished) else b""
        if type(event) is ModelReported:
            self._model = event.model
            return b""
        if self._encoder is None:
            self._encoder = AnthropicStreamEncoder(
                message_id=self._id(), model=self._model, usage=self._estimate_usage()
            )
        return self._encoder.encode(event)

    def encode_error(self, report: ErrorReport) -> bytes:
        return b"event: error\ndata: %b\n\n" % encode_anthropic_error(report)

    def encode_response(self, reply: ReplyFinished) -> bytes:
        is_native = reply.message.dialect == DIALECT
        return encode_answer(
            reply,
            message_id=self._id(),
            model=reply.model or self._model,
            parts=None if is_native else parts_of(reply.message),
        )

    def redact(self, data: bytes) -> bytes:
        return data

    def _estimate_usage(self) -> Usage | None:
        """Estimate the input for `message_start`; other protocols report it at the end."""
        if self._turn is None:
            return None
        provider = self._turn.model.partition("/")[0]
        return Usage(input=_estimate_prompt(self._turn.prompt, provider), estimated=True)

    def _id(self) -> str:
        return f"msg_{self._new_id()}"
