"""OpenAI's Responses API for models of any provider: creating a response."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from cllm.core.errors import ConversationNotFoundError, ErrorReport
from cllm.core.ports import Clock, NewId
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.engine.request import TurnStarted
from cllm.server.http.errors import ApiError, openai_error_type
from cllm.server.http.limits import check_counts, read_body
from cllm.server.state import ApiRequest
from cllm.server.turns.handler import handle_turn
from cllm.server.turns.headers import (
    CONVERSATION,
    FIND_CONVERSATION,
    START_CONVERSATION,
    UUID,
    ContinueConversation,
    ContinueResponse,
    Mode,
    RequestHeaders,
    Stateless,
    read_mode,
    read_turn_headers,
)
from cllm.server.turns.previous_response import previous_response_error
from cllm.wire.convert import parts_of
from cllm.wire.messages import convert
from cllm.wire.openai.request import decode_body
from cllm.wire.responses.ids import (
    CONVERSATION_PREFIX,
    RESPONSE_PREFIX,
    make_conversation_id,
    make_response_id,
    read_conversation_id,
    read_response_id,
)
from cllm.wire.responses.parts import DIALECT
from cllm.wire.responses.passthrough import ResponseRewriter
from cllm.wire.responses.request import decode_request, has_references
from cllm.wire.responses.response_encoder import ResponsesStreamEncoder, encode_answer
from cllm.wire.responses.response_fields import ResponseFields

KEEP_ALIVE = b": keep-alive\n\n"
STATE_FIELDS = ("background", "conversation", "previous_response_id", "store")


class _ConversationParam(msgspec.Struct, frozen=True):
    id: str


class ResponseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a request that concern stored responses; null is the default."""

    background: bool | None = None
    conversation: str | _ConversationParam | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None

    @property
    def is_stored(self) -> bool:
        return self.store is not False

    @property
    def conversation_id(self) -> str | None:
        value = self.conversation
        return value.id if isinstance(value, _ConversationParam) else value


async def create_response(request: ApiRequest) -> Response:
    """POST /v1/responses."""
    quota, state = request.server.body_quota, request.server
    body = await read_body(request, quota)
    prompt = await _decode_request(body, request)
    check_counts(body, len(prompt.messages), quota.limits)
    options = convert(prompt.parameters, ResponseOptions)
    turn_headers = choose_mode(read_turn_headers(request.headers), options, prompt)
    names_conversation = isinstance(turn_headers.mode, ContinueConversation)
    encoder = ResponsesEncoder(
        model=prompt.model,
        parameters=_list_echoed(prompt, options),
        names_conversation=names_conversation,
        new_id=state.new_id,
        clock=state.clock,
    )
    stored: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    if options.is_stored:
        from cllm.server.api.response_parameters import (  # noqa: PLC0415 - only if stored
            select_parameters,
        )

        stored = select_parameters(prompt.parameters, names_conversation=names_conversation)
    return await handle_turn(
        request,
        remove_state_fields(prompt),
        body,
        encoder,
        turn_headers=turn_headers,
        background=encoder if options.background else None,
        parameters=stored,
    )


async def _decode_request(body: bytes, request: ApiRequest) -> Prompt:
    """Decode the body; references to stored items are replaced by the items."""
    fields = decode_body(body)
    items = fields.get("input")
    if not has_references(items):
        return decode_request(body, fields)
    from cllm.server.api.item_references import resolve_references  # noqa: PLC0415 - rare

    check_counts(body, len(items), request.server.body_quota.limits)
    resolved = await resolve_references(items, request, field="input")
    return decode_request(msgspec.json.encode({**fields, "input": resolved}))


def _list_echoed(prompt: Prompt, options: ResponseOptions) -> dict[str, Any]:
    """Return the parameters that the response repeats."""
    instructions = None if prompt.system is None else prompt.system.text
    own = {"conversation": None, "instructions": instructions, "store": options.is_stored}
    return {**prompt.parameters, **own}


def choose_mode(
    headers: RequestHeaders, options: ResponseOptions, prompt: Prompt
) -> RequestHeaders:
    """Return the headers with the conversation of the request.

    A stored response without any starts a conversation, or belongs to that of its history.
    """
    named, previous = options.conversation_id, options.previous_response_id
    has_header = not isinstance(headers.mode, Stateless)
    if previous is not None and (named is not None or has_header):
        raise ApiError(
            "invalid_request",
            "A request has `previous_response_id` or `conversation`, not both; remove one.",
            param="previous_response_id",
        )
    if options.background and not options.is_stored:
        raise ApiError(
            "invalid_request",
            "A background response needs `store: true`; remove `store` or `background`.",
            param="background",
        )
    if previous is not None:
        key = read_response_id(previous)
        if key is None:
            raise previous_response_error(previous)
        after = ContinueResponse(
            response=key, saves=options.is_stored, truncates=options.truncation == "auto"
        )
        return replace(headers, mode=after)
    if named is not None:
        if has_header:
            raise ApiError(
                "invalid_request",
                f"A request has `conversation` or {CONVERSATION}, not both; remove one.",
                param="conversation",
            )
        return replace(headers, mode=read_conversation(named))
    if has_header or not options.is_stored:
        return headers
    has_reply = any(message.role == "assistant" for message in prompt.messages)
    return replace(headers, mode=FIND_CONVERSATION if has_reply else START_CONVERSATION)


