"""Chat completions in OpenAI's protocol."""

from typing import Any

from starlette.responses import Response

from cllm.core.errors import ErrorReport
from cllm.core.ports import Clock, NewId
from cllm.core.reply import ModelReported, ReplyEvent, ReplyFinished
from cllm.engine.request import TurnStarted
from cllm.server.http.errors import encode_openai_error
from cllm.server.http.limits import check_counts, read_body
from cllm.server.state import ApiRequest
from cllm.server.turns.handler import handle_turn
from cllm.wire.convert import parts_of
from cllm.wire.openai.functions import FunctionCalls, uses_functions
from cllm.wire.openai.request import decode_request
from cllm.wire.openai.response_encoder import OpenAIStreamEncoder, encode_reply

KEEP_ALIVE = b": keep-alive\n\n"


async def create_chat_completion(request: ApiRequest) -> Response:
    """POST /v1/chat/completions."""
    quota = request.server.body_quota
    body = await read_body(request, quota)
    prompt = decode_request(body)
    check_counts(body, len(prompt.messages), quota.limits)
    encoder = OpenAIResponseEncoder(
        model=prompt.model,
        new_id=request.server.new_id,
        clock=request.server.clock,
        parameters=prompt.parameters,
    )
    return await handle_turn(request, prompt, body, encoder)


class OpenAIResponseEncoder:
    keep_alive = KEEP_ALIVE

    def __init__(
        self, *, model: str, new_id: NewId, clock: Clock, parameters: dict[str, Any]
    ) -> None:
        self._model = model
        self._new_id = new_id
        self._clock = clock
        self._parameters = parameters
        self._functions = FunctionCalls() if uses_functions(parameters) else None
        self._encoder: OpenAIStreamEncoder | None = None

    def start(self, turn: TurnStarted) -> None:
        """Do nothing: a chat completion starts with its first event."""

    def encode_event(self, event: ReplyEvent) -> bytes:
        if type(event) is ModelReported:
            self._model = event.model
            return b""
        if self._encoder is None:
            options = self._parameters.get("stream_options")
            self._encoder = OpenAIStreamEncoder(
                model=self._model,
                id=self._id(),
                created=self._creation_time(),
                include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            )
        if self._functions is None:
            return self._encoder.encode(event)
        return b"".join(map(self._encoder.encode, self._functions.convert(event)))

    def encode_error(self, report: ErrorReport) -> bytes:
        return b"data: " + encode_openai_error(report) + b"\n\n"

    def encode_response(self, reply: ReplyFinished) -> bytes:
        if reply.message.dialect == "openai" and reply.raw is not None:
            return encode_reply(reply, parts=())
        return encode_reply(
            reply,
            parts=parts_of(reply.message),
            model=reply.model or self._model,
            id=self._id(),
            created=self._creation_time(),
            functions=self._functions is not None,
        )

    def redact(self, data: bytes) -> bytes:
        return data

    def _id(self) -> str:
        return f"chatcmpl-{self._new_id()}"

    def _creation_time(self) -> int:
        return int(self._clock().timestamp())