def read_conversation(named: str) -> Mode:
    """Return the mode for the parameter `conversation`: an ID of either format, or a name."""
    digits = named.removeprefix(CONVERSATION_PREFIX)
    if digits == named or read_conversation_id(named) is not None:
        return read_mode(named, param="conversation")
    if UUID.fullmatch(digits) is None:
        raise ConversationNotFoundError(named)
    return read_mode(digits, param="conversation")


def remove_state_fields(prompt: Prompt) -> Prompt:
    """Return the prompt without the fields that this server handles itself.

    `store: false` stays, so that the body of a stateless request is sent unchanged.
    """
    removed = [
        name
        for name in STATE_FIELDS
        if name in prompt.parameters
        and (name, prompt.parameters[name]) not in (("store", False), ("background", False))
    ]
    if not removed:
        return prompt
    parameters = {k: v for k, v in prompt.parameters.items() if k not in removed}
    return replace(prompt, parameters=parameters, original=None)


class ResponsesEncoder:
    """Encodes the response of one turn; a relayed stream of a provider is rewritten."""

    keep_alive = KEEP_ALIVE

    def __init__(
        self,
        *,
        model: str,
        parameters: Mapping[str, Any],
        new_id: NewId,
        clock: Clock,
        names_conversation: bool = False,
    ) -> None:
        self._model = model
        self._parameters = parameters
        self._names_conversation = names_conversation
        self._new_id = new_id
        self._created = int(clock().timestamp())
        self._id: str | None = None
        self._encoder: ResponsesStreamEncoder | None = None
        self._rewriter: ResponseRewriter | None = None
        self._ending: list[bytes] = []
        self._end: int | None = None
        instructions = parameters.get("instructions")
        self._secret = b'"instructions":%b' % msgspec.json.encode(instructions)

    def start(self, turn: TurnStarted) -> None:
        lease = turn.lease
        if lease is not None:
            self._id = make_response_id(lease.conversation.id, lease.turn.id)
            self._created = int(lease.turn.started_at.timestamp())
            if self._names_conversation:
                conversation = {"id": make_conversation_id(lease.conversation.id)}
                self._parameters = {**self._parameters, "conversation": conversation}

    def redact(self, data: bytes) -> bytes:
        """Return the bytes to store: without the instructions."""
        return data.replace(self._secret, b'"instructions":null')

    def encode_event(self, event: ReplyEvent) -> bytes:
        if type(event) is Verbatim:
            if self._rewriter is None:
                self._rewriter = self._make_rewriter()
            data = self._rewriter.rewrite(event.data)
            if not event.closes:
                return data
            self._ending.append(data)
            return b""
        if self._rewriter is not None:
            return b"".join(self._ending) if isinstance(event, ReplyFinished) else b""
        encoder = self._stream_encoder()
        if type(event) is ReplyFinished:
            self._end = encoder.sequence
        return encoder.encode(event)

    def encode_error(self, report: ErrorReport) -> bytes:
        # If the turn cannot be saved, its last events are encoded and not sent.
        encoder = ResponsesStreamEncoder(self._heading())
        if self._rewriter is not None:
            encoder.sequence = self._rewriter.sequence
        elif self._encoder is not None:
            encoder.sequence = self._encoder.sequence if self._end is None else self._end
        return encoder.error(report.message, type=openai_error_type(report), code=report.code)

    def encode_response(self, reply: ReplyFinished) -> bytes:
        if reply.message.dialect == DIALECT and reply.raw is not None:
            return bytes(self._make_rewriter().rewrite_response(reply.raw))
        return encode_answer(
            parts_of(reply.message),
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            heading=self._heading(),
        )

    def encode_started(self) -> bytes:
        """Return the response of a background turn that has started."""
        return msgspec.json.encode(self._heading().response("in_progress"))

    def _stream_encoder(self) -> ResponsesStreamEncoder:
        if self._encoder is None:
            self._encoder = ResponsesStreamEncoder(self._heading())
        return self._encoder

    def _heading(self) -> ResponseFields:
        return ResponseFields(
            id=self._response_id(),
            model=self._model,
            created=self._created,
            parameters=self._parameters,
        )

    def _make_rewriter(self) -> ResponseRewriter:
        fields = self._heading().own_fields()
        return ResponseRewriter(fields, response_id=self._id if fields["store"] else None)

    def _response_id(self) -> str:
        if self._id is None:
            # Of the length of a stored response's, so that its items' ids are recognised.
            digits = self._new_id().replace("-", "")
            self._id = f"{RESPONSE_PREFIX}{digits}{digits}"
        return self._id
